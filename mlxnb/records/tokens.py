"""Token ids as bytes, so that comparing and hashing long prompts runs at memory speed."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

WIDTH = 4
"""Bytes a token takes in a packed string (``array('I')``)."""


def pack(tokens: Iterable[int]) -> bytes:
    """Token ids as ``WIDTH`` bytes each."""
    return array("I", tokens).tobytes()


def unpack(packed: bytes) -> list[int]:
    """The ids of a packed string."""
    return array("I", packed).tolist()


def common_prefix(a: bytes, b: bytes) -> int:
    """Number of leading tokens that two packed strings share.

    Compares ever longer windows, then bisects the first that differs: O(length) in memcmp.
    """
    end = min(len(a), len(b))
    low, window = 0, 64 * WIDTH
    while low < end and a[low : low + window] == b[low : low + window]:
        low += window
        window *= 2
    if low >= end:
        return end // WIDTH
    high = min(low + window, end)
    if a[low:high] == b[low:high]:
        return high // WIDTH
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low // WIDTH
