"""From a request to what the engine is asked."""

from __future__ import annotations

import json
from dataclasses import replace

from mlxnb.engine.sampling import Sampling
from mlxnb.sessions.ask import Ask
from mlxnb.sessions.messages import Message
from mlxnb.wire.effort import BUDGETS
from mlxnb.wire.messages.history import history
from mlxnb.wire.messages.request import CountRequest, Disabled, Enabled, MessagesRequest
from mlxnb.wire.messages.title import LONGEST, asks_for_title
from mlxnb.wire.messages.tools import known_tools, tool_choice
from mlxnb.wire.system import system_text


def ask(request: CountRequest, caller: str = "") -> Ask:
    """What the request wants, of which a count of its tokens takes the prompt alone.

    Raises
    ------
    WireError
        400: tools, or calls and their results, do not belong together.
    """
    tools = known_tools(request.tools or ())
    choice = tool_choice(request.tool_choice, tools)
    system, messages = _conversation(request)
    schema = request.format.schema_ if request.format is not None else None
    title = asks_for_title(system, schema, tools=bool(request.tools))
    prompt = Ask(
        model=request.model,
        messages=tuple(messages),
        source="messages",
        system=system,
        tools=() if choice.mode == "none" else tuple(tool.packed for tool in tools),
        tool_choice=choice,
        caller=caller,
        thinking=False if title else _thinking(request),
        thinking_budget=None if title else _budget(request),
        schema=None if schema is None else json.dumps(schema, ensure_ascii=False),
        continues_answer=bool(messages) and messages[-1]["role"] == "assistant",
    )
    if not isinstance(request, MessagesRequest):
        return prompt
    return replace(
        prompt,
        sampling=_sampling(request, title),
        cache_salt=request.cache_salt or "",
        metadata=_metadata(request),
    )


def _conversation(request: CountRequest) -> tuple[str | None, list[Message]]:
    """The system text and what follows it; where there is none, the one that comes first."""
    system = None
    if request.system is not None:
        system = system_text([block.text for block in request.system])
    messages = history(request.messages)
    if system is None and messages and messages[0]["role"] == "system":
        return messages[0]["content"], messages[1:]
    return system, messages


def _sampling(request: MessagesRequest, title: bool) -> Sampling:
    stops = request.stop_sequences
    return Sampling(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        min_p=request.min_p,
        repetition_penalty=request.repetition_penalty,
        seed=request.seed,
        max_tokens=min(request.max_tokens, LONGEST) if title else request.max_tokens,
        stop=None if stops is None else tuple(stop for stop in stops if stop.strip()),
    )


def _thinking(request: CountRequest) -> bool | None:
    """Without a word, and where it is adaptive, it is the model's own choice."""
    wanted = request.thinking
    if isinstance(wanted, Disabled):
        return False
    return True if isinstance(wanted, Enabled) else None


def _budget(request: CountRequest) -> int | None:
    if isinstance(request.thinking, Enabled):
        return request.thinking.budget_tokens
    effort = request.output_config.effort if request.output_config is not None else None
    return None if isinstance(request.thinking, Disabled) else BUDGETS.get(effort or "")


def _metadata(request: MessagesRequest) -> dict[str, str]:
    user = request.metadata.user_id if request.metadata is not None else None
    return {} if user is None else {"user_id": user}
