"""What the disk tier keeps: a run of tokens with the bytes that were computed for it."""

from __future__ import annotations

from dataclasses import dataclass

from xxhash import xxh3_128

Payload = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Entry:
    """A link of a chain: what was computed for some tokens, after all those before them.

    Attributes
    ----------
    id
        Hex; a hash of the chain of tokens to the end of this entry, unique in its namespace.
    parent
        The entry before it in its chain; None for the first.
    kind
        ``kv`` or ``state``.
    start, end
        Positions of its first token, and after its last.
    tokens
        Its tokens, packed; whoever reads it compares them with those they look for.
    data
        The bytes, contiguous. Until they are written they are not copied, and must not change.
    """

    id: str
    parent: str | None
    kind: str
    start: int
    end: int
    tokens: bytes
    data: Payload

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return memoryview(self.data).nbytes

    def checksum(self) -> bytes:
        """16 bytes by which tokens and data are known to be those that were written."""
        return checksum(self.tokens, self.data)


def checksum(tokens: bytes, data: Payload) -> bytes:
    """The XXH3 hash of tokens and data, 128 bits."""
    state = xxh3_128(tokens)
    state.update(data)
    return state.digest()
