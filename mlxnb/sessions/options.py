"""What a session is made with."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mlxnb.engine.sampling import Sampling
from mlxnb.errors import InvalidOption
from mlxnb.sessions.order import tool_list

HistoryKind = Literal["exact", "template"]


@dataclass(frozen=True, slots=True)
class Options:
    """What a session is made with. ``tools`` are its tool definitions, each as JSON.

    Raises
    ------
    InvalidOption
        A value that an option cannot have; the message names both.
    """

    model: str
    system: str | None = None
    tools: tuple[str, ...] = ()
    sampling: Sampling = Sampling()  # noqa: RUF009 - frozen
    history: HistoryKind = "exact"
    reuse: bool = True
    cache_salt: str = ""
    thinking: bool | None = None

    def __post_init__(self) -> None:
        if self.system is not None:
            check_text("system", self.system)
        check_text("cache_salt", self.cache_salt)
        if self.history not in ("exact", "template"):
            raise InvalidOption(f"history is 'exact' or 'template', not {self.history!r}")
        if not isinstance(self.reuse, bool):
            raise InvalidOption(f"reuse is True or False, not {self.reuse!r}")
        if not (self.thinking is None or isinstance(self.thinking, bool)):
            raise InvalidOption(f"thinking is True, False or None, not {self.thinking!r}")

    @property
    def tool_list(self) -> list[Any] | None:
        """The tools as the template takes them."""
        return tool_list(self.tools)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Options as they were asked for: those that nobody named are not there."""

    named: Mapping[str, Any]
    sampling: Mapping[str, Any]

    @classmethod
    def of(cls, system: str | None, tools: Any, options: Mapping[str, Any]) -> Wanted:
        """Tell a session's own options from those of sampling.

        Raises
        ------
        InvalidOption
            An option is unknown, or has a value that it cannot have.
        """
        own = {"history", "reuse", "cache_salt", "thinking"}
        packed = None if tools is None else packed_tools(tools)
        named = {"system": system, "tools": packed} | {n: options[n] for n in own & options.keys()}
        sampling = {name: value for name, value in options.items() if name not in own}
        _check_names(sampling, own)
        return cls(*({n: v for n, v in o.items() if v is not None} for o in (named, sampling)))

    def options(self, model: str) -> Options:
        """The options of a new session."""
        return Options(model, sampling=Sampling.of(self.sampling), **self.named)

    def disagreeing(self, there: Options) -> list[str]:
        """The names of options that a session has otherwise than it is wanted."""
        made = self.options(there.model)
        own = _differing(self.named, made, there)
        return [*own, *_differing(self.sampling, made.sampling, there.sampling)]


def _differing(names: Mapping[str, Any], a: object, b: object) -> Iterator[str]:
    return (name for name in names if getattr(a, name) != getattr(b, name))


def _check_names(sampling: Mapping[str, Any], own: set[str]) -> None:
    known = {field.name for field in dataclasses.fields(Sampling)} | own
    for name in sampling:
        if name not in known:
            raise InvalidOption(f"no option {name!r}; there are {', '.join(sorted(known))}")


def packed_tools(tools: Any) -> tuple[str, ...]:
    """Tool definitions as JSON, keys in their order: the template shows them to the model so."""
    if not isinstance(tools, list | tuple) or not all(isinstance(t, dict) for t in tools):
        raise InvalidOption("tools is a list of tool definitions, each a dict")
    try:
        packed = tuple(json.dumps(tool, allow_nan=False, ensure_ascii=False) for tool in tools)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidOption(f"tools must be plain JSON: {error}") from None
    for tool in packed:
        check_text("tools", tool)
    return packed


def checked_budget(value: Any) -> int:
    """A budget in bytes, as it is; `InvalidOption` where it is none."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 2**20:
        raise InvalidOption(f"budget is a number of bytes, 1 MiB or more, not {value!r}")
    return value


def check_text(name: str, text: Any) -> None:
    """Raise ``InvalidOption`` unless it is a string that has a UTF-8 form."""
    if not isinstance(text, str):
        raise InvalidOption(f"{name} is a string, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidOption(f"{name} has half of a surrogate pair, which is no character") from None
