"""What has gone out on a stream, so far as its right end depends on it, if its host is lost.

Events are kept as they went out, and read when a host is lost: those that close an item, and all
since the last of these.
"""

from __future__ import annotations

import json
from typing import Any

from mlxnb.wire import Event
from mlxnb.wire.errors import WireError, openai_body
from mlxnb.wire.sse import encode

END = b"\n\n"
OPENS = {b"response.output_item.added", b"content_block_start"}
CLOSES = {b"response.output_item.done", b"content_block_stop"}
LAST = {b"response.completed", b"response.incomplete", b"response.failed"}
LAST |= {b"message_stop", b"error"}
SILENCE = {b"response.in_progress", b"ping"}


class Trail:
    """Follows the bytes of one event stream.

    Parameters
    ----------
    path
        Of the request, which tells the protocol.

    Attributes
    ----------
    ended
        Its terminal event has gone out.
    """

    def __init__(self, path: str) -> None:
        self.ended = False
        self._path = path
        self._is_chat = "/v1/chat/" in path
        self._rest = b""
        self._last = b""
        self._kept: list[bytes] = []
        self._opened = 0

    def feed(self, chunk: bytes) -> None:
        """Take note of what goes out."""
        *events, self._rest = (self._rest + chunk).split(END)
        for event in events:
            self._see(event)

    @property
    def between(self) -> bool:
        """Whether another event may follow: the last one is whole."""
        return not self._rest

    def broken_off(self, error: WireError, request_id: str) -> bytes:
        """The events that end the stream with an error, in its own protocol."""
        if self._is_chat:
            return f"data: {json.dumps(openai_body(error))}\n\n".encode()
        return b"".join(encode(*event) for event in self._ending(error, request_id))

    def _see(self, event: bytes) -> None:
        self._last = event
        name = event.partition(b"\n")[0].removeprefix(b"event: ")
        self.ended |= name in LAST or event == b"data: [DONE]"
        if name in SILENCE or self._is_chat:
            return
        if name in OPENS:
            self._opened = len(self._kept)
        elif name in CLOSES:
            del self._kept[self._opened :]
        self._kept.append(event)

    def _ending(self, error: WireError, request_id: str) -> list[Event]:
        # a notebook server that never loses a host never needs what these import
        from mlxnb.wire.messages import broken as messages
        from mlxnb.wire.responses import broken as responses

        told = [data for event in self._kept if (data := _data(event))]
        if "/v1/messages" in self._path:
            return messages.broken_off(told, error, request_id)
        number = _data(self._last).get("sequence_number", -1) + 1
        return responses.broken_off(told, number, error)


def _data(event: bytes) -> dict[str, Any]:
    lines = (line for line in event.split(b"\n") if line.startswith(b"data:"))
    try:
        found = json.loads(next(lines, b"data: null")[5:])
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}
