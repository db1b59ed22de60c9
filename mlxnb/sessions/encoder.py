"""Text to token ids, and from which character on each token stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_PROBE = "One <two>\n\n three  é漢\U0001f600"
_SPACE = "Ġ"
"""A space in byte-level vocabularies."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids; ``starts[i]`` is the character that token ``i`` begins at, None if unknown."""

    tokens: list[int]
    starts: list[int] | None


class Encoder:
    """Encodes text, taking strings like ``<|im_end|>`` for special tokens unless marks part them.

    Where the tokenizer tells characters of tokens, a mark is encoded with the text and its tokens
    are left out, so that what a tokenizer does at the beginning of a text (many SentencePiece
    models put a space there) is not done anew behind each mark. Elsewhere the text is encoded in
    pieces.

    Parameters
    ----------
    tokenizer
        A transformers tokenizer, or mlx-lm's wrapper of one.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._backend = backend if backend is not None and self._agrees(backend) else None
        self._trims = self._backend is not None and _trims(self._backend)

    def encode(self, text: str, mark: str, continues: bool = False) -> Encoded:
        """Token ids of a text without its marks.

        Parameters
        ----------
        mark
            One character.
        continues
            Something stands before the text, so that nothing is done as at a beginning.
        """
        if self._backend is not None:
            whole = self._whole(mark + text if continues else text, mark, int(continues))
            if whole is not None:
                return whole
        return Encoded([t for piece in text.split(mark) for t in self._encode(piece)], None)

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False)) if text else []

    def _whole(self, text: str, mark: str, before: int) -> Encoded | None:
        """All at once; None where a mark and its neighbour are one token."""
        assert self._backend is not None
        encoding = self._backend.encode(text, add_special_tokens=False)
        tokens, starts = [], []
        for token, name, (start, end) in zip(
            encoding.ids, encoding.tokens, encoding.offsets, strict=True
        ):
            covered = text[start:end]
            if mark not in covered:
                tokens.append(token)
                starts.append(max(0, start - before - self._trimmed(name, covered)))
            elif covered.strip(mark):
                return None
        return Encoded(tokens, starts)

    def _trimmed(self, name: str, covered: str) -> int:
        """How many spaces a token begins with that its offsets leave out."""
        if not self._trims or covered.startswith(" "):
            return 0
        return len(name) - len(name.lstrip(_SPACE))

    def _agrees(self, backend: Any) -> bool:
        """Whether the tokenizer does nothing to a text beside what its backend does."""
        ids: list[int] = backend.encode(_PROBE, add_special_tokens=False).ids
        return ids == self._encode(_PROBE)


def _trims(backend: Any) -> bool:
    """Whether offsets leave spaces out (``trim_offsets`` of byte-level post-processors)."""
    encoding = backend.encode("a b", add_special_tokens=False)
    pairs = zip(encoding.tokens, encoding.offsets, strict=True)
    return any(name.startswith(_SPACE) and start != 1 for name, (start, _) in pairs)
