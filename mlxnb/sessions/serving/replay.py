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
    """Tracks by the conversations that they belong to; the one used least recently goes first.

    What is found is exactly what was generated after these very messages: a digest covers the
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

    def find(self, digests: Sequence[bytes]) -> Track | None:
        """The track of the longest beginning of a conversation that ends in a known answer.

        Parameters
        ----------
        digests
            Of its messages, each with all before it; see `digests_of`.
        """
        with self._lock:
            for digest in reversed(digests):
                if digest in self._tracks:
                    self._touch(self._tracks[digest])
                    return self._tracks[digest]
        return None

    def add(self, digest: bytes, track: Track) -> None:
        """Remember a conversation up to an answer, by the answer's digest."""
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


def digests_of(before: bytes, messages: Sequence[Message]) -> list[bytes]:
    """Of each message with all before it, as clients send them.

    Parameters
    ----------
    before
        Digest of what stands before the messages: a scope, or the message before them.
    """
    digests = []
    for message in messages:
        packed = json.dumps(_canonical(message), sort_keys=True, default=str).encode()
        before = blake2b(before + packed, digest_size=16).digest()
        digests.append(before)
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
