"""From a request to what the engine is asked."""

from __future__ import annotations

import json

from mlxnb.engine.sampling import Sampling
from mlxnb.sessions.ask import Ask
from mlxnb.wire.chat.history import history
from mlxnb.wire.chat.request import ChatRequest, PlainFormat
from mlxnb.wire.chat.tools import check_tools, tool_choice
from mlxnb.wire.effort import BUDGETS


def ask(request: ChatRequest, caller: str = "") -> Ask:
    """What the request wants, in no protocol's terms.

    Raises
    ------
    WireError
        400: tools, or calls and their results, do not belong together.
    """
    tools = request.tools or ()
    check_tools(tools)
    choice = tool_choice(request.tool_choice, request.parallel_tool_calls is not False, tools)
    messages = history(request.messages)
    leads = messages[0]["role"] == "system"
    effort = request.reasoning_effort
    return Ask(
        model=request.model,
        messages=tuple(messages[1:] if leads else messages),
        source="chat_completions",
        system=messages[0]["content"] if leads else None,
        tools=() if choice.mode == "none" else tuple(tool.packed for tool in tools),
        tool_choice=choice,
        sampling=_sampling(request),
        caller=caller,
        cache_salt=request.cache_salt or "",
        key=request.prompt_cache_key,
        thinking=None if effort is None else effort != "none",
        thinking_budget=BUDGETS.get(effort or ""),
        schema=_schema(request),
    )


def _sampling(request: ChatRequest) -> Sampling:
    return Sampling(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        min_p=request.min_p,
        repetition_penalty=request.repetition_penalty,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        logit_bias=request.logit_bias,
        seed=None if request.seed is None else request.seed % 2**64,
        max_tokens=request.max_completion_tokens or request.max_tokens,
        stop=request.stops,
    )


def _schema(request: ChatRequest) -> str | None:
    form = request.response_format
    if form is None:
        return None
    if isinstance(form, PlainFormat):
        return json.dumps({"type": "object"}) if form.type == "json_object" else None
    schema = form.json_schema.schema_
    return json.dumps({} if schema is None else schema, ensure_ascii=False)
