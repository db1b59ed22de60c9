"""Where in a rendered conversation each message's text stands, and which tokens are its own."""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from mlxnb.records.turn import Span
from mlxnb.sessions.messages import Message


@dataclass(frozen=True, slots=True)
class Place:
    """Characters ``[start, end)`` are the text of message number ``message``.

    ``word`` is its first that is no white space.
    """

    start: int
    word: int
    end: int
    role: str
    message: int


def sentinel() -> str:
    """A text that no template and no user has: letters alone, so that nothing is escaped."""
    return "Q" + "".join(chr(ord("a") + byte % 26) for byte in secrets.token_bytes(18)) + "Q"


def with_text(messages: Sequence[Message], number: int, text: str) -> list[Message]:
    """The messages with another text, and nothing but text, in one of them."""
    bare = {"role": messages[number]["role"], "content": text}
    return [*messages[:number], bare, *messages[number + 1 :]]


def with_sentinels(messages: Sequence[Message], first: int) -> tuple[list[Message], list[str]]:
    """The messages with a sentinel for each text from message ``first`` on; and the sentinels."""
    changed, sentinels = list(messages), []
    for number in range(first, len(messages)):
        if messages[number].get("content"):
            sentinels.append(sentinel())
            changed[number] = {**messages[number], "content": sentinels[-1]}
    return changed, sentinels


def cut(text: str, sentinels: Sequence[str]) -> list[str] | None:
    """The pieces between sentinels; None if these do not stand in order, each once."""
    pieces = []
    for mark in sentinels:
        if text.count(mark) != 1:
            return None
        before, text = text.split(mark)
        pieces.append(before)
    return [*pieces, text]


def find_places(
    text: str, messages: Sequence[Message], first: int, literals: Sequence[str] | None
) -> list[Place] | None:
    """Where the texts of the messages from number ``first`` on stand.

    Parameters
    ----------
    literals
        What the template writes before, between and after them; None: unknown.

    Returns
    -------
    list or None
        Messages without text have no place. None where ``text`` is not made of the literals and
        of the messages' texts, their white space stripped or not.
    """
    if literals is None or not text.startswith(literals[0]):
        return None
    texts = [(n, m) for n, m in enumerate(messages) if n >= first and m.get("content")]
    places, at = [], len(literals[0])
    for (number, message), following in zip(texts, literals[1:], strict=True):
        bodies = _bodies(message["content"])
        body = next((b for b in bodies if text.startswith(b + following, at)), None)
        if body is None:
            return None
        end, word = at + len(body), at + len(body) - len(body.lstrip())
        places.append(Place(at, word, end, str(message["role"]), number))
        at = end + len(following)
    return places if at == len(text) else None


def _bodies(text: str) -> list[str]:
    """A message's text as a template may write it."""
    stripped = (text.strip(), text.rstrip(), text.lstrip())
    return [text, *stripped, text.strip("\n"), text.rstrip("\n"), text.lstrip("\n")]


def spans_of(starts: Sequence[int], places: Sequence[Place], last: int) -> list[Span]:
    """The tokens of each message's text and, as role template, of what stands before and after.

    A token that holds a part of a text and a part of what the template writes is the text's.
    ``starts`` are the characters that tokens begin at; ``last`` follows the end.
    """
    spans: list[Span] = []
    done = 0
    for place in places:
        first = max(done, _first_token(starts, place))
        end = max(first, bisect_left(starts, place.end))
        spans.append(Span(done, first, "template", place.message))
        spans.append(Span(first, end, place.role, place.message))
        done = end
    spans.append(Span(done, len(starts), "template", last))
    return [span for span in spans if span.end > span.start]


def _first_token(starts: Sequence[int], place: Place) -> int:
    """The token that the text's first word begins in, or one of the white space before it."""
    at = bisect_left(starts, place.word)
    if at and (at == len(starts) or starts[at] > place.word):
        at -= 1
    return min(at, bisect_left(starts, place.start))
