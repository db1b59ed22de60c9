"""The response object: what lifecycle events, plain answers and the store hold; its error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlxnb.wire.answer import Answer
from mlxnb.wire.errors import WireError, openai_body
from mlxnb.wire.responses.request import ResponsesRequest, SchemaFormat, Text, compared


def response(
    request: ResponsesRequest, answer: Answer, *, status: str, output: Sequence[Any]
) -> dict[str, Any]:
    """Every key of a response; what is not known yet is null."""
    return {
        "id": answer.response_id,
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "model": answer.asked_model,
        "output": list(output),
        "error": None,
        "incomplete_details": None,
        "completed_at": None,
        "usage": None,
        "prompt_cache_diagnostics": None,
        **_echo(request),
        **_settings(request, answer),
    }


def error_event(error: WireError) -> dict[str, Any]:
    """The flat fields that the reference has, and the object that clients look into (W57)."""
    inner = openai_body(error)["error"]
    inner["code"] = error.code or "server_error"
    flat = {name: inner[name] for name in ("code", "message", "param")}
    return {"type": "error", **flat, "error": inner}


def _echo(request: ResponsesRequest) -> dict[str, Any]:
    """What the client said, as it said it."""
    comparison = compared(request)
    return {
        "instructions": request.instructions,
        "previous_response_id": request.previous_response_id,
        "metadata": {name: str(value) for name, value in (request.metadata or {}).items()},
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": request.max_tool_calls,
        "prompt_cache_key": request.prompt_cache_key,
        "prompt_cache_options": None
        if comparison is None
        else {"mode": "implicit", "ttl": "30m", "comparison_response_id": comparison},
        "user": request.user,
        "safety_identifier": request.safety_identifier,
    }


def _settings(request: ResponsesRequest, answer: Answer) -> dict[str, Any]:
    """What the answer is made with."""
    reasoning, text = request.reasoning, request.text or Text()
    asked = request.temperature
    return {
        "background": False,
        "store": request.store is not False,
        "service_tier": "default",
        "truncation": request.truncation or "disabled",
        "temperature": asked if asked is not None else answer.record.temperature,
        "top_p": request.top_p,
        "top_logprobs": 0,
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "tools": [tool.echo() for tool in request.callables],
        "tool_choice": _choice(request),
        "reasoning": {
            "effort": reasoning.effort if reasoning is not None else None,
            "summary": reasoning.told if reasoning is not None else None,
        },
        "text": {"format": _format(text), "verbosity": text.verbosity},
    }


def _choice(request: ResponsesRequest) -> Any:
    choice = request.tool_choice or "auto"
    return choice if isinstance(choice, str) else choice.model_dump()


def _format(text: Text) -> dict[str, Any]:
    if text.format is None:
        return {"type": "text"}
    dumped = text.format.model_dump(by_alias=True)
    return dumped if isinstance(text.format, SchemaFormat) else {"type": text.format.type}
