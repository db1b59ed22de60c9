"""Tool calls: where their bodies end, and what a parser makes of them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlxnb.records.turn import ToolCall
from mlxnb.text.envelope import ArgumentsReader, Envelope
from mlxnb.text.search import Patterns, Search

Parse = Callable[[str, Any], Any]
"""``parse(body, tools)``: one call or a list of them, each a mapping with ``name`` and
``arguments`` (an object, or one as a JSON string); what it cannot read raises, whatever it
raises. The signature of ``mlx_lm.tool_parsers.*.parse_tool_call``."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """What is known of a format besides its tags.

    Attributes
    ----------
    body
        What a body begins with, blanks aside; anything else proves the tag false at once.
        Empty: anything.
    bare
        Start and end of a call without its tags, as some models write it now and then; the
        called name follows the start, and both belong to the body.
    loose
        The parser makes a call of any text: only declared names are believed.
    """

    body: tuple[str, ...] = ()
    bare: tuple[str, str] | None = None
    loose: bool = False

    @classmethod
    def of(cls, parse: Parse | None) -> Grammar:
        """The grammar that belongs to one of mlx-lm's parsers, by its module's name."""
        return GRAMMARS.get(getattr(parse, "__module__", "").rpartition(".")[2], cls())


# As the modules of these names in mlx_lm.tool_parsers read them (laguna's is glm47's).
GRAMMARS: Mapping[str, Grammar] = {
    "function_gemma": Grammar(body=("call:",)),
    "gemma4": Grammar(body=("call:",)),
    "glm47": Grammar(loose=True),
    "json_tools": Grammar(body=("{", "[")),
    "kimi_k2": Grammar(bare=("<|tool_call_begin|>functions.", "<|tool_call_end|>")),
    "kimi_k3": Grammar(("<|open|>call",), ('<|open|>call tool="', "<|close|>call<|sep|>")),
    "minimax_m2": Grammar(("<invoke",), ('<invoke name="', "</invoke>")),
    "muse_spark": Grammar(("<atem:invoke",), ('<atem:invoke name="', "</atem:invoke>")),
    "pythonic": Grammar(body=("[",)),
    "qwen3_coder": Grammar(("<function=",), ("<function=", "</function>")),
}


class ToolRegion:
    """One possible call, held from behind its start tag to its end tag.

    Parameters
    ----------
    start, end
        The tag that opened it and the one that closes it; an empty ``end``: the stream's end.
    body_starts
        What can follow ``start``, blanks aside; empty: anything.
    bare
        The tags belong to the body.
    """

    __slots__ = ("_head", "_parts", "_search", "_starts", "bare", "false", "fresh", "rest", "start")

    def __init__(
        self, start: str, end: str, body_starts: Sequence[str] = (), *, bare: bool = False
    ) -> None:
        self.start = start
        self.false = False
        self.rest = ""
        self.fresh = ""  # what the last piece added to the body
        self.bare = bare
        self._starts = tuple(body_starts)
        self._head: list[str] = []  # all that was fed, until its beginning is seen to be right
        self._parts: list[str] = []
        self._search = Search(Patterns((end,)))

    def feed(self, text: str) -> bool:
        """Read on; True when the region has ended, and ``rest`` is what follows it.

        It ends behind its end tag; or, with ``false`` set, behind its start tag, when what
        follows that begins no call: ``rest`` is then everything fed.
        """
        if self._starts and self._begins_wrong(text):
            self.false, self.rest = True, "".join(self._head)
            return True
        self.fresh = self._search.feed(text)
        self._parts.append(self.fresh)
        self.rest = self._search.rest
        return self._search.matched is not None

    def flush(self) -> None:
        """The stream has ended, and the region with it."""
        self._parts.append(self._search.flush())

    @property
    def raw(self) -> str:
        """The region with its tags, as the model wrote it."""
        return self.start + "".join(self._parts) + (self._search.matched or "")

    @property
    def body(self) -> str:
        """What the parser reads."""
        return self.raw if self.bare else "".join(self._parts)

    def _begins_wrong(self, text: str) -> bool:
        self._head.append(text)
        if not text or text.isspace():
            return False
        head = "".join(self._head).lstrip()
        if head.startswith(self._starts):
            self._starts = ()
            return False
        return not any(start.startswith(head) for start in self._starts)


@dataclass(slots=True)
class OpenCall:
    """A call on its way; ``announced`` once its name is known."""

    id: str
    reader: ArgumentsReader
    announced: bool = False


def new_call_id() -> str:
    """``call_`` and 96 random bits in hex."""
    return f"call_{secrets.token_hex(12)}"


class ToolReader:
    """Opens the regions of a format, and turns their bodies into calls or into none at all.

    Parameters
    ----------
    tags
        Start and end tag of the format.
    parse
        The model's own parser.
    tools
        The request's tools: ``{"type": "function", "function": {"name", "parameters"}}``.
    new_id
        Makes the ids; those that a model writes are not unique over a conversation.
    """

    __slots__ = (
        "_declared",
        "_envelope",
        "_grammar",
        "_new_id",
        "_parse",
        "_tags",
        "_tools",
        "starts",
    )

    def __init__(
        self,
        tags: tuple[str, str],
        parse: Parse,
        tools: Sequence[Mapping[str, Any]],
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        self._tags = tags
        self._parse = parse
        self._tools = tools
        self._new_id = new_id
        self._grammar = Grammar.of(parse)
        self._envelope = Envelope.of(parse)
        self.starts = (tags[0], *(self._grammar.bare or ())[:1])  # what may open a region
        functions = [tool.get("function") or tool for tool in tools]
        self._declared = {
            str(function.get("name")): function.get("parameters") or {} for function in functions
        }

    def open(self, start: str) -> ToolRegion:
        """The region that begins with this one of ``starts``."""
        if start == self._tags[0]:
            return ToolRegion(start, self._tags[1], self._grammar.body)
        assert self._grammar.bare is not None, "a start that is no tag is a bare call's"
        return ToolRegion(start, self._grammar.bare[1], tuple(self._declared), bare=True)

    def begin(self) -> OpenCall:
        """A call whose arguments are held to their schema, to be read while it is generated."""
        return OpenCall(self._new_id(), ArgumentsReader(self._envelope.heads(self._declared)))

    def read(self, body: str, *, declared: bool = False) -> list[ToolCall]:
        """The calls in ``body``; empty when one of them is broken.

        Broken: the parser raises; no name; arguments that are not a JSON object; a lone argument
        ``raw`` that no schema knows, which is how glm47's parser hands on what it cannot read.
        With ``declared``, or where the format makes a call of any text, an undeclared name too.
        """
        checked = [self._checked(call) for call in self._parsed(body)]
        calls = [call for call in checked if call is not None]
        known = all(name in self._declared for name, _ in calls)
        if len(calls) < len(checked) or ((declared or self._grammar.loose) and not known):
            return []
        return [ToolCall(self._new_id(), name, arguments) for name, arguments in calls]

    def _parsed(self, body: str) -> list[Any]:
        try:
            parsed = self._parse(body, self._tools)
        except Exception:  # parsers raise whatever their regexes and literals raise
            return []
        return parsed if isinstance(parsed, list) else [parsed]

    def _checked(self, call: Any) -> tuple[str, dict[str, Any]] | None:
        name = call.get("name") if isinstance(call, Mapping) else None
        if not isinstance(name, str) or not name.strip():
            return None
        schema = self._declared.get(name, {})
        given = call.get("arguments")
        if given is None and name in self._declared and not schema.get("required"):
            given = {}
        arguments = _sendable(name, given)
        if arguments is None or (set(arguments) == {"raw"} and not _has(schema, "raw")):
            return None
        return name, arguments


def _sendable(name: str, arguments: Any) -> dict[str, Any] | None:
    """``arguments``, maybe still a JSON string, as a JSON object; None if it cannot be one."""
    try:
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        sent = json.dumps([name, arguments], allow_nan=False, ensure_ascii=False).encode()
        parsed = json.loads(sent)[1]
    except (TypeError, ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _has(schema: Mapping[str, Any], name: str) -> bool:
    return name in (schema.get("properties") or {})
