"""The body of a request to ``v1/messages``, and to ``v1/messages/count_tokens``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from mlxnb.wire.errors import WireError, invalid
from mlxnb.wire.messages.blocks import Message, Texts
from mlxnb.wire.messages.tools import Choice, Tool
from mlxnb.wire.validation import Wire, validated, whole, wrong

ACCEPTED = frozenset(
    {
        *("betas", "billing_policy", "cache_control", "compaction", "context_management"),
        *("fallback_credit_token", "fallbacks", "inference_geo", "service_tier", "speed"),
        *("user_profile_id", "workspace_id"),
    }
)
"""Fields that may be there and change nothing. So may any that nobody has heard of."""

REFUSED = {
    "container": "no code runs here",
    "mcp_servers": "the client connects to MCP servers and offers their tools",
}
"""Fields without which the answer would not be what was asked for, and why."""

Count = Annotated[int, whole(1, 2**31 - 1)]


class Enabled(Wire):
    """Reasoning of at most ``budget_tokens`` tokens."""

    type: Literal["enabled"]
    budget_tokens: Count
    display: Literal["summarized", "omitted"] | None = None


class Adaptive(Wire):
    """Reasoning as the model likes."""

    type: Literal["adaptive"]
    display: Literal["summarized", "omitted"] | None = None


class Disabled(Wire):
    """No reasoning."""

    type: Literal["disabled", "between_tools"]


class Format(Wire):
    """The JSON schema that the text must conform to."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Wire):
    """How the answer is to look, and how much work to spend on it."""

    effort: str | None = None
    format: Format | None = None


class Diagnostics(Wire):
    """Asks why the cache did not serve what an earlier message left in it."""

    previous_message_id: str | None = None


class Metadata(Wire):
    """Who the request is for."""

    user_id: str | None = None


def _filled(messages: Any) -> Any:
    if not isinstance(messages, list) or not messages:
        raise wrong("is a list with at least one message")
    return messages


class CountRequest(Wire):
    """What ``count_tokens`` takes: all that makes a prompt."""

    model: str = Field(min_length=1)
    messages: Annotated[list[Message], BeforeValidator(_filled)]
    system: Texts | None = None
    tools: list[Tool] | None = None
    tool_choice: Choice | None = None
    thinking: Annotated[Enabled | Adaptive | Disabled, Field(discriminator="type")] | None = None
    output_config: OutputConfig | None = None
    output_format: Format | None = None

    @property
    def format(self) -> Format | None:
        """The format asked for, where it stands now or where it stood in a beta."""
        config = self.output_config
        return (config.format if config is not None else None) or self.output_format

    @property
    def shows_thinking(self) -> bool:
        """Whether reasoning is sent."""
        wanted = self.thinking
        return not isinstance(wanted, Enabled | Adaptive) or wanted.display != "omitted"


class MessagesRequest(CountRequest):
    """What ``messages`` takes."""

    max_tokens: Count
    stream: bool = False
    stop_sequences: list[str] | None = None
    temperature: float | None = Field(None, ge=0, le=1)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=0, lt=2**31)
    metadata: Metadata | None = None
    diagnostics: Diagnostics | None = None
    # extensions
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, ge=0.01, le=100)
    seed: Annotated[int | None, whole(0, 2**64 - 1)] = None
    cache_salt: str | None = None
    timings: bool = True


def parse(body: Any) -> MessagesRequest:
    """The body of a request for a message.

    Raises
    ------
    WireError
        400: it is wrong, or asks for what is not there; the field is named.
    """
    _refuse(body)
    request = validated(MessagesRequest, body)
    thinking = request.thinking
    if isinstance(thinking, Enabled) and thinking.budget_tokens >= request.max_tokens:
        raise invalid(
            "thinking.budget_tokens: it must be less than max_tokens, which counts reasoning too",
            "thinking.budget_tokens",
        )
    return request


def parse_count(body: Any) -> CountRequest:
    """The body of a request to count its prompt's tokens; raises what `parse` raises."""
    _refuse(body)
    return validated(CountRequest, body)


def _refuse(body: Any) -> None:
    given = body if isinstance(body, dict) else {}
    if given.get("thread") is not None:
        raise WireError(
            400,
            "thread: conversations are not kept here; send the whole of it without this field",
            param="thread",
            details={"error_code": "thread_unsupported_request", "unsupported": ["thread"]},
        )
    for name, why in REFUSED.items():
        if given.get(name):
            raise invalid(f"{name}: it is not supported, since {why}", name)
