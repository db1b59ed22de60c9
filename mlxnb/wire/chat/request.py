"""The body of a request to ``v1/chat/completions``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from mlxnb.wire.chat.messages import Message
from mlxnb.wire.chat.tools import Choice, Tool
from mlxnb.wire.errors import invalid
from mlxnb.wire.validation import Wire, validated, whole, wrong

ACCEPTED = frozenset(
    {
        *("metadata", "prediction", "prompt_cache_options", "prompt_cache_retention"),
        *("safety_identifier", "service_tier", "store", "user", "verbosity", "web_search_options"),
    }
)
"""Fields that may be there and change nothing. So may any that nobody has heard of."""

REFUSED = {
    "audio": "is not supported: models speak text alone",
    "function_call": "is not supported; use tool_choice",
    "functions": "is not supported; use tools",
    "logprobs": "is not supported",
    "moderation": "is not supported: nothing is moderated here",
    "top_logprobs": "is not supported",
}
"""Fields without which the answer would not be what was asked for, and what is said of them."""

Count = Annotated[int | None, whole(1, 2**31 - 1)]


class StreamOptions(Wire):
    """What a stream has besides its text."""

    include_usage: bool | None = None


class PlainFormat(Wire):
    """Free text, or any JSON object."""

    type: Literal["text", "json_object"]


class NamedSchema(Wire):
    """A JSON schema and its name."""

    name: str
    schema_: dict[str, Any] | None = Field(None, alias="schema")


class SchemaFormat(Wire):
    """JSON of a schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


def _one(value: Any) -> Any:
    if value in (None, 1) and not isinstance(value, bool):
        return value
    raise wrong("is 1: one request has one answer; send as many as you want answers")


def _text_alone(value: Any) -> Any:
    if value in (None, ["text"]):
        return value
    raise wrong('is ["text"]: models speak text alone')


def _biases(value: Any) -> Any:
    """Token ids come as strings, since keys of JSON are."""
    if not isinstance(value, dict):
        return value
    try:
        return {int(token): bias for token, bias in value.items()}
    except ValueError:
        raise wrong("maps token ids to numbers") from None


TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Bias = Annotated[float, Field(ge=-100, le=100)]


class ChatRequest(Wire):
    """All fields that are looked at; any other is let pass without effect."""

    model: str = Field(min_length=1)
    messages: list[Message] = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_completion_tokens: Count = None
    max_tokens: Count = None
    tools: list[Tool] | None = None
    tool_choice: Choice | None = None
    parallel_tool_calls: bool | None = None
    response_format: Annotated[PlainFormat | SchemaFormat, Field(discriminator="type")] | None = (
        None
    )
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = (
        None
    )
    stop: str | list[str] | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: Annotated[dict[TokenId, Bias], BeforeValidator(_biases)] | None = None
    seed: Annotated[int | None, whole(-(2**63), 2**64 - 1)] = None
    n: Annotated[int | None, BeforeValidator(_one)] = None
    modalities: Annotated[list[str] | None, BeforeValidator(_text_alone)] = None
    prompt_cache_key: str | None = None
    # extensions
    top_k: Annotated[int | None, whole(0, 2**31 - 1)] = None
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, ge=0.01, le=100)
    cache_salt: str | None = None
    timings: bool = True

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def stops(self) -> tuple[str, ...] | None:
        """Stop sequences; an empty one stops nothing."""
        if self.stop is None:
            return None
        given = [self.stop] if isinstance(self.stop, str) else self.stop
        return tuple(filter(None, given))


def parse(body: Any) -> ChatRequest:
    """The body of a request for a completion.

    Raises
    ------
    WireError
        400: it is wrong, or asks for what is not there; the field is named.
    """
    given = body if isinstance(body, dict) else {}
    for name, why in REFUSED.items():
        if given.get(name):
            raise invalid(f"{name} {why}", name)
    return validated(ChatRequest, body)
