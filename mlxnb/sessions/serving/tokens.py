"""Tracks as bytes: what a stored response adds to the one before it, and no more."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

from mlxnb.records.turn import Span
from mlxnb.sessions.serving.track import Track

WIDTH = 4


def packed(track: Track | None, previous: Track | None) -> bytes:
    """A track without what it shares with the previous response's; nothing where there is none.

    A line of JSON that describes its parts, then their tokens, four bytes each, little-endian on
    the machines that MLX runs on.
    """
    if track is None:
        return b""
    shared = {id(part) for part in previous.chain()} if previous is not None else set()
    parts = [part for part in track.chain() if id(part) not in shared]
    base = parts[0].before
    head = {
        "base": None if base is None else base.answer,
        "parts": [_described(part) for part in parts],
    }
    tokens = b"".join(part.suffix.tobytes() + part.output.tobytes() for part in parts)
    return json.dumps(head).encode() + b"\n" + tokens


def unpacked(data: bytes, previous: Track | None) -> Track | None:
    """The track of a stored response; None: its tokens are not known."""
    if not data:
        return None
    line, _, tokens = data.partition(b"\n")
    head: dict[str, Any] = json.loads(line)
    track = None
    if head["base"] is not None:
        chain = previous.chain() if previous is not None else []
        track = next((part for part in chain if part.answer == head["base"]), None)
        if track is None:
            return None
    return _joined(track, head["parts"], _Tokens(tokens))


def _described(part: Track) -> dict[str, Any]:
    return {
        "answer": part.answer,
        "written": part.written.hex(),
        "opens": part.opens,
        "reasons": part.reasons,
        "suffix": len(part.suffix),
        "output": len(part.output),
        "spans": [astuple(span) for span in part.spans],
    }


def _joined(track: Track | None, parts: Sequence[dict[str, Any]], tokens: _Tokens) -> Track | None:
    for part in parts:
        suffix, output = tokens.take(part["suffix"]), tokens.take(part["output"])
        track = Track(
            before=track,
            suffix=suffix,
            spans=tuple(Span(*span) for span in part["spans"]),
            output=output,
            answer=part["answer"],
            written=bytes.fromhex(part["written"]),
            opens=part["opens"],
            reasons=part["reasons"],
            length=len(suffix) + len(output) + (0 if track is None else track.length),
        )
    return track


@dataclass(slots=True)
class _Tokens:
    """Packed tokens, read from their beginning on."""

    packed: bytes
    at: int = 0

    def take(self, count: int) -> array[int]:
        """The next tokens."""
        end = self.at + WIDTH * count
        tokens = array("I", self.packed[self.at : end])
        self.at = end
        return tokens
