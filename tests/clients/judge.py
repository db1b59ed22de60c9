"""Every body and every stream that clients get, judged by the vendors' types and the rules."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import anthropic.types
import openai.types
from openai.pagination import SyncCursorPage, SyncPage
from openai.types.responses import ResponseItem
from openai.types.responses.input_token_count_response import InputTokenCountResponse
from pydantic import TypeAdapter
from wire import anthropic_stream, openai_chat
from wire.checks import check_events, parse_sse, sdk_event, sdk_response

from .tap import Exchange


def judge(base: str, exchange: Exchange) -> None:
    """Raise ``AssertionError`` or pydantic's error where something is not as it should be.

    Parameters
    ----------
    base
        The path of ``{base}``; what is not under it is none of ours.
    """
    path = exchange.path.partition("?")[0]
    if not path.startswith(f"{base}/v1/") or exchange.method == "HEAD":
        return
    assert exchange.headers["x-request-id"] == exchange.headers["request-id"]  # W58
    route = path.removeprefix(base)
    if exchange.is_stream:
        _judge_stream(route, exchange)
    elif exchange.whole:
        _judge_body(route, exchange)


def _judge_stream(route: str, exchange: Exchange) -> None:
    assert exchange.status == 200
    assert exchange.headers["x-session-cache"] in ("fresh", "hit", "prefix_hit", "cold_replay")
    body = exchange.body if exchange.whole else _up_to_a_whole_event(exchange.body)
    if route == "/v1/responses":
        events = parse_sse(body)
        if exchange.whole:
            check_events(events)
        for _, payload in events:
            sdk_event(payload)
    elif route == "/v1/messages":
        anthropic_stream.check_stream(anthropic_stream.decoded(body), ended=exchange.whole)
    elif exchange.whole:
        options = json.loads(exchange.sent).get("stream_options") or {}
        usage = bool(options.get("include_usage"))
        openai_chat.check_stream(openai_chat.decoded(body), usage=usage)


def _up_to_a_whole_event(raw: bytes) -> bytes:
    return raw[: raw.rfind(b"\n\n") + 2] if b"\n\n" in raw else b""


def _judge_body(route: str, exchange: Exchange) -> None:
    assert exchange.headers["content-type"] == "application/json"
    body = json.loads(exchange.body)
    anthropic_shape = route.startswith("/v1/messages") or ("type" in body and "error" in body)
    if exchange.status >= 400:
        _judge_error(body, exchange, anthropic_shape)
        return
    for pattern, check in _BODIES:
        if re.fullmatch(pattern, f"{exchange.method} {route}"):
            check(body)
            return
    raise AssertionError(f"{exchange.method} {route} answers and has no judge")


def _judge_error(body: Any, exchange: Exchange, anthropic_shape: bool) -> None:
    if anthropic_shape:
        anthropic_stream.check_error(body)
        assert body["request_id"] == exchange.headers["request-id"]
    else:
        assert set(body) == {"error"}
        assert set(body["error"]) == {"message", "type", "param", "code"}
        assert body["error"]["message"]


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _models(body: Any) -> None:
    if "object" in body:
        _adapter(SyncPage[openai.types.Model]).validate_python(body)
    else:
        for model in body["data"]:
            _adapter(anthropic.types.ModelInfo).validate_python(model)


def _model(body: Any) -> None:
    kind = openai.types.Model if "object" in body else anthropic.types.ModelInfo
    _adapter(kind).validate_python(body)


def _items(body: Any) -> None:
    for item in body["data"]:
        _adapter(ResponseItem).validate_python(item)
    _adapter(SyncCursorPage[Any]).validate_python(body)


def _deleted(body: Any) -> None:
    assert set(body) == {"id", "object", "deleted"} and body["deleted"] is True


_BODIES: list[tuple[str, Any]] = [
    (r"POST /v1/responses", sdk_response),
    (r"POST /v1/responses/input_tokens", _adapter(InputTokenCountResponse).validate_python),
    (r"GET /v1/responses/[^/]+", sdk_response),
    (r"DELETE /v1/responses/[^/]+", _deleted),
    (r"POST /v1/responses/[^/]+/cancel", sdk_response),
    (r"GET /v1/responses/[^/]+/input_items", _items),
    (r"POST /v1/messages", anthropic_stream.check_message),
    (r"POST /v1/messages/count_tokens", anthropic_stream.check_count),
    (r"POST /v1/chat/completions", openai_chat.check_completion),
    (r"GET /v1/models", _models),
    (r"GET /v1/models/.+", _model),
]
