"""What is kept of a request beside its response, and how it is listed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from mlxnb.wire.errors import invalid
from mlxnb.wire.responses.content import Content, OtherPart, text_of
from mlxnb.wire.responses.items import (
    AnyItem,
    CallOutputItem,
    CustomCallItem,
    FunctionCallItem,
    MessageItem,
    ReasoningItem,
    ToolsItem,
)
from mlxnb.wire.responses.request import ResponsesRequest
from mlxnb.wire.responses.tools import OtherTool

MAX_PAGE = 100


def input_items(request: ResponsesRequest, response: str) -> list[dict[str, Any]]:
    """The request's own items, each whole and with an id."""
    rest = response.partition("_")[2]
    return [
        {**_whole(item), "id": item.id or f"{_PREFIXES[type(item)]}_{rest}_in{number}"}
        for number, item in enumerate(request.items)
    ]


def page(
    items: Sequence[dict[str, Any]],
    *,
    limit: Any = 20,
    order: Any = "desc",
    after: str | None = None,
) -> dict[str, Any]:
    """The body of ``GET v1/responses/{id}/input_items``.

    Raises
    ------
    WireError
        400: a query parameter that cannot be.
    """
    count = int(limit) if str(limit).isascii() and str(limit).isdigit() else 0
    if not 1 <= count <= MAX_PAGE:
        raise invalid(f"limit is an integer in [1, {MAX_PAGE}]", "limit")
    if order not in ("asc", "desc"):
        raise invalid("order is 'asc' or 'desc'", "order")
    listed = list(items) if order == "asc" else list(reversed(items))
    if after is not None:
        listed = listed[_place(listed, after) + 1 :]
    shown = listed[:count]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else "",
        "last_id": shown[-1]["id"] if shown else "",
        "has_more": len(listed) > len(shown),
    }


def deleted(response: str) -> dict[str, Any]:
    """The body of ``DELETE v1/responses/{id}``."""
    return {"id": response, "object": "response", "deleted": True}


def counted(tokens: int) -> dict[str, Any]:
    """The body of ``POST v1/responses/input_tokens``."""
    return {"object": "response.input_tokens", "input_tokens": tokens}


def _place(items: Sequence[dict[str, Any]], item: str) -> int:
    for number, there in enumerate(items):
        if there["id"] == item:
            return number
    raise invalid(f"after names no item of this response: {item[:80]!r}", "after")


_PREFIXES: dict[type, str] = {
    MessageItem: "msg",
    ReasoningItem: "rs",
    FunctionCallItem: "fc",
    CustomCallItem: "ctc",
    CallOutputItem: "fco",
    ToolsItem: "at",
}


def _whole(item: AnyItem) -> dict[str, Any]:
    """The item with the keys that a client may have left out."""
    if isinstance(item, MessageItem):
        part: Literal["input", "output"] = "output" if item.role == "assistant" else "input"
        content = _parts(item.content, part)
        return {"type": "message", "role": item.role, "status": "completed", "content": content}
    if isinstance(item, ReasoningItem):
        text = text_of(item.content or item.summary, "")
        summary = [{"type": "summary_text", "text": text}] if text else []
        return {"type": "reasoning", "summary": summary, "status": "completed"}
    if isinstance(item, ToolsItem):
        tools = [tool.echo() for tool in item.tools if not isinstance(tool, OtherTool)]
        return {"type": "additional_tools", "role": "developer", "tools": tools}
    return _call(item)


def _call(item: AnyItem) -> dict[str, Any]:
    kept = item.model_dump(exclude={"id"}, exclude_none=True)
    if isinstance(item, FunctionCallItem):
        kept["type"] = "function_call"
    elif isinstance(item, CustomCallItem):
        kept["type"] = "custom_tool_call"
    elif isinstance(item, CallOutputItem):
        kept["type"] = item.type or "function_call_output"
        kept["output"] = text_of(item.output, "\n")
    return {**kept, "status": "completed"}


def _parts(content: Content, kind: Literal["input", "output"]) -> list[dict[str, Any]]:
    texts = (
        [content]
        if isinstance(content, str)
        else [p.text for p in content if not isinstance(p, OtherPart)]
    )
    if kind == "input":
        return [{"type": "input_text", "text": text} for text in texts]
    return [
        {"type": "output_text", "text": text, "annotations": [], "logprobs": []} for text in texts
    ]
