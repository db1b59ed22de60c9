"""What has gone out on a stream, so far as its right end depends on it, if its host is lost.

Only whole events are looked into, and only those that open and close things; text goes by.
"""

from __future__ import annotations

import json
from typing import Any

from mlxnb.wire.errors import WireError, anthropic_body, openai_body
from mlxnb.wire.sse import encode

END = b"\n\n"
OPENS = {"response.created", "message_start", "content_block_start"}
CLOSES = {"content_block_stop"}
LAST = {"response.completed", "response.incomplete", "response.failed", "message_stop", "error"}


class Trail:
    """Follows the bytes of one event stream.

    Attributes
    ----------
    ended
        Its terminal event has gone out.
    """

    def __init__(self) -> None:
        self.ended = False
        self._rest = b""
        self._last = b""
        self._response: dict[str, Any] | None = None
        self._is_messages = False
        self._open_block: int | None = None

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
        if self._is_messages:
            return self._close_block() + encode("error", anthropic_body(error, request_id))
        if self._response is not None:
            return self._fail(self._response, error)
        return f"data: {json.dumps(openai_body(error))}\n\n".encode()

    def _see(self, event: bytes) -> None:
        self._last = event
        name = event.partition(b"\n")[0].removeprefix(b"event: ").decode("utf-8", "replace")
        self.ended |= name in LAST or event == b"data: [DONE]"
        if name not in OPENS | CLOSES:
            return
        data = _data(event)
        if name == "response.created":
            self._response = data.get("response")
        elif name == "message_start":
            self._is_messages = True
        else:
            self._open_block = data.get("index") if name in OPENS else None

    def _close_block(self) -> bytes:
        if self._open_block is None:
            return b""
        stop = {"type": "content_block_stop", "index": self._open_block}
        return encode("content_block_stop", stop)

    def _fail(self, response: dict[str, Any], error: WireError) -> bytes:
        """W57: one ``error`` that is flat and nested, then ``response.failed``."""
        number = _data(self._last).get("sequence_number", -1) + 1
        told = openai_body(error)
        flat = {"code": error.code, "message": error.message, "param": error.param}
        failure = {"code": "server_error", "message": error.message}
        failed = response | {"status": "failed", "error": failure, "incomplete_details": None}
        first = {"type": "error", "sequence_number": number, **flat, **told}
        last = {"type": "response.failed", "sequence_number": number + 1, "response": failed}
        return encode("error", first) + encode("response.failed", last)


def _data(event: bytes) -> dict[str, Any]:
    lines = (line for line in event.split(b"\n") if line.startswith(b"data:"))
    try:
        found = json.loads(next(lines, b"data: null")[5:])
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}
