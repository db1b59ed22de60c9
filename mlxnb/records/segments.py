"""A prompt cut into pieces of one message and one fate: reused, computed, computed again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from mlxnb.records.diagnosis import Diagnosis
from mlxnb.records.divergence import Decode
from mlxnb.records.spans import span_at
from mlxnb.records.turn import TurnRecord

PREVIEW = 80
"""Characters of a segment's text."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Prompt tokens ``[start, end)`` of one message and one fate.

    ``source`` is reused (from the cache) | recomputed (an earlier turn had computed them at
    this place) | displaced (the same tokens follow the first difference in the earlier turn)
    | computed (new, or not kept long enough to tell).
    """

    start: int
    end: int
    role: str | None
    message: int | None
    source: str
    note: str | None = None
    text: str | None = None


def segments_of(record: TurnRecord, found: Diagnosis, decode: Decode | None) -> Iterator[Segment]:
    """The prompt cut wherever the message or the fate of its tokens changes.

    Without ``decode`` the segments have no text.
    """
    total = len(record.prompt) or record.usage.prompt_tokens
    cuts = {0, total, record.usage.cached_tokens, found.common_tokens, _held(found)}
    if found.resumes is not None:
        cuts |= {found.resumes.start, found.resumes.end}
    cuts |= {edge for span in record.spans for edge in (span.start, span.end)}
    edges = sorted(cut for cut in cuts if 0 <= cut <= total)
    for start, end in pairwise(edges):
        yield _segment(record, found, start, end, decode)


def _segment(
    record: TurnRecord, found: Diagnosis, start: int, end: int, decode: Decode | None
) -> Segment:
    """One piece between two cuts."""
    span = span_at(record.spans, start)
    source = _source(record, found, start)
    text = None
    if decode is not None and record.prompt:
        text = _shortened(decode(record.prompt[start : min(end, start + PREVIEW + 1)].tolist()))
    return Segment(
        start=start,
        end=end,
        role=span.role if span is not None else None,
        message=span.message if span is not None else None,
        source=source,
        note=_note(record, found, start, source),
        text=text,
    )


def _source(record: TurnRecord, found: Diagnosis, start: int) -> str:
    """The fate of the tokens from ``start`` up to the next cut."""
    if start < record.usage.cached_tokens:
        return "reused"
    if start < _held(found):
        return "recomputed"
    run = found.resumes
    return "displaced" if run is not None and run.start <= start < run.end else "computed"


def _held(found: Diagnosis) -> int:
    """Where the other turn's KV for this prompt ends.

    Without a difference the last common token is the prompt's, which is always computed, or
    an answer's, which was never put in.
    """
    return found.common_tokens if found.diverged_at is not None else found.common_tokens - 1


def _note(record: TurnRecord, found: Diagnosis, start: int, source: str) -> str | None:
    """What is to be said of a segment beside its source."""
    if start == found.diverged_at and found.nearest_id is not None:
        return f"differs from {found.nearest_id} here"
    if source == "recomputed":
        return f"{found.nearest_id} had computed these: {found.reason or 'a border of the cache'}"
    if source == "displaced" and found.resumes is not None:
        place = found.resumes.earlier + start - found.resumes.start
        return f"{found.nearest_id} has the same tokens at {place}"
    if record.prompt and start == len(record.prompt) - 1:
        return "the last token of a prompt is always computed"
    if source == "computed" and start == _held(found):
        return "the last token of an answer is first put in by the next turn"
    return None if record.prompt else "the ledger has dropped the tokens"


def _shortened(text: str) -> str:
    return text if len(text) <= PREVIEW else text[: PREVIEW - 1] + "…"
