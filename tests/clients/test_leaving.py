"""Clients that close their connection: the engine behind the notebook port is seen to stop."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import anthropic
import openai
import pytest
from link.fake_host import until

from .place import HEADLESS_ALONE, Place

FEW = 200
"""Steps that a model may take until it is told, each well after the last; it would say a thousand
words and more.

That it stops within one step is tested where a test can stop it in between: tests/host.
"""
HI: Any = [{"role": "user", "content": "Go on"}]
Open = Callable[..., Any]


def responses(place: Place, model: str, most: int = 4000) -> Any:
    client = place.openai()
    return client.responses.create(model=model, input="Go on", max_output_tokens=most, stream=True)


def messages(place: Place, model: str, most: int = 4000) -> Any:
    client = place.anthropic()
    return client.messages.create(model=model, messages=HI, max_tokens=most, stream=True)


def completions(place: Place, model: str, most: int = 4000) -> Any:
    client = place.openai()
    return client.chat.completions.create(
        model=model, messages=HI, max_completion_tokens=most, stream=True
    )


DOORS = pytest.mark.parametrize("open_stream", [responses, messages, completions])


@pytest.fixture(autouse=True)
def ready(place: Place) -> None:
    load(place, "long")


def load(place: Place, model: str) -> None:
    """See that a model is loaded, which takes steps of its own, and idle."""
    place.openai().responses.create(model=model, input="Hi", max_output_tokens=1)
    place.wait_idle()


def newest(place: Place) -> dict[str, Any]:
    place.wait_idle()
    return place.turns()[-1]


@DOORS
def test_one_who_leaves_in_prefill(place: Place, open_stream: Open) -> None:  # W43, C22, C25
    with place.gate("long") as gate:
        stream = open_stream(place, "long")
        gate.wait()
        stream.close()
        gate.trickle(place.is_idle, FEW)
    row = newest(place)
    assert row["finish_reason"] == "cancelled"
    assert row["usage"]["output_tokens"] < FEW


@DOORS
def test_one_who_leaves_in_decode(place: Place, open_stream: Open) -> None:  # W43, C25
    with place.gate("long", 10) as gate:
        stream = open_stream(place, "long")
        gate.wait()
        next(iter(stream))
        stream.close()
        gate.trickle(place.is_idle, FEW)
    row = newest(place)
    assert row["finish_reason"] == "cancelled"
    assert 0 < row["usage"]["output_tokens"] < FEW


@DOORS
def test_one_who_leaves_the_queue(place: Place, open_stream: Open) -> None:  # W43
    with place.gate("long") as gate, open_stream(place, "long", FEW + 50) as first:
        gate.wait()
        second = open_stream(place, "long")
        second.close()
        gate.trickle(lambda: place.turns()[-1]["finish_reason"] is not None, FEW)
        assert place.turns()[-1]["finish_reason"] == "cancelled"
        assert place.turns()[-1]["usage"]["output_tokens"] < FEW
        gate.open()
        list(first)
    place.wait_idle()
    assert {row["finish_reason"] for row in place.turns()[-2:]} == {"length", "cancelled"}


@pytest.mark.parametrize("patience", [0.3])
def test_one_who_does_not_stream_and_loses_patience(place: Place, patience: float) -> None:
    with place.gate("long") as gate:
        with pytest.raises(openai.APITimeoutError):
            place.openai(timeout=patience).responses.create(model="long", input="Go on")
        gate.wait()
        gate.open()
        assert newest(place)["finish_reason"] == "cancelled"
    with place.gate("long") as gate:
        with pytest.raises(anthropic.APITimeoutError):
            place.anthropic(timeout=patience).messages.create(
                model="long", messages=HI, max_tokens=4000
            )
        gate.wait()
    assert newest(place)["finish_reason"] == "cancelled"


def test_what_was_computed_for_one_who_left_is_reused(place: Place) -> None:  # C23
    with place.gate("long", 3) as gate:
        stream = place.openai().responses.create(
            model="long", input="Count to a hundred. " * 20, stream=True
        )
        gate.wait()
        stream.close()
    place.wait_idle()
    made = place.openai().responses.create(
        model="long", input="Count to a hundred. " * 20, max_output_tokens=2
    )
    assert made.usage is not None
    assert made.usage.input_tokens_details.cached_tokens > 16


@HEADLESS_ALONE  # a kernel's models are loaded by its cells
@DOORS
def test_one_who_leaves_during_a_load(place: Place, open_stream: Open) -> None:  # W43
    with place.loading("late"):
        stream = open_stream(place, "late")
        stream.close()
    place.wait_idle()
    made = place.openai().responses.create(model="late", input="Hi")
    assert made.output_text == "Better late."
    place.control("POST", "/unload", json={"name": "late"})


# --- too many, too large, changed: by what both kinds of host have in common ------------------


@HEADLESS_ALONE
def test_too_many_are_told_to_come_back(place: Place) -> None:  # W45
    with place.gate("long") as gate, ExitStack() as streams:
        streams.enter_context(responses(place, "long"))
        gate.wait()
        for open_stream in (responses, messages, completions) * 5:
            streams.enter_context(open_stream(place, "long"))
        streams.enter_context(responses(place, "long"))
        with pytest.raises(openai.RateLimitError) as full:
            responses(place, "long")
        assert (full.value.code, full.value.response.headers["retry-after"]) == ("queue_full", "1")
        with pytest.raises(anthropic.RateLimitError):
            messages(place, "long")
        streams.close()
    place.wait_idle()


@HEADLESS_ALONE
def test_the_clients_own_retries_get_through(place: Place) -> None:  # W45
    with ThreadPoolExecutor(1) as pool, place.gate("long") as gate, ExitStack() as streams:
        for _ in range(17):
            streams.enter_context(responses(place, "long"))
        gate.wait()
        patient, before = place.openai(max_retries=5), refused(place)
        asked = pool.submit(
            lambda: patient.responses.create(model="long", input="Hi", max_output_tokens=2)
        )
        until(lambda: refused(place) > before)
        streams.close()
        gate.open()
        assert asked.result(100).status == "incomplete"


def refused(place: Place) -> float:
    """How many requests were told to come back."""
    text = place.server.ask("GET", "/metrics").text
    return sum(map(float, re.findall(r'mlxnb_requests_total\{.*outcome="429".*\} (\S+)', text)))


@HEADLESS_ALONE
def test_a_body_that_is_too_large(place: Place) -> None:  # W58
    large = "x" * (33 * 2**20)
    with pytest.raises(openai.APIStatusError) as refused:
        place.openai().responses.create(model="talker", input=large)
    assert refused.value.status_code == 413
    with pytest.raises(anthropic.RequestTooLargeError):
        place.anthropic().messages.create(
            model="talker", max_tokens=5, messages=[{"role": "user", "content": large}]
        )


def test_a_model_that_goes_under_a_request_is_a_conflict(place: Place) -> None:  # W47
    load(place, "going")
    with ThreadPoolExecutor(3) as pool, place.gate("going") as gate:
        one = pool.submit(place.openai().responses.create, model="going", input="Hi")
        gate.wait()
        two = pool.submit(
            place.anthropic().messages.create, model="going", messages=HI, max_tokens=4000
        )
        until(lambda: place.control("GET", "/status")["in_flight"] == 2)
        unloading = pool.submit(place.control, "POST", "/unload", json={"name": "going"})
        gate.trickle(unloading.done, FEW)
        with pytest.raises(openai.ConflictError) as changed:
            one.result(100)
        assert changed.value.code == "model_changed"
        with pytest.raises(anthropic.ConflictError):
            two.result(100)
        unloading.result(100)
