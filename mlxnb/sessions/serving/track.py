"""The tokens of a conversation as they came: what stood before each answer, and what was generated.

Text does not map back to tokens, so a conversation that goes on must begin with these and not
with its messages encoded anew.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b

from mlxnb.records.turn import Span
from mlxnb.sessions.history import Line


@dataclass(frozen=True, slots=True, eq=False)
class Track:
    """One answer with all before it; it never changes, and a longer one holds the shorter.

    Attributes
    ----------
    before
        The track that the answer's prompt begins with.
    suffix, spans
        The rest of the prompt, and whose tokens these are, counted from its own beginning.
    output
        The generated tokens that stay, the end token left out.
    answer
        The answer's number among the messages.
    written
        Digest of what the template wrote before the answer and after the one before it.
    opens, reasons
        The template had opened the reasoning; the answer begins with reasoning.
    length
        Tokens in all.
    """

    before: Track | None
    suffix: array[int]
    spans: tuple[Span, ...]
    output: array[int]
    answer: int
    written: bytes
    opens: bool
    reasons: bool
    length: int

    @property
    def nbytes(self) -> int:
        """Bytes of its own, what it shares with shorter ones left out."""
        return 4 * (len(self.suffix) + len(self.output)) + 64 * len(self.spans) + 256

    def chain(self) -> list[Track]:
        """All tracks that this one is made of, the shortest first."""
        return list(self._upwards())[::-1]

    def _upwards(self) -> Iterator[Track]:
        track: Track | None = self
        while track is not None:
            yield track
            track = track.before

    def line(self) -> Line:
        """All tokens and spans."""
        line = Line()
        for track in self.chain():
            at = len(line.tokens)
            line.tokens.extend(track.suffix)
            line.spans.extend(replace(s, start=s.start + at, end=s.end + at) for s in track.spans)
            end = len(line.tokens)
            line.tokens.extend(track.output)
            if track.spans and track.output:
                line.spans.append(Span(end, len(line.tokens), "assistant", track.answer))
        return line


def written_digest(text: str, think_start: str | None) -> bytes:
    """Digest of what a template writes before an answer.

    White space at its end and a tag that opens the reasoning do not count: templates write them
    before the answer that is to come and before earlier ones in different places.
    """
    text = text.rstrip()
    if think_start and text.endswith(think_start):
        text = text[: -len(think_start)].rstrip()
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
