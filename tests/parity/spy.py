"""An independent witness: what a model was really fed, and what it answered.

It stands in for the loaded model, so it counts what the engine computes and not what the engine
says that it computes. Padding would be seen as tokens that no request has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

from mlxnb import mlxlm
from mlxnb.records.turn import TurnRecord
from mlxnb.sessions.local import LocalEngine

Fed = tuple[int, int]
"""A token that went in: its position and its id."""
Logits = np.ndarray[Any, Any]
TOLERANCE = 1e-4
"""Of logits, relative to the largest of a run."""
COARSE = 0.02
"""The same over KV in a few bits: how a prompt is cut into chunks moves a value by its last digit,
and where it lay on an edge, to the next step. In 8 bits that is up to 0.003, in every eighth run.
"""


@dataclass(eq=False)
class Spy:
    """Stands in for ``model``. ``fed`` says what went in, ``logits`` what came out for it.

    ``on_call`` is called on the engine's thread before the model is, with the number of calls so
    far: the place to cancel or to send something in the midst of a step. ``blind``: no layer's
    cache counts positions, so all are taken for 0. ``rows`` counts calls by their rows.
    ``tolerance``: how far logits may be from a cold run's, relative to its largest; for the choice
    of a token, in logits.
    """

    model: Any
    keep_logits: bool = True
    fed: Counter[Fed] = field(default_factory=Counter)
    logits: dict[Fed, list[Logits]] = field(default_factory=lambda: defaultdict(list))
    rows: Counter[int] = field(default_factory=Counter)
    calls: int = 0
    blind: bool = False
    on_call: Callable[[int], None] = lambda calls: None
    tolerance: float = TOLERANCE

    def __call__(self, inputs: mx.array, cache: Any = None, **more: Any) -> mx.array:
        self.on_call(self.calls)
        self.calls += 1
        rows, length = inputs.shape
        self.rows[rows] += 1
        starts = _starts(cache, rows)
        self.blind = starts is None
        out: mx.array = self.model(inputs, cache=cache, **more)
        values = np.array(out.astype(mx.float32)) if self.keep_logits else None
        for row, tokens in enumerate(inputs.tolist()):
            for at in range(length):
                fed = self.seen_as((0 if starts is None else starts[row] + at, tokens[at]))
                self.fed[fed] += 1
                if values is not None:
                    self.logits[fed].append(values[row, at])
        return out

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def seen_as(self, fed: Fed) -> Fed:
        """Under what a token is noted."""
        return (0, fed[1]) if self.blind else fed

    @property
    def total(self) -> int:
        """Tokens that went in since ``clear``."""
        return sum(self.fed.values())

    def clear(self) -> None:
        self.fed.clear()
        self.logits.clear()
        self.rows.clear()


def _starts(caches: Any, rows: int) -> list[int] | None:
    """Position of each row's next token; None where no layer counts them."""
    for cache in mlxlm.cells(caches):
        offset = getattr(cache, "offset", None)
        if isinstance(offset, int):
            return [offset] * rows
        if offset is not None:
            return [int(o) for o in offset.tolist()]
    return None


def watch(engine: LocalEngine, name: str, keep_logits: bool = True) -> Spy:
    """Put a spy in front of a loaded model."""
    runtime = engine.core.runtime(name)
    tolerance = TOLERANCE if runtime.info.kv_bits is None else COARSE
    spy = Spy(runtime.model, keep_logits, tolerance=tolerance)
    runtime.model = spy
    return spy


def cold(engine: LocalEngine, spy: Spy, tokens: list[int]) -> Logits:
    """Logits ``(tokens, vocab)`` of a plain mlx-lm run over all tokens at once."""

    def run() -> Logits:
        out = spy.model(mx.array([tokens]), cache=mlxlm.new_caches(spy.model))[0]
        return np.array(out.astype(mx.float32))

    return engine.core.owner.call(run)


# --- what a turn's row claims -----------------------------------------------------------------


def claimed(record: TurnRecord) -> Iterator[Fed]:
    """The tokens computed for a turn, by its row: its prefill, then what its decode took in."""
    for position in range(record.usage.cached_tokens, len(record.prompt)):
        yield position, record.prompt[position]
    for number in range(record.decode_inputs):
        yield len(record.prompt) + number, record.output[number]


