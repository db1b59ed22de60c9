"""Signatures of thinking blocks: a digest, or the reasoning itself where it is not shown.

Nothing is refused because of one (C31). A block without text whose signature carries the
reasoning gives it back, so that it can be replayed by whichever host gets it.
"""

from __future__ import annotations

import base64
import hashlib
import zlib

_DIGEST, _CARRIED = "mlxnb.d1.", "mlxnb.z1."
_LONGEST = 2**24
"""Characters and bytes of reasoning that a signature is believed to carry."""


def sign(thinking: str, *, carry: bool) -> str:
    """The signature of a block; with ``carry`` its text can be had from it."""
    text = thinking.encode()
    if carry:
        return _CARRIED + base64.b64encode(zlib.compress(text)).decode()
    return _DIGEST + base64.b64encode(hashlib.blake2b(text, digest_size=24).digest()).decode()


def reasoning_of(thinking: str, signature: str | None) -> str:
    """The reasoning of a block that a client sends back."""
    if thinking or signature is None or not signature.startswith(_CARRIED):
        return thinking
    try:
        packed = base64.b64decode(signature[len(_CARRIED) :], validate=True)
        return zlib.decompressobj().decompress(packed, _LONGEST).decode()
    except (ValueError, zlib.error):  # not ours after all, or cut off
        return thinking
