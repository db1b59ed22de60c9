"""A bounded memory of what was generated, for clients that send whole conversations."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

from mlxnb.sessions.messages import Message
from mlxnb.sessions.serving.track import Track


class Replay:
    """Tracks by the conversations that they belong to, as clients send them; oldest use goes first.

    What is found is exactly what was generated after these very messages: the digest covers the
    model's content, the salt, the tools and every message up to the answer.

    Parameters
    ----------
    limit
        Bytes of tokens that are kept.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.nbytes = 0
        self._lock = threading.Lock()
        self._tracks: OrderedDict[bytes, Track] = OrderedDict()
        self._names: dict[int, bytes] = {}  # by the identity of tracks that are held here

    def __len__(self) -> int:
        return len(self._tracks)

    def find(self, scope: bytes, messages: Sequence[Message]) -> Track | None:
        """The track of the longest beginning of a conversation that ends in a known answer."""
        digests = _digests(scope, messages)
        with self._lock:
            for digest, message in zip(reversed(digests), reversed(messages), strict=True):
                if message["role"] == "assistant" and digest in self._tracks:
                    self._touch(self._tracks[digest])
                    return self._tracks[digest]
        return None

    def add(self, scope: bytes, messages: Sequence[Message], answer: Message, track: Track) -> None:
        """Remember an answer to these messages, as the client is going to send it."""
        digest = _digests(scope, [*messages, answer])[-1]
        with self._lock:
            self._forget(digest)
            self._tracks[digest] = track
            self._names[id(track)] = digest
            self.nbytes += track.nbytes
            self._touch(track)
            while self.nbytes > self.limit and self._tracks:
                self._forget(next(iter(self._tracks)))

    def _touch(self, track: Track) -> None:
        """Make a track and those before it the newest; it goes before those that it holds."""
        for part in reversed(track.chain()):
            if id(part) in self._names:
                self._tracks.move_to_end(self._names[id(part)])

    def _forget(self, digest: bytes) -> None:
        track = self._tracks.pop(digest, None)
        if track is not None:
            del self._names[id(track)]
            self.nbytes -= track.nbytes


def scope_of(key: str, salt: str, tools: Sequence[str]) -> bytes:
    """Whose answers may be found: of one model's content, one salt and one set of tools."""
    return blake2b(json.dumps([key, salt, *tools]).encode(), digest_size=16).digest()


def _digests(scope: bytes, messages: Sequence[Message]) -> list[bytes]:
    """Of each message with all before it."""
    digests, last = [], scope
    for message in messages:
        packed = json.dumps(_canonical(message), sort_keys=True, default=str).encode()
        last = blake2b(last + packed, digest_size=16).digest()
        digests.append(last)
    return digests


def _canonical(message: Message) -> Message:
    """The message without what clients lose on the way: white space around an answer."""
    if message["role"] != "assistant":
        return message
    kept = {name: value for name, value in message.items() if value}
    for name in ("content", "reasoning_content"):
        if isinstance(kept.get(name), str):
            kept[name] = kept[name].strip()
    return {name: value for name, value in kept.items() if value}
