"""A Python function as a tool: what the model is told of it, and how a call of it is made."""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import docstring_parser
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ArgsKwargs, to_jsonable_python

from mlxnb.errors import InvalidOption

CHARS = 20_000
"""Characters of a result that the model is told; what is longer is cut, and says so."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_FIXED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


class Function:
    """A function that a model may call.

    Its schema comes of its signature, type hints and docstring (in any of the usual styles).

    Parameters
    ----------
    confirm
        Ask before it is called.

    Raises
    ------
    InvalidOption
        It cannot be called with named arguments from JSON; the message says why.
    """

    def __init__(self, function: Callable[..., Any], confirm: bool = True) -> None:
        self.name = _name(function)
        self.confirm = confirm
        self._function = function
        self._arguments = _arguments(function, self.name)
        self.definition = self._defined()

    def _defined(self) -> dict[str, Any]:
        """The tool's definition as the OpenAI API has it."""
        about, words = _documented(self._function)
        try:
            parameters = self._arguments.json_schema(schema_generator=_Untitled)
        except PydanticUserError as error:
            raise _refused(self.name, error) from None
        for name, text in words.items():
            if name in parameters["properties"]:
                parameters["properties"][name].setdefault("description", text)
        function = {"name": self.name, "description": about, "parameters": parameters}
        return {"type": "function", "function": {n: v for n, v in function.items() if v}}

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of the types that the function wants, its defaults included.

        Raises
        ------
        ValueError
            They do not fit; the message names each that does not.
        """
        try:
            found: dict[str, Any] = self._arguments.validate_python(ArgsKwargs((), dict(given)))
        except ValidationError as error:
            raise ValueError("; ".join(_faults(error))) from None
        return found

    def __call__(self, arguments: Mapping[str, Any]) -> str:
        """Call it, and say what it returned in words for the model; raises what it raises."""
        return cut(self.returned(arguments))

    def returned(self, arguments: Mapping[str, Any]) -> str:
        """As a call; a long result is not cut."""
        return told(self._function(**arguments))


class _Untitled(GenerateJsonSchema):
    """Without titles that only repeat a parameter's name: they cost tokens."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def told(result: Any) -> str:
    """A result as the model reads it: text as it is, JSON where it has such a form, else its str.

    What gives its items one by one is not walked: it has no JSON form.
    """
    if isinstance(result, str):
        return result
    if isinstance(result, Iterator):
        return str(result)
    try:
        plain = to_jsonable_python(result, inf_nan_mode="constants")
        return json.dumps(plain, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(result)


def cut(text: str) -> str:
    """A text of at most ``CHARS`` characters, and a note where there were more."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= CHARS else f"{text[:CHARS]}\n[cut: {len(text):,} characters in all]"


def _name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", None)
    if not callable(function) or not isinstance(name, str):
        raise InvalidOption(f"a tool is a function with a name, not {type(function).__name__}")
    if not _NAME.fullmatch(name):
        raise InvalidOption(f"{name} is no name for a tool; define a function with def")
    return name


def _arguments(function: Callable[..., Any], name: str) -> TypeAdapter[Any]:
    """Checks arguments as the function's signature has them, and returns them by name."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidOption(f"{name} is async; a tool is called and waited for")
    try:
        signature = inspect.signature(function)
        hints = typing.get_type_hints(_hinted(function), include_extras=True)
    except (TypeError, ValueError, NameError, AttributeError) as error:
        raise InvalidOption(f"{name}: its signature cannot be read: {error}") from None
    if any(parameter.kind in _FIXED for parameter in signature.parameters.values()):
        raise InvalidOption(f"{name}: a model names its arguments; it cannot give positional ones")

    def received(**arguments: Any) -> dict[str, Any]:
        return arguments

    received.__signature__ = signature  # type: ignore[attr-defined]
    received.__annotations__ = {n: hint for n, hint in hints.items() if n != "return"}
    try:
        return TypeAdapter(received)  # type: ignore[arg-type] # a function is one too
    except PydanticUserError as error:
        raise _refused(name, error) from None


def _hinted(function: Any) -> Any:
    """Where a function's annotations are: a class has them on its ``__init__``."""
    return function.__init__ if inspect.isclass(function) else function


def _refused(name: str, error: PydanticUserError) -> InvalidOption:
    reason = str(error).splitlines()[0]
    return InvalidOption(f"{name}: no JSON schema comes of its parameters: {reason}")


def _documented(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """What a docstring says of the function, and of each parameter."""
    text = inspect.getdoc(function) or ""
    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text, {}
    words = {p.arg_name: " ".join(p.description.split()) for p in parsed.params if p.description}
    about = [parsed.short_description, parsed.long_description]
    return "\n\n".join(part for part in about if part), words


def _faults(error: ValidationError) -> Iterator[str]:
    for each in error.errors(include_url=False, include_input=False):
        yield f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}"
