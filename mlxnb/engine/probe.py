"""What a model can do, tried out on it when it is loaded: be reused, batched, and paged."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxnb import mlxlm
from mlxnb.cache.checkpoint import take
from mlxnb.cache.layout import Layout
from mlxnb.cache.paged_models import rebind, same_logits, supports_paging
from mlxnb.cache.paged_pool import in_place
from mlxnb.engine.logprobs import normalized
from mlxnb.models.info import Reuse

log = logging.getLogger(__name__)

LENGTHS = (2, 4)
"""Tokens in the two ragged rows."""
STEPS = 2
"""Tokens that each row decodes."""
EDITION = 3
"""Of the trials: notes of another one are not believed."""
RESTORED, FOLLOWING = 5, (3, 1)
"""Tokens before the checkpoint of a trial, and those that it is fed with after it."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """``layout``: what its caches are made of; None where they cannot be restored.

    ``depth`` is the number of layers either way. ``paged``: it attends to a block pool in place,
    on this device.
    """

    layout: Layout | None
    depth: int
    batchable: bool
    paged: bool

    @property
    def reuse(self) -> Reuse:
        """How prefixes of its KV are reused."""
        if self.layout is None:
            return "none"
        return "checkpoint" if self.layout.anchored else "prefix"


def examine(model: Any, vocab: int, note: Path | None = None) -> Abilities:
    """Run one token for the shapes of the caches, and try the rest out.

    Two ragged rows in a batch against alone, and what was restored against what went on.

    Parameters
    ----------
    note
        A file that remembers the answer for this model and these versions of MLX and mlx-lm.
    """
    caches = mlxlm.new_caches(model)
    mx.eval(model(mx.array([[_token(0, vocab)]]), cache=caches))
    mlxlm.evaluate(caches)
    layout: Layout | None = Layout.of(caches) if mlxlm.known(caches) else None
    if layout is not None and not _tried("restorable", can_restore, model, vocab, note):
        layout = None
    batchable = _tried("batchable", can_batch, model, vocab, note)
    plain = layout is not None and mlxlm.plain(caches)
    paged = plain and wants_paging() and _tried("paged", supports_paging, model, vocab, note)
    paged = paged and rebind(model)
    return Abilities(layout, len(caches), batchable, paged)


def _tried(
    question: str, trial: Callable[[Any, int], bool], model: Any, vocab: int, note: Path | None
) -> bool:
    """What a trial says, or what was noted of it."""
    found = _remembered(note, question)
    if found is None:
        try:
            found = trial(model, vocab)
            _remember(note, question, found)
        except Exception as error:  # not remembered: it may have been a lack of memory
            log.info("not %s: %s", question, error)
            found = False
    return found


def wants_paging() -> bool:
    """Whether this device reads blocks in place, and ``MLXNB_PAGED=0`` does not forbid it."""
    return os.environ.get("MLXNB_PAGED") != "0" and in_place()


def can_restore(model: Any, vocab: int) -> bool:
    """Whether caches that were restored go on as if all tokens were computed at once.

    KV in few bits is rounded, and falls to the other side where the same tokens came in other
    chunks: it is compared with caches that went on themselves.

    Raises what the model or mlx-lm raises where its caches cannot be copied.
    """
    tokens = [_token(number, vocab) for number in range(RESTORED + sum(FOLLOWING))]
    caches, others = (_prefilled(model, tokens[:RESTORED]) for _ in range(2))
    rounded = any(mlxlm.kind_of(cell) == "quantized" for cell in mlxlm.cells(caches))
    checkpoint = take("", caches, RESTORED, (), mlxlm.reach(caches))
    run = [(k[None], v[None]) for k, v in mlxlm.read(caches, 0, RESTORED)]
    mx.eval(run)
    restored, at = mlxlm.from_arrays(model, run, RESTORED), RESTORED
    checkpoint.restore(restored)
    for count in FOLLOWING:
        new, at = tokens[at : at + count], at + count
        found = _last(model, new, restored)
        whole = tokens[:at], mlxlm.new_caches(model)
        if not same_logits(found, _last(model, *((new, others) if rounded else whole))):
            return False
    return True


def _last(model: Any, tokens: list[int], caches: mlxlm.Caches) -> mx.array:
    """Logits ``(vocab,)`` after these."""
    logits: mx.array = model(mx.array([tokens]), cache=caches)[0, -1]
    mx.eval(logits)
    mlxlm.evaluate(caches)
    return logits


def can_batch(model: Any, vocab: int) -> bool:
    """Whether two rows of unequal length give the same distributions in a batch as alone.

    Raises what the model or mlx-lm raises where they cannot be put into a batch.
    """
    rows = [[_token(7 * r + i, vocab) for i in range(n)] for r, n in enumerate(LENGTHS)]
    started = [_prefilled(model, row[:-1]) for row in rows]
    together = _in_batch(model, rows, started)
    alone = [
        _alone(model, row, caches, [token for token, _ in steps])
        for row, caches, steps in zip(rows, started, together, strict=True)
    ]
    pairs = [
        (distribution, solo)
        for steps, solos in zip(together, alone, strict=True)
        for (_, distribution), solo in zip(steps, solos, strict=True)
    ]
    return all(_agree(a, b) for a, b in pairs)


def _token(number: int, vocab: int) -> int:
    """Some token ids, spread over the vocabulary."""
    return (vocab // 3 + 37 * number) % vocab


def _prefilled(model: Any, tokens: list[int]) -> mlxlm.Caches:
    caches = mlxlm.new_caches(model)
    model(mx.array([tokens]), cache=caches)
    mlxlm.evaluate(caches)
    return caches


def _in_batch(
    model: Any, rows: list[list[int]], started: list[mlxlm.Caches]
) -> list[list[tuple[int, mx.array]]]:
    """Each row's drawn tokens with the probabilities ``(vocab,)`` they were drawn from."""
    batch = mlxlm.Batch(model, normalized)
    uids = [
        batch.join(caches, row[:-1], row[-1], _greedy, [])
        for row, caches in zip(rows, started, strict=True)
    ]
    drawn: dict[int, list[tuple[int, mx.array]]] = {uid: [] for uid in uids}
    while min(map(len, drawn.values())) < STEPS:
        for step in batch.step():
            drawn[step.uid].append((step.token, mx.exp(step.logprobs)))
    batch.close()
    return [drawn[uid][:STEPS] for uid in uids]


