"""Output items while they grow: the events that open, extend and close each kind."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Literal

from mlxnb.records.turn import ToolCall
from mlxnb.wire import ids
from mlxnb.wire.responses.free_text import FreeText

Payload = dict[str, Any]
Status = Literal["in_progress", "completed", "incomplete"]


class OpenItem:
    """One item of the output, from ``output_item.added`` to ``output_item.done``.

    Payloads come without ``sequence_number``, which the machine counts.

    Parameters
    ----------
    response
        The response's id.
    index
        Its place in the output.
    """

    prefix: ClassVar[str]

    def __init__(self, response: str, index: int) -> None:
        self.id = ids.item_id(self.prefix, response, index)
        self.index = index
        self._parts: list[str] = []

    def opened(self) -> list[Payload]:
        """It begins, empty."""
        return [self._item_event("added", "in_progress"), *self._part_opened()]

    def extended(self, text: str) -> list[Payload]:
        """More of it."""
        self._parts.append(text)
        return [self._delta(text)]

    def closed(self, status: Status) -> list[Payload]:
        """It has ended."""
        return [*self._part_closed(status), self._item_event("done", status)]

    def item(self, status: Status) -> Payload:
        """It as it stands."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        """All that it was extended by."""
        return "".join(self._parts)

    def _part_opened(self) -> list[Payload]:
        return []

    def _delta(self, text: str) -> Payload:
        raise NotImplementedError

    def _part_closed(self, status: Status) -> list[Payload]:
        raise NotImplementedError

    def _event(self, kind: str, **fields: Any) -> Payload:
        return {
            "type": f"response.{kind}",
            "item_id": self.id,
            "output_index": self.index,
            **fields,
        }

    def _item_event(self, kind: str, status: Status) -> Payload:
        return {
            "type": f"response.output_item.{kind}",
            "output_index": self.index,
            "item": self.item(status),
        }


class ReasoningOutput(OpenItem):
    """What the model thought, as the one part of a summary."""

    prefix = "rs"

    def item(self, status: Status) -> Payload:
        """It as it stands."""
        summary = [] if status == "in_progress" else [self._part(self.text)]
        return {"type": "reasoning", "id": self.id, "summary": summary, "status": status}

    def _part_opened(self) -> list[Payload]:
        part = self._part("")
        return [self._event("reasoning_summary_part.added", summary_index=0, part=part)]

    def _delta(self, text: str) -> Payload:
        return self._event("reasoning_summary_text.delta", summary_index=0, delta=text)

    def _part_closed(self, status: Status) -> list[Payload]:
        cut = {"status": status} if status == "incomplete" else {}
        part = self._part(self.text)
        return [
            self._event("reasoning_summary_text.done", summary_index=0, text=self.text),
            self._event("reasoning_summary_part.done", summary_index=0, part=part, **cut),
        ]

    @staticmethod
    def _part(text: str) -> Payload:
        return {"type": "summary_text", "text": text}


class MessageOutput(OpenItem):
    """Visible text, as the one part of a message."""

    prefix = "msg"

    def item(self, status: Status) -> Payload:
        """It as it stands."""
        content = [] if status == "in_progress" else [self._part(self.text)]
        return {
            "type": "message",
            "id": self.id,
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def _part_opened(self) -> list[Payload]:
        return [self._event("content_part.added", content_index=0, part=self._part(""))]

    def _delta(self, text: str) -> Payload:
        return self._event("output_text.delta", content_index=0, delta=text, logprobs=[])

    def _part_closed(self, status: Status) -> list[Payload]:
        text = self.text
        return [
            self._event("output_text.done", content_index=0, text=text, logprobs=[]),
            self._event("content_part.done", content_index=0, part=self._part(text)),
        ]

    @staticmethod
    def _part(text: str) -> Payload:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


class CallOutput(OpenItem):
    """A call of a function: its arguments' JSON as text."""

    prefix = "fc"

    def __init__(self, response: str, index: int, call: ToolCall) -> None:
        super().__init__(response, index)
        self.call_id = call.id
        self.name = call.name

    def argued(self, text: str) -> list[Payload]:
        """More of the JSON that the model writes."""
        return self.extended(text)

    def rest(self, call: ToolCall) -> list[Payload]:
        """What of the whole call was not sent in pieces."""
        written = "" if self._parts else self.written(call)
        return self.extended(written) if written else []

    def written(self, call: ToolCall) -> str:
        """A whole call's text."""
        return json.dumps(call.arguments, ensure_ascii=False)

    def item(self, status: Status) -> Payload:
        """It as it stands."""
        return {
            "type": "function_call",
            "id": self.id,
            "call_id": self.call_id,
            "name": self.name,
            "arguments": self.text,
            "status": status,
        }

    def _delta(self, text: str) -> Payload:
        return self._event("function_call_arguments.delta", delta=text)

    def _part_closed(self, status: Status) -> list[Payload]:
        return [self._event("function_call_arguments.done", arguments=self.text)]


class CustomCallOutput(CallOutput):
    """A call of a custom tool: its input as text, taken out of the JSON around it."""

    prefix = "ctc"

    def __init__(self, response: str, index: int, call: ToolCall) -> None:
        super().__init__(response, index, call)
        self._reader = FreeText()

    def argued(self, text: str) -> list[Payload]:
        """More of the JSON that the model writes."""
        said = self._reader.feed(text)
        return self.extended(said) if said else []

    def rest(self, call: ToolCall) -> list[Payload]:
        """What of the whole call was not sent in pieces."""
        written = self.written(call)
        rest = written[len(self.text) :] if written.startswith(self.text) else ""
        return self.extended(rest) if rest else []

    def written(self, call: ToolCall) -> str:
        """The string that the model filled in; what else it wrote, as JSON."""
        given = call.arguments.get("input")
        return given if isinstance(given, str) else super().written(call)

    def item(self, status: Status) -> Payload:
        """It as it stands."""
        return {
            "type": "custom_tool_call",
            "id": self.id,
            "call_id": self.call_id,
            "name": self.name,
            "input": self.text,
            "status": status,
        }

    def _delta(self, text: str) -> Payload:
        return self._event("custom_tool_call_input.delta", delta=text)

    def _part_closed(self, status: Status) -> list[Payload]:
        return [self._event("custom_tool_call_input.done", input=self.text)]
