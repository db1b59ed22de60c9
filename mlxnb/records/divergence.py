"""Where a prompt leaves an earlier turn's tokens, and what kind of difference that is."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlxnb.records.nearest import Run, meeting, packed_sequence
from mlxnb.records.spans import (
    first_message,
    has_message_text,
    last_message,
    role_of,
    span_at,
    whole_messages,
)
from mlxnb.records.turn import Span, TurnRecord
from mlxnb.records.volatile import Change, volatile_change

Decode = Callable[[Sequence[int]], str]

_AROUND = 64
"""Tokens on both sides of a difference that are searched for tool definitions."""
_TOOL_TEXT = re.compile(r'<tools?>|"(?:function|parameters|input_schema)"\s*:')


@dataclass(frozen=True, slots=True)
class Divergence:
    """Token ``at`` is the first of a prompt that is not the earlier turn's token there.

    ``here`` and ``there`` are the spans it lies in, in the prompt and in the earlier turn
    (whose answer counts as a span); ``resumes`` is where both go on with the same tokens.
    """

    record: TurnRecord
    earlier: TurnRecord
    at: int
    here: Span | None
    there: Span | None
    theirs: tuple[Span, ...]
    resumes: Run | None

    @property
    def place(self) -> Span | None:
        """The span of the message that differs: the earlier one, rather text than template."""
        spans = [span for span in (self.here, self.there) if span is not None]
        return min(spans, key=lambda span: (span.message, span.role == "template"), default=None)

    @property
    def in_head(self) -> bool:
        """Whether it lies before the first message that is no system text, on both sides."""
        starts = [first_message(spans) for spans in (self.record.spans, self.theirs)]
        return all(first is None or self.at < first.start for first in starts)

    @property
    def in_output(self) -> bool:
        """Whether it lies in what the earlier turn generated."""
        return self.at >= len(self.earlier.prompt)

    @property
    def same_session(self) -> bool:
        """Whether both turns are of one session."""
        return self.record.session is not None and self.record.session == self.earlier.session


def divergence(record: TurnRecord, earlier: TurnRecord, at: int) -> Divergence | None:
    """The difference after ``at`` common tokens; None where one begins with the other."""
    if at >= len(record.prompt) or at >= len(earlier.prompt) + len(earlier.output):
        return None
    theirs = _with_answer(earlier)
    here = span_at(record.spans, at)
    run = meeting(record.prompt, packed_sequence(earlier), at, here.end if here else None)
    if run is not None and not has_message_text(record.spans, run.start, run.end):
        run = None  # the template writes the same after every message
    return Divergence(record, earlier, at, here, span_at(theirs, at), theirs, run)


def _with_answer(earlier: TurnRecord) -> tuple[Span, ...]:
    """The spans of a turn's prompt and of its answer."""
    start, end = len(earlier.prompt), len(earlier.prompt) + len(earlier.output)
    if not earlier.spans or start == end:
        return tuple(earlier.spans)
    answer = Span(start, end, "assistant", last_message(earlier.spans) + 1)
    return (*earlier.spans, answer)


def classify(found: Divergence, decode: Decode) -> tuple[str | None, Change | None]:
    """Why the prompt differs there (a key of ``REASONS``), and what changed by itself.

    None: what differs is the prompt's newest message, after which there is nothing to reuse.
    """
    place = found.place
    if place is None or not found.record.spans or not found.earlier.spans:
        return _without_spans(found), None
    if found.in_head:
        return _head_reason(found, decode)
    if _between_answer_and_next(found):
        return "template_rewrote", None
    if place.message >= last_message(found.record.spans):
        return ("new_conversation" if _is_first(found, place) else None), None
    if place.role == "system":
        return _head_reason(found, decode)
    if "assistant" in (place.role, role_of(found.record.spans, place.message)):
        return _answer_reason(found, place.message, decode), None
    if _is_first(found, place) and not found.same_session and not _goes_on(found, place):
        return "new_conversation", None
    return "history_edited", None


