"""Questions about the spans of a prompt: which message a token belongs to, where a head ends.

All functions take spans in order of ``start`` and answer for an empty list too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from mlxnb.records.turn import Span

HEAD_ROLES = ("system", "template")


def span_at(spans: Sequence[Span], position: int) -> Span | None:
    """The span that token ``position`` lies in."""
    index = bisect_right(spans, position, key=lambda span: span.start) - 1
    return spans[index] if index >= 0 and position < spans[index].end else None


def messages(spans: Iterable[Span]) -> list[Span]:
    """The spans that are messages' own text, not the template's."""
    return [span for span in spans if span.role != "template"]


def role_of(spans: Iterable[Span], message: int) -> str | None:
    """The role of that message; None where it has no text of its own."""
    return next((span.role for span in messages(spans) if span.message == message), None)


def first_message(spans: Iterable[Span]) -> Span | None:
    """The first message that is no system text: what is before it is the head."""
    return next((span for span in spans if span.role not in HEAD_ROLES), None)


def forks(spans: Sequence[Span]) -> tuple[int, ...]:
    """Where other prompts are likely to part from this one: at messages' ends and the head's."""
    first = first_message(spans)
    ends = [span.end for span in messages(spans) if span.role not in HEAD_ROLES]
    return tuple(sorted({*ends, *([first.start] if first is not None else [])}))


def last_message(spans: Iterable[Span]) -> int:
    """The number of the last message; -1 without any."""
    return max((span.message for span in messages(spans)), default=-1)


def whole_messages(spans: Iterable[Span], start: int, end: int) -> list[Span]:
    """The messages whose text ends in ``(start, end]``."""
    return [span for span in messages(spans) if start < span.end <= end]


def has_message_text(spans: Iterable[Span], start: int, end: int) -> bool:
    """Whether ``[start, end)`` holds a token of a message; True where nothing is known."""
    known = list(spans)
    return not known or any(span.start < end and start < span.end for span in messages(known))
