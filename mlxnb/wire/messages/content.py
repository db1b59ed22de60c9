"""The content blocks of one answer, as events while they grow and as a list in the end."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json

from mlxnb.records.turn import ToolCall
from mlxnb.text.blank import BlankHold
from mlxnb.wire import Event
from mlxnb.wire.ids import toolu
from mlxnb.wire.messages.signature import sign

Block = dict[str, Any]


class Content:
    """Blocks with one running index, one of them open at most.

    Blank text is held until real text follows; a call drops it, and so does the end. What a block
    says in events is what it says in `blocks`.

    Parameters
    ----------
    shows_thinking
        Reasoning is sent; else it goes into the signature of an empty block.

    Attributes
    ----------
    blocks
        Those that are closed, as a plain answer has them.
    """

    def __init__(self, *, shows_thinking: bool) -> None:
        self.blocks: list[Block] = []
        self._shows_thinking = shows_thinking
        self._open: Block | None = None
        self._parts: list[str] = []
        self._blank = BlankHold()

    @property
    def has_text(self) -> bool:
        """Whether there is a block of text, be it an empty one."""
        return any(block["type"] == "text" for block in [*self.blocks, self._open] if block)

    @property
    def has_calls(self) -> bool:
        """Whether a call has been opened."""
        return any(block["type"] == "tool_use" for block in [*self.blocks, self._open] if block)

    # --- what an answer is made of ------------------------------------------------------------

    def text(self, text: str) -> list[Event]:
        """Some text."""
        free = self._blank.feed(text)
        return self._grow("text", free) if free else []

    def held_text(self) -> list[Event]:
        """Text before which the answer was stopped: it has a block, even an empty one."""
        held = self._blank.flush()
        return self._grow("text", held) if held or not self.has_text else []

    def reasoning(self, text: str) -> list[Event]:
        """Some reasoning."""
        self._blank.drop()
        return self._grow("thinking", text)

    def call_begins(self, call: ToolCall) -> list[Event]:
        """A call whose arguments follow in pieces."""
        self._blank.drop()
        block = {"type": "tool_use", "id": toolu(call.id), "name": call.name, "input": {}}
        return self._begin(block)

    def arguments(self, text: str) -> list[Event]:
        """A piece of the open call's arguments."""
        self._parts.append(text)
        return [self._delta({"type": "input_json_delta", "partial_json": text})]

    def call(self, call: ToolCall) -> list[Event]:
        """A whole call, or the end of the one that is open."""
        events = [] if self._is_open(call) else self.call_begins(call)
        if not self._parts:
            events += self.arguments(json.dumps(call.arguments, ensure_ascii=False))
        return events + self.close()

    def close(self) -> list[Event]:
        """Close the open block, whether it is whole or not."""
        block, self._open = self._open, None
        if block is None:
            return []
        index, said = len(self.blocks), "".join(self._parts)
        events: list[Event] = []
        if block["type"] == "text":
            block["text"] = said
        elif block["type"] == "tool_use":
            block["input"] = _arguments(said)
        else:
            events = [self._signed(block, said)]
        self.blocks.append(block)
        return [*events, ("content_block_stop", {"type": "content_block_stop", "index": index})]

    # --- blocks -------------------------------------------------------------------------------

    def _grow(self, kind: str, text: str) -> list[Event]:
        """More of a block of this kind, which is opened if none is."""
        events: list[Event] = []
        if self._open is None or self._open["type"] != kind:
            empty = {"thinking": "", "signature": ""} if kind == "thinking" else {"text": ""}
            events = self._begin({"type": kind, **empty})
        self._parts.append(text)
        if text and (kind == "text" or self._shows_thinking):
            events.append(self._delta({"type": f"{kind}_delta", kind: text}))
        return events

    def _begin(self, block: Block) -> list[Event]:
        events = self.close()
        self._open, self._parts = block, []
        start = {"index": len(self.blocks), "content_block": dict(block)}
        return [*events, ("content_block_start", {"type": "content_block_start", **start})]

    def _delta(self, delta: dict[str, Any]) -> Event:
        event = {"type": "content_block_delta", "index": len(self.blocks), "delta": delta}
        return "content_block_delta", event

    def _signed(self, block: Block, thought: str) -> Event:
        block["thinking"] = thought if self._shows_thinking else ""
        block["signature"] = sign(thought, carry=not self._shows_thinking)
        delta = {"type": "signature_delta", "signature": block["signature"]}
        event = {"type": "content_block_delta", "index": len(self.blocks), "delta": delta}
        return "content_block_delta", event

    def _is_open(self, call: ToolCall) -> bool:
        return self._open is not None and self._open.get("id") == toolu(call.id)


def _arguments(said: str) -> dict[str, Any]:
    """What was said of a call's arguments; where that was cut off, as far as it can be read."""
    try:
        read = from_json(said, allow_partial=True) if said else {}
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}