def _alone(model: Any, row: list[int], caches: mlxlm.Caches, drawn: list[int]) -> list[mx.array]:
    """The probabilities that the row has alone, fed the same tokens."""
    probabilities = []
    for token in [row[-1], *drawn[:-1]]:
        logits = model(mx.array([[token]]), cache=caches)[0, -1]
        probabilities.append(mx.softmax(logits.astype(mx.float32)))
    return probabilities


def _agree(a: mx.array, b: mx.array) -> bool:
    """Whether two distributions differ by no more than the rounding of another order of sums.

    Total variation: 1e-3 in float32, 0.1 in half precision, where one unit in the last place of
    a logit near 20 moves a probability by 6 % in bfloat16.
    """
    bound = 1e-3 if a.dtype == mx.float32 else 0.1
    apart = 0.5 * mx.sum(mx.abs(a.astype(mx.float32) - b))
    return bool((apart < bound).item())


def _greedy(logprobs: mx.array) -> mx.array:
    return mx.argmax(logprobs, axis=-1)


def _versions() -> str:
    libraries = f"mlx {version('mlx')}, mlx-lm {version('mlx-lm')}"
    return f"{libraries}, {mx.default_device()}, trials {EDITION}"


def _remembered(note: Path | None, question: str) -> bool | None:
    answer = _answers(note).get(question)
    return answer if isinstance(answer, bool) else None


def _answers(note: Path | None) -> dict[str, Any]:
    """What is noted for these versions."""
    try:
        kept = json.loads(note.read_text()) if note is not None else {}
        return dict(kept) if kept["versions"] == _versions() else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _remember(note: Path | None, question: str, answer: bool) -> None:
    if note is None:
        return
    kept = {**_answers(note), "versions": _versions(), question: answer}
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps(kept))
    except OSError as error:
        log.info("the probe's answer is not kept: %s", error)
