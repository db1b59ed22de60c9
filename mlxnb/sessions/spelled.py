"""A token that is a part of a character, in words."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_PART = re.compile(r"<0x([0-9A-F]{2})>")
_MOST = 12
"""Tokens in which characters come to their end that begin in each other's last ones."""
REST = "‥"
"""Stands for a token whose bytes belong to the character before it."""
LOST = "\ufffd"
"""What bytes that are no whole character are decoded to."""


def spelled(tokenizer: Any, token: int) -> str | None:
    """A token's bytes, those that are no whole character as ``<0xE2>``.

    Returns
    -------
    str or None
        None where the vocabulary does not say them: it is neither of bytes (GPT-2's alphabet) nor
        with bytes to fall back on (SentencePiece's).
    """
    named = getattr(tokenizer, "convert_ids_to_tokens", None)
    name = None if named is None else named(token)
    if not isinstance(name, str):
        return None
    if _BYTE.fullmatch(name):
        return name
    values = [_alphabet().get(character) for character in name]
    known = bytes(value for value in values if value is not None)
    if len(known) < len(values):
        return None
    return known.decode("utf-8", _ERRORS)


def whole(texts: Sequence[str]) -> list[str]:
    """Texts of tokens in their order, to be read: characters whole where their last part is there.

    The token with the first byte has the character, those with the others ``REST``.
    """
    read, at = list[str](), 0
    while at < len(texts):
        text, end = _read(texts, at)
        read += [text, *[REST] * (end - at - 1)]
        at = end
    return read


def _read(texts: Sequence[str], at: int) -> tuple[str, int]:
    """What stands at a token, and where the next text begins."""
    known, end = b"", at
    while end < min(len(texts), at + _MOST) and _PART.search(texts[end]):
        known, end = known + _bytes(texts[end]), end + 1
        with suppress(UnicodeDecodeError):
            return known.decode(), end
    return texts[at], at + 1


def _bytes(text: str) -> bytes:
    parts = _PART.split(text)
    return b"".join(bytes.fromhex(p) if n % 2 else p.encode() for n, p in enumerate(parts))


def _named(error: UnicodeError) -> tuple[str, int]:
    """Bytes that cannot be decoded, by their names."""
    assert isinstance(error, UnicodeDecodeError), "bytes are decoded here"
    lost = error.object[error.start : error.end]
    return "".join(f"<0x{value:02X}>" for value in lost), error.end


_ERRORS = "mlxnb-named"
codecs.register_error(_ERRORS, _named)


@cache
def _alphabet() -> dict[str, int]:
    """The bytes by the characters that stand for them in GPT-2's vocabulary and its kin."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {character: value for value, character in bytes_to_unicode().items()}
