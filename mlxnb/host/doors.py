"""The protocols that a host speaks."""

from __future__ import annotations

from typing import Any

from mlxnb.host.door import Asked, Door
from mlxnb.sessions.serving.answer import Answer
from mlxnb.sessions.serving.service import Service
from mlxnb.wire import chat, messages, responses, sse


def _responses(service: Service, body: Any, caller: str) -> Asked:
    request = responses.parse(body)
    previous = responses.previous_id(request)
    chain = None if previous is None else service.chain(previous, caller)
    named = responses.references(request)
    outputs = {one: service.stored(one, caller).response["output"] for one in named}
    request = responses.settled(request, chain, outputs)
    compared = responses.compared(request)

    def machine(answer: Answer, request_id: str) -> responses.Machine:
        miss = service.diagnose(answer, compared, caller)
        return responses.Machine(request, answer, miss=miss)

    return Asked(responses.ask(request, chain, caller), request.stream, machine)


def _messages(service: Service, body: Any, caller: str) -> Asked:
    request = messages.parse(body)
    diagnostics = request.diagnostics
    compared = diagnostics.previous_message_id if diagnostics is not None else None

    def machine(answer: Answer, request_id: str) -> messages.Machine:
        miss = service.diagnose(answer, compared, caller)
        return messages.Machine(request, answer, miss=miss, request_id=request_id)

    return Asked(messages.ask(request, caller), request.stream, machine)


def _chat(service: Service, body: Any, caller: str) -> Asked:
    request = chat.parse(body)

    def machine(answer: Answer, request_id: str) -> chat.Machine:
        return chat.Machine(request, answer)

    return Asked(chat.ask(request, caller), bool(request.stream), machine)


RESPONSES = Door("responses", "/v1/responses", "openai", _responses, sse.encode)
MESSAGES = Door("messages", "/v1/messages", "anthropic", _messages, sse.encode)
CHAT = Door("chat_completions", "/v1/chat/completions", "openai", _chat, chat.encode)
DOORS = (RESPONSES, MESSAGES, CHAT)
