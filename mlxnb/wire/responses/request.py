"""The body of ``POST v1/responses``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from mlxnb.engine.sampling import Sampling
from mlxnb.errors import InvalidOption
from mlxnb.sessions.ask import ToolChoice
from mlxnb.wire.errors import invalid
from mlxnb.wire.responses.items import Item, MessageItem, ToolsItem
from mlxnb.wire.responses.tools import Choice, Tool, UserTool, callables, tool_choice
from mlxnb.wire.validation import Wire, validated, whole, wrong

R = TypeVar("R", bound="ResponsesRequest")
MAX_TOKENS = 2**31 - 1
RETENTION = (60, 90 * 24 * 3600)
"""Seconds that a response may be asked to be kept."""
SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)


def _only(allowed: Callable[[Any], bool], reason: str) -> BeforeValidator:
    """A field that is understood, and refused with most of its values."""

    def check(value: Any) -> Any:
        if allowed(value):
            return value
        raise wrong(reason, "unsupported_value")

    return BeforeValidator(check)


def _some(items: list[Any]) -> list[Any]:
    if not items:
        raise wrong("is a string, or a list of at least one item")
    return items


def _none(reason: str) -> BeforeValidator:
    return _only(lambda value: value is None, reason)


class Reasoning(Wire):
    """Whether and how long to think, and whether to tell."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None

    @property
    def told(self) -> str | None:
        """The kind of summary that was asked for; None: reasoning is not sent."""
        return self.summary or self.generate_summary


class PlainFormat(Wire):
    """Free text, or any JSON object."""

    type: Literal["text", "json_object"]


class SchemaFormat(Wire):
    """JSON of a schema."""

    type: Literal["json_schema"]
    name: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    schema_: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class Text(Wire):
    """What the answer's text looks like."""

    format: Annotated[PlainFormat | SchemaFormat, Field(discriminator="type")] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class PromptCacheOptions(Wire):
    """With which response to compare what was reused."""

    comparison_response_id: str | None = None
    prewarm: Annotated[
        bool | None, _only(lambda value: value in (None, False), "is not supported")
    ] = None


class ResponsesRequest(Wire):
    """All fields that are looked at; any other is let pass without effect."""

    model: Annotated[str, StringConstraints(min_length=1)]
    input: str | Annotated[list[Item], AfterValidator(_some)]
    instructions: str | None = None
    stream: bool = False
    max_output_tokens: Annotated[int | None, whole(1, MAX_TOKENS)] = None
    previous_response_id: Annotated[str, StringConstraints(min_length=1)] | None = None
    store: bool | None = None
    metadata: dict[str, Any] | None = None
    tools: list[Tool] | None = None
    tool_choice: Choice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    text: Text | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    # sampling; all but the first two are extensions
    temperature: float | None = None
    top_p: float | None = None
    top_k: Annotated[int | None, whole(0, MAX_TOKENS)] = None
    min_p: float | None = None
    seed: Annotated[int | None, whole(0, 2**64 - 1)] = None
    stop: str | list[str] | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    # further extensions
    cache_salt: str | None = None
    timings: bool = True
    # repeated in the response, without effect
    user: str | None = None
    safety_identifier: str | None = None
    max_tool_calls: Annotated[int | None, whole(0, MAX_TOKENS)] = None
    truncation: Literal["auto", "disabled"] | None = None
    # refused
    background: Annotated[
        bool | None, _only(lambda value: value in (None, False), "is not supported; use stream")
    ] = None
    conversation: Annotated[
        Any, _none("is not supported; continue a response with previous_response_id")
    ] = None
    prompt: Annotated[Any, _none("is not supported: no prompts are stored here")] = None
    moderation: Annotated[Any, _none("is not supported: nothing is moderated here")] = None
    top_logprobs: Annotated[
        Any, _only(lambda value: value is None or value == 0, "is not supported above 0")
    ] = None

    @property
    def items(self) -> list[Any]:
        """The input as items."""
        if isinstance(self.input, str):
            return [MessageItem(role="user", content=self.input)]
        return self.input

    @property
    def callables(self) -> tuple[UserTool, ...]:
        """The tools that can be called, those that the input adds included."""
        added = [tool for item in self.items if isinstance(item, ToolsItem) for tool in item.tools]
        return callables([*(self.tools or ()), *added])

    @property
    def choice(self) -> ToolChoice:
        """Which of them may or must be."""
        parallel = self.parallel_tool_calls is not False
        return tool_choice(self.tool_choice, self.callables, parallel)

    @property
    def sampling(self) -> Sampling:
        """What the request says of sampling."""
        given = {name: getattr(self, name) for name in SAMPLING}
        return Sampling.of({**given, "max_tokens": self.max_output_tokens})

    @property
    def retention_s(self) -> int | None:
        """How long to keep the response; None: as configured."""
        return (self.metadata or {}).get("retention_seconds")


class CountRequest(ResponsesRequest):
    """The body of ``POST v1/responses/input_tokens``, where ``input`` may be left out."""

    input: str | list[Item] | None = None  # type: ignore[assignment]

    @property
    def items(self) -> list[Any]:
        """The input as items."""
        return [] if self.input is None else super().items


def parse(body: Any) -> ResponsesRequest:
    """A decoded body as a request.

    Raises
    ------
    WireError
        400 that names the field.
    """
    return _settled(validated(ResponsesRequest, body))


def parse_count(body: Any) -> CountRequest:
    """As `parse`, of a request to count tokens.

    Raises
    ------
    WireError
        400 that names the field.
    """
    request = validated(CountRequest, body)
    if not request.items and request.previous_response_id is None:
        raise invalid("input is missing", "input", "missing_required_parameter")
    return _settled(request)


def previous_id(request: ResponsesRequest) -> str | None:
    """The response that it continues."""
    return request.previous_response_id


def compared(request: ResponsesRequest) -> str | None:
    """The response with which to compare what was reused."""
    options = request.prompt_cache_options
    return options.comparison_response_id if options is not None else None


def _settled(request: R) -> R:
    """Check what goes across fields."""
    _check_metadata(request.metadata or {})
    _ = request.choice
    try:
        _ = request.sampling
    except InvalidOption as error:
        named = next((name for name in SAMPLING if str(error).startswith(name)), None)
        raise invalid(str(error), error.param or named) from None
    return request


def _check_metadata(metadata: dict[str, Any]) -> None:
    if len(metadata) > 16:
        raise invalid("metadata has at most 16 pairs", "metadata")
    for key, value in metadata.items():
        path = f"metadata.{key[:64]}"
        if key == "retention_seconds":
            _check_retention(value, path)
        elif len(key) > 64 or not isinstance(value, str) or len(value) > 512:
            raise invalid(
                f"{path} is not a string of up to 512 characters under a key of up to 64", path
            )


def _check_retention(value: Any, path: str) -> None:
    low, high = RETENTION
    if type(value) is not int or not low <= value <= high:
        raise invalid(f"{path} is an integer in [{low}, {high}]", path)