def _without_spans(found: Divergence) -> str:
    """All that can be said of a prompt whose messages' borders are unknown."""
    if not found.same_session:
        return "new_conversation"
    rewritten = found.record.history == "template" and found.in_output
    return "template_rewrote" if rewritten else "history_edited"


def _is_first(found: Divergence, place: Span) -> bool:
    """Whether the message that differs is the conversation's first."""
    first = first_message(found.record.spans)
    return first is not None and place.message <= first.message


def _goes_on(found: Divergence, place: Span) -> bool:
    """Whether a whole message after the one that differs is the same."""
    run = found.resumes
    if run is None:
        return False
    same = whole_messages(found.record.spans, run.start, run.end)
    return any(span.start >= run.start and span.message > place.message for span in same)


# --- system text and tools -----------------------------------------------------------------


def _head_reason(found: Divergence, decode: Decode) -> tuple[str, Change | None]:
    """The system text, the tools or what the template writes around them differ."""
    if _tools_differ(found, decode):
        return "tools_changed", None
    start = max(0, found.at - _AROUND)
    ours = found.record.prompt[start : _end(found.here, found.at)]
    theirs = found.earlier.prompt[start : _end(found.there, found.at)]
    change = volatile_change(decode(theirs.tolist()), decode(ours.tolist()))
    return ("system_changed" if change is None else "system_volatile"), change


def _end(span: Span | None, at: int) -> int:
    """Where to stop reading: at the span's end, or `_AROUND` tokens on where it is unknown."""
    return span.end if span is not None else at + _AROUND


def _tools_differ(found: Divergence, decode: Decode) -> bool:
    """By the digests where the template writes; else by what the texts look like."""
    ours, theirs = found.record.tools, found.earlier.tools
    if ours == theirs != "":
        return False
    roles = {span.role for span in (found.here, found.there) if span is not None}
    if ours != theirs and roles == {"template"}:
        return True
    around = slice(max(0, found.at - _AROUND), found.at + _AROUND)
    sides = (found.record.prompt[around], found.earlier.prompt[around])
    return any(_TOOL_TEXT.search(decode(tokens.tolist())) for tokens in sides)


# --- answers -------------------------------------------------------------------------------


def _between_answer_and_next(found: Divergence) -> bool:
    """Whether the template ends an answer otherwise, before a message of the same role."""
    if found.record.history != "template" or found.here is None or found.there is None:
        return False
    ours, theirs = found.here, found.there
    if ours.role != "template" or theirs.role != "template" or ours.message != theirs.message:
        return False
    spans = found.record.spans
    return role_of(spans, ours.message - 1) == "assistant" and (
        role_of(spans, ours.message) == role_of(found.theirs, ours.message)
    )


def _answer_reason(found: Divergence, message: int, decode: Decode) -> str | None:
    """An earlier answer differs: cut at a stop string, rendered anew or edited."""
    if found.in_output and found.earlier.finish_reason == "stop_sequence":
        return None  # what came after the cut was never part of the conversation
    if found.record.history == "template" and _same_words(found, message, decode):
        return "template_rewrote"
    return "history_edited"


def _same_words(found: Divergence, message: int, decode: Decode) -> bool:
    """Whether the answer says the same but for spaces and left-out parts (its thinking)."""
    if found.in_output and found.earlier.finish_reason == "tool_calls":
        return True  # calls are written by the template, not as they were generated
    ours = _words(found.record.prompt, found.record.spans, message, decode)
    tokens = found.earlier.prompt + found.earlier.output
    theirs = {
        _words(tokens, found.theirs, message, decode),
        _words(tokens[:-1], found.theirs, message, decode),  # without its end token
    }
    return any(text.endswith(ours) or (text and ours.endswith(text)) for text in theirs)


def _words(tokens: array[int], spans: Sequence[Span], message: int, decode: Decode) -> str:
    """The text of the assistant's message of that number, without white space."""
    parts = [
        decode(tokens[span.start : span.end].tolist())
        for span in spans
        if span.message == message and span.role == "assistant"
    ]
    return "".join("".join(parts).split())
