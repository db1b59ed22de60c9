"""Requests for the engine without sessions around them."""

from __future__ import annotations

import datetime as dt

from mlxnb.bench.null_model import NullDetokenizer, null_model
from mlxnb.engine.core import Core
from mlxnb.engine.events import Done
from mlxnb.engine.request import Request
from mlxnb.engine.sampling import Sampling
from mlxnb.records.turn import TurnRecord
from mlxnb.text.answer import AnswerMachine


def null_core() -> Core:
    """An engine with the null model, that keeps no ledger."""
    core = Core(on_end=lambda request, reason: None)
    core.install("null", core.owner.call(null_model))
    return core


def request(prompt: list[int], max_tokens: int, owner: str | None = None) -> Request:
    """A greedy request of the null model."""
    record = TurnRecord("t", None, "null", "python", "bench", dt.datetime.now(dt.UTC))
    machine = AnswerMachine(
        think=None,
        starts_in_reasoning=False,
        tool_tags=None,
        parse_tool=None,
        tools=None,
        stops=(),
    )
    return Request(
        model="null",
        prompt=prompt,
        sampling=Sampling(max_tokens=max_tokens).settled(),
        record=record,
        machine=machine,
        detokenizer=NullDetokenizer(),
        end_tokens=frozenset({0}),
        owner=owner,
    )


def run(core: Core, requests: list[Request]) -> None:
    """Submit requests together and wait for all."""
    for each in requests:
        core.plan(each)
        core.submit(each, limited=False)
    for each in requests:
        while not isinstance(event := each.events.get(), Done):
            pass
        if event.error is not None:
            raise event.error
