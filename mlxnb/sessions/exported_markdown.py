"""A session as Markdown, for people.

What was said stands in block quotes: in CommonMark a quote's end closes all that was opened in it,
a fence that an answer left open included. https://spec.commonmark.org/0.31.2/#block-quotes
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from mlxnb.sessions.exported import Exported, Said

_HEADS = {"system": "System", "user": "User", "assistant": "Assistant", "tool": "Result"}
_ESCAPED = re.compile(r"([\\`*_{}\[\]<>#|~!&])")


def markdown(exported: Exported) -> str:
    """The conversation, a heading a message; calls and results as code."""
    parts = [f"# {_inline(exported.name)}", f"Model: {_inline(exported.options.model)}"]
    for said in exported.messages:
        parts += _message(said)
    return "\n\n".join(parts) + "\n"


def _message(said: Said) -> Iterator[str]:
    what = f" of {_inline(said.name or '')}" if said.role == "tool" else ""
    yield f"## {_HEADS[said.role]}{what}"
    if said.reasoning_content:
        yield "Reasoning:"
        yield _quoted(said.reasoning_content)
        yield "Answer:"
    if said.role == "tool":
        yield fenced(said.content)
    elif said.content:
        yield _quoted(said.content)
    for call in said.tool_calls:
        yield f"Call of {_inline(call.function.name)}:"
        yield fenced(json.dumps(call.function.arguments, indent=2, ensure_ascii=False), "json")


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines()) or ">"


def fenced(text: str, language: str = "") -> str:
    """A text as a block of code, in fences longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _inline(text: str) -> str:
    """A name on one line, as it stands."""
    return _ESCAPED.sub(r"\\\1", " ".join(text.split()))
