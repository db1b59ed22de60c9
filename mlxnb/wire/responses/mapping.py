"""A request as what it asks of a model."""

from __future__ import annotations

import json

from mlxnb.sessions.ask import Ask
from mlxnb.wire.effort import BUDGETS
from mlxnb.wire.responses.history import Chain, Outputs, messages, new_items, referenced
from mlxnb.wire.responses.items import ReferenceItem
from mlxnb.wire.responses.request import PlainFormat, ResponsesRequest, SchemaFormat
from mlxnb.wire.responses.tools import packed


def references(request: ResponsesRequest) -> list[str]:
    """Ids of the stored responses whose items the input names by id, for `settled`."""
    return referenced(request.items)


def settled(
    request: ResponsesRequest, chain: Chain | None, stored: Outputs | None = None
) -> ResponsesRequest:
    """The request with new items alone: what it repeats is left out, what it refers to put in.

    Parameters
    ----------
    chain
        Of ``previous_response_id``.
    stored
        Output items of the responses that `references` names.

    Raises
    ------
    WireError
        400: a call that the stored turn did not make; 404: a reference to what is not stored.
    """
    if chain is None and not any(isinstance(item, ReferenceItem) for item in request.items):
        return request
    return request.model_copy(update={"input": new_items(request.items, chain, stored or {})})


def ask(request: ResponsesRequest, chain: Chain | None, caller: str) -> Ask:
    """What the request wants, in no protocol's terms.

    Parameters
    ----------
    chain
        Of ``previous_response_id``.
    caller
        Who asks, as the door has authenticated them.

    Raises
    ------
    WireError
        400 or 404: what the input says does not fit together.
    """
    request = settled(request, chain)
    pending = chain.pending if chain is not None else None
    choice = request.choice
    tools = () if choice.mode == "none" else packed(request.callables)
    thinking, budget = _thinking(request)
    return Ask(
        model=request.model,
        messages=tuple(messages(request.items, pending)),
        source="responses",
        system=request.instructions,
        tools=tools,
        tool_choice=choice,
        sampling=request.sampling,
        caller=caller,
        cache_salt=request.cache_salt or "",
        key=request.prompt_cache_key,
        previous=request.previous_response_id,
        store=request.store is not False,
        retention_s=request.retention_s,
        thinking=thinking,
        thinking_budget=budget,
        schema=_schema(request),
        metadata=request.metadata or {},
    )


def _thinking(request: ResponsesRequest) -> tuple[bool | None, int | None]:
    effort = request.reasoning.effort if request.reasoning is not None else None
    if effort is None:
        return None, None
    return (False, None) if effort == "none" else (True, BUDGETS[effort])


def _schema(request: ResponsesRequest) -> str | None:
    form = request.text.format if request.text is not None else None
    if isinstance(form, SchemaFormat):
        return json.dumps(form.schema_, ensure_ascii=False)
    if isinstance(form, PlainFormat) and form.type == "json_object":
        return json.dumps({"type": "object"})
    return None