def _in_prefill(record: TurnRecord) -> bool:
    """Whether a turn ended before its first token: any part of its prefill may be done."""
    return not record.output and record.finish_reason in ("cancelled", "error")


def accounted(spy: Spy, records: list[TurnRecord]) -> dict[str, list[Fed]]:
    """What was fed for each turn. Fails if the rows claim more than was fed, or less.

    What had to be computed again (for want of room, or after a failed batch) is in the rows as
    a number alone.
    """
    left = Counter(spy.fed)
    shares = {record.turn_id: list(claimed(record)) for record in records}
    begun = [record.turn_id for record in records if _in_prefill(record)]
    for turn in shares.keys() - begun:
        left.subtract(map(spy.seen_as, shares[turn]))
    for record in records:
        if record.turn_id in begun and not record.prefill_chunks:
            shares[record.turn_id] = shares[record.turn_id][-1:] if _one_left(record) else []
    while begun:
        furthest = max(begun, key=lambda turn: _reach(shares[turn], left))
        begun.remove(furthest)
        reach = 0 if spy.blind else _reach(shares[furthest], left)
        shares[furthest] = shares[furthest][:reach]
        left.subtract(shares[furthest])
    again = [record for record in records if record.recomputed_tokens]
    known = Counter(spy.seen_as(fed) for record in again for fed in set(_tokens(record)))
    for record in again:
        mine = [fed for fed in _tokens(record) for _ in range(left[spy.seen_as(fed)])]
        mine.sort(key=lambda fed: known[spy.seen_as(fed)])  # first what no other turn has
        mine = mine[: record.recomputed_tokens]
        left.subtract(map(spy.seen_as, mine))
        shares[record.turn_id] += mine
    if spy.blind:  # without positions, nobody can say whose a part of a prefill is
        maybe = (spy.seen_as(fed) for r in records if _in_prefill(r) for fed in claimed(r))
        left -= left & Counter(maybe)
    wrong = {fed: count for fed, count in left.items() if count}
    assert not wrong, f"fed and not in the rows (> 0), or in the rows and not fed (< 0): {wrong}"
    return shares


def _one_left(record: TurnRecord) -> bool:
    """Whether all of a prompt but the last token was cached: that one needs no prefill."""
    return record.usage.prefill_tokens == 1


def _reach(share: list[Fed], left: Counter[Fed]) -> int:
    """How many of these, from the first on, were fed."""
    return next((n for n, fed in enumerate(share) if not left[fed]), len(share))


def _tokens(record: TurnRecord) -> list[Fed]:
    """All tokens of a turn, at their positions."""
    return list(enumerate([*record.prompt, *record.output]))


# --- parity -----------------------------------------------------------------------------------


def assert_same_tokens(spy: Spy, record: TurnRecord, logits: Logits) -> None:
    """Every token of a greedy answer is the cold run's, unless two logits were too close."""
    for number, token in enumerate(record.output):
        row = logits[len(record.prompt) - 1 + number]
        assert row.max() - row[token] <= spy.tolerance, (
            f"{record.turn_id}: token {number} is {token}, a cold run has {row.argmax()}"
        )


def assert_same_logits(spy: Spy, share: list[Fed], logits: Logits) -> None:
    """What was computed for a turn is what a cold run computes; takes it out of ``spy``."""
    bound = spy.tolerance * float(np.abs(logits).max())
    for fed in share:
        seen = spy.logits[spy.seen_as(fed)]
        gaps = [float(np.abs(row - logits[fed[0]]).max()) for row in seen]
        best = int(np.argmin(gaps))
        assert gaps[best] <= bound, f"logits after {fed} are off by {gaps}, allowed are {bound}"
        del seen[best]


def assert_parity(
    engine: LocalEngine, spy: Spy, records: list[TurnRecord], greedy: bool = True
) -> dict[str, list[Fed]]:
    """The turns since the last call: all of it accounted for, and all of it as in a cold run.

    Returns what was fed for each turn. ``greedy=False``: tokens were not chosen by logits alone.
    """
    shares = accounted(spy, records)
    for record in records:
        logits = cold(engine, spy, [*record.prompt, *record.output])
        assert np.isfinite(logits).all()
        if greedy:
            assert_same_tokens(spy, record, logits)
        assert_same_logits(spy, shares[record.turn_id], logits)
    spy.clear()
    return shares
