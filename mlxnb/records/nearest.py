"""The earlier turn that shares most with a prompt, and where two sequences meet again.

All comparisons are memcmp over packed token ids: 500 records of 32,000 tokens each take a
few milliseconds.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlxnb.records.tokens import WIDTH, common_prefix
from mlxnb.records.turn import TurnRecord

ANCHOR = 8
"""Tokens in a row that must be equal for two sequences to count as meeting again."""
REACH = 64
"""Tokens after a difference at which they may meet again, beside the message's end."""


def same_model(record: TurnRecord, other: TurnRecord) -> bool:
    """Whether one's KV could serve the other: the same weights, tokenizer and adapter."""
    return (record.fingerprint, record.adapter) == (other.fingerprint, other.adapter)


def nearest(record: TurnRecord, earlier: Sequence[TurnRecord]) -> tuple[TurnRecord, int] | None:
    """The earlier turn of the same model whose tokens begin most like this prompt.

    Parameters
    ----------
    record
        The turn whose prompt is compared.
    earlier
        Turns that started before it, oldest first. Those without tokens, of other models or
        run with ``reuse=False`` (nothing of them was kept) are passed over.

    Returns
    -------
    tuple
        The turn and the number of tokens of its prompt and output that this prompt begins
        with, 0 included; None without any turn to compare with. Of equals a turn of the same
        salt, then of the same session, then the newest.
    """
    return longest(record, (other for other in earlier if same_model(record, other)))


def longest(record: TurnRecord, others: Iterable[TurnRecord]) -> tuple[TurnRecord, int] | None:
    """As `nearest`, whatever the model."""
    ours = record.prompt
    packed = ours.tobytes()
    best: tuple[TurnRecord, int] | None = None
    for other in _by_preference(record, others):
        known = best[1] if best else -1
        if known == len(ours):
            break
        if known >= 0 and _token(other, known) != ours[known]:
            continue
        common = common_prefix(packed, packed_sequence(other))
        if common > known:
            best = (other, common)
    return best


def _by_preference(record: TurnRecord, others: Iterable[TurnRecord]) -> list[TurnRecord]:
    """Candidates that kept something, the preferred one of equals first."""
    usable = [
        other
        for other in others
        if other is not record and other.reuse_enabled and (other.prompt or other.output)
    ]
    usable.reverse()
    usable.sort(
        key=lambda other: (
            other.salt != record.salt,
            record.session is None or other.session != record.session,
        )
    )
    return usable


def _token(record: TurnRecord, position: int) -> int | None:
    """Token ``position`` of prompt and output; None beyond."""
    prompt, output = record.prompt, record.output
    if position < len(prompt):
        return prompt[position]
    position -= len(prompt)
    return output[position] if position < len(output) else None


def packed_sequence(record: TurnRecord) -> bytes:
    """Prompt and output. A copy: an exported buffer would stop the engine from appending."""
    return record.prompt.tobytes() + record.output.tobytes()


@dataclass(frozen=True, slots=True)
class Run:
    """``tokens`` equal ones: at ``start`` in a prompt, at ``earlier`` in another turn's."""

    start: int
    earlier: int
    tokens: int

    @property
    def end(self) -> int:
        """The position in the prompt after the last equal token."""
        return self.start + self.tokens


def meeting(ours: array[int], theirs: bytes, at: int, skip: int | None = None) -> Run | None:
    """Where a prompt that differs at ``at`` goes on as the other sequence does.

    Looks from each of the next `REACH` tokens, and from ``skip`` (where the message ends),
    for `ANCHOR` tokens that the other has anywhere after ``at``; the longest run counts.
    """
    packed = ours.tobytes()
    best: Run | None = None
    for start in [*range(at, at + REACH), *([skip] if skip is not None else [])]:
        if best is not None and best.start <= start < best.end:
            continue
        run = _run(packed, theirs, start, at)
        if run is not None and (best is None or run.tokens > best.tokens):
            best = run
    return best


def _run(ours: bytes, theirs: bytes, start: int, at: int) -> Run | None:
    """The run of equal tokens from ``start`` on; None below `ANCHOR` tokens."""
    anchor = ours[start * WIDTH : (start + ANCHOR) * WIDTH]
    if len(anchor) < ANCHOR * WIDTH:
        return None
    found = theirs.find(anchor, at * WIDTH)
    while found >= 0 and found % WIDTH:  # a match across token borders is none
        found = theirs.find(anchor, found + 1)
    if found < 0:
        return None
    return Run(start, found // WIDTH, common_prefix(ours[start * WIDTH :], theirs[found:]))
