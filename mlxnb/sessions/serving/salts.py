"""Who shares KV with whom, and what keys that clients name stand for."""

from __future__ import annotations

import hmac
import logging
import secrets
import threading
from hashlib import blake2b

log = logging.getLogger(__name__)

SHORTEST_KEY = 8
"""Characters that a ``prompt_cache_key`` has at least."""
MAX_WARNED = 1000
"""Keys that a warning is remembered for."""


def salt_of(caller: str, cache_salt: str) -> str:
    """The salt of a caller's requests: ``cache_salt`` can narrow sharing and never widen it.

    The owner of the process, who has no name, shares with the process's own sessions.
    """
    if not caller:
        return cache_salt
    packed = caller.encode()
    parts = len(packed).to_bytes(8, "little") + packed + cache_salt.encode()
    return blake2b(parts, digest_size=16).hexdigest()


def owner_of(caller: str) -> str:
    """A caller as the store knows them."""
    return blake2b(caller.encode(), digest_size=16, person=b"mlxnb-owner").hexdigest()


class Keys:
    """What each ``prompt_cache_key`` is remembered as: its HMAC under a secret of this process."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._warned: set[str] = set()

    def name(self, key: str | None, salt: str) -> str | None:
        """The name of an eligible key; None without one. Too short a key is warned about once."""
        if key is None:
            return None
        digest = hmac.new(self._secret, f"{salt}\0{key}".encode(), "blake2b").hexdigest()[:32]
        if len(key) >= SHORTEST_KEY:
            return digest
        with self._lock:
            new = digest not in self._warned and len(self._warned) < MAX_WARNED
            if new:
                self._warned.add(digest)
        if new:
            log.warning(
                "a prompt_cache_key of %d characters is ignored: it has %d at least",
                len(key),
                SHORTEST_KEY,
            )
        return None
