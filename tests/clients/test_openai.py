"""OpenAI's newest client through the notebook port: Responses, and chat completions."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai import pydantic_function_tool
from pydantic import BaseModel

from .place import Place

LOOK: Any = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    "strict": False,
}
LOOK_IN_CHAT: Any = {
    "type": "function",
    "function": {"name": "look", "parameters": LOOK["parameters"]},
}
HI: Any = [{"role": "user", "content": "Hi"}]


class Verdict(BaseModel):
    answer: str
    sure: bool


class Colour(BaseModel):
    colour: str


# --- Responses: text --------------------------------------------------------------------------


def test_text(place: Place) -> None:
    made = place.openai().responses.create(model="talker", input="Hi")
    assert made.output_text == "Hello there, friend."
    assert (made.status, made.model) == ("completed", "talker")


def test_the_stream_helper_adds_up_to_the_plain_answer(place: Place) -> None:  # W29, W31, W40
    client = place.openai()
    plain = client.responses.create(model="talker", input="Hi")
    with client.responses.stream(model="talker", input="Hi") as stream:
        told = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert len(told) > 1
    assert "".join(told) == final.output_text == plain.output_text


def test_a_raw_stream_ends_with_its_response(place: Place) -> None:
    *_, last = place.openai().responses.create(model="talker", input="Hi", stream=True)
    assert last.type == "response.completed"
    assert last.response.output_text == "Hello there, friend."


async def _async_text(place: Place) -> str:
    client = openai.AsyncOpenAI(base_url=f"{place.url}/v1", api_key=place.server.key)
    async with client, client.responses.stream(model="talker", input="Hi") as stream:
        return "".join([e.delta async for e in stream if e.type == "response.output_text.delta"])


def test_the_client_for_asyncio_streams(place: Place) -> None:
    import asyncio

    assert asyncio.run(_async_text(place)) == "Hello there, friend."


def test_the_length_cuts_an_answer(place: Place) -> None:  # W32
    made = place.openai().responses.create(model="long", input="Hi", max_output_tokens=5)
    assert made.status == "incomplete"
    assert made.incomplete_details is not None
    assert made.incomplete_details.reason == "max_output_tokens"


def test_aliases_are_echoed(place: Place) -> None:  # W9, C52
    made = place.openai().responses.create(model="gpt-9-mini", input="Hi")
    assert made.model == "gpt-9-mini"
    assert place.turns()[-1]["model"] == "talker"


def test_a_stop_sequence_ends_the_text(place: Place) -> None:  # W39
    client = place.openai()
    with client.responses.stream(
        model="stopper", input="Count", extra_body={"stop": ["STOP"]}
    ) as stream:
        assert stream.get_final_response().output_text == "one two "
    made = client.responses.create(model="stopper", input="Count", extra_body={"stop": "STOP"})
    assert (made.status, made.output_text) == ("completed", "one two ")


def test_the_demo_model_answers(place: Place) -> None:
    client = place.openai()
    asked: Any = {"model": "demo", "input": "Say hello.", "temperature": 0, "max_output_tokens": 8}
    plain = client.responses.create(**asked)
    *_, last = client.responses.create(**asked, stream=True)
    final = last.response
    assert plain.output_text == final.output_text != ""
    assert final.usage.input_tokens_details.cached_tokens > 0


# --- Responses: tools, reasoning, forms -------------------------------------------------------


def outputs(response: Any, said: str = "blue") -> list[Any]:
    calls = [item for item in response.output if item.type == "function_call"]
    return [
        {"type": "function_call_output", "call_id": call.call_id, "output": said} for call in calls
    ]


def test_tools_in_two_rounds_with_the_history(place: Place) -> None:  # W11, W32
    client = place.openai()
    history: list[Any] = [{"role": "user", "content": "Look"}]
    first = client.responses.create(model="caller", input=history, tools=[LOOK])
    (call,) = first.output
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments)) == ("look", {"at": "sky"})
    history += [item.to_dict() for item in first.output] + outputs(first)
    second = client.responses.create(model="caller", input=history, tools=[LOOK])
    assert second.output_text == "The sky is blue."
    assert second.usage is not None
    assert second.usage.input_tokens_details.cached_tokens > 0


def test_tools_in_two_rounds_by_the_earlier_id_on_streams(place: Place) -> None:  # W12, W19
    client = place.openai()
    with client.responses.stream(model="fan", input="Look", tools=[LOOK]) as stream:
        told = [e for e in stream if e.type == "response.function_call_arguments.delta"]
        first = stream.get_final_response()
    assert [item.type for item in first.output] == ["function_call", "function_call"]
    assert "".join(event.delta for event in told) == '{"at": "sky"}{"at": "sea"}'
    with client.responses.stream(
        model="fan",
        input=outputs(first)[::-1],  # siblings in any order
        tools=[LOOK],
        previous_response_id=first.id,
    ) as stream:
        assert stream.get_final_response().output_text == "Both are blue."


def test_one_call_at_most_where_only_one_is_wanted(place: Place) -> None:  # W16
    made = place.openai().responses.create(
        model="fan", input="Look", tools=[LOOK], parallel_tool_calls=False
    )
    assert [item.type for item in made.output] == ["function_call"]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "look"}])
def test_a_call_can_be_forced(place: Place, choice: Any) -> None:  # W16
    tool = LOOK | {"parameters": {"type": "object", "properties": {"at": {"enum": ["sky", "sea"]}},
                                  "required": ["at"], "additionalProperties": False}}  # fmt: skip
    made = place.openai().responses.create(
        model="talker", input="Hi", tools=[tool], tool_choice=choice
    )
    (call,) = made.output
    assert call.type == "function_call"
    assert json.loads(call.arguments)["at"] in ("sky", "sea")


def test_no_call_where_none_is_wanted(place: Place) -> None:  # W16, W37
    made = place.openai().responses.create(
        model="caller", input="Look", tools=[LOOK], tool_choice="none"
    )
    assert [item.type for item in made.output] == ["message"]
    assert "look" in made.output_text and "<tool_call>" not in made.output_text


def test_custom_tools_get_calls_of_their_kind(place: Place) -> None:  # C33
    tool: Any = {"type": "custom", "name": "look"}
    made = place.openai().responses.create(model="caller", input="Look", tools=[tool])
    assert [item.type for item in made.output] == ["custom_tool_call"]


def test_reasoning_is_a_summary(place: Place) -> None:  # W30
    with place.openai().responses.stream(
        model="thinker", input="Hm?", reasoning={"effort": "medium", "summary": "auto"}
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert [item.type for item in final.output] == ["reasoning", "message"]
    assert final.output[0].summary[0].text.strip() == "I wonder."  # type: ignore[union-attr]
    assert final.output_text == "Forty-two."
    assert kinds.index("response.reasoning_summary_part.done") < kinds.index(
        "response.content_part.added"
    )
    assert final.usage is not None
    assert final.usage.output_tokens_details.reasoning_tokens > 0


def test_reasoning_is_not_sent_where_no_summary_is_asked_for(place: Place) -> None:  # W17
    made = place.openai().responses.create(model="thinker", input="Hm?")
    assert [item.type for item in made.output] == ["message"]
    assert made.output_text == "Forty-two."


def test_parse_reads_what_has_the_form(place: Place) -> None:  # W16
    client = place.openai()
    made = client.responses.parse(model="schemer", input="Well?", text_format=Verdict)
    assert made.output_parsed == Verdict(answer="yes", sure=True)
    with client.responses.stream(model="schemer", input="Well?", text_format=Verdict) as stream:
        assert stream.get_final_response().output_parsed == Verdict(answer="yes", sure=True)


def test_the_form_is_enforced(place: Place) -> None:  # W16
    schema = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}},
              "required": ["colour"], "additionalProperties": False}  # fmt: skip
    made = place.openai().responses.create(
        model="talker",  # which would say something else
        input="Which?",
        text={"format": {"type": "json_schema", "name": "c", "schema": schema, "strict": True}},
    )
    assert Colour.model_validate_json(made.output_text).colour in ("red", "blue")


# --- Responses: what is stored ----------------------------------------------------------------


def test_a_continuation_hits(place: Place) -> None:  # W19, W21, W23
    client = place.openai()
    first = client.responses.create(model="talker", input="Hi", instructions="Be kind.")
    raw = client.responses.with_raw_response.create(
        model="talker", input="And?", previous_response_id=first.id
    )
    made = raw.parse()
    assert made.output_text == "Again, hello."
    assert raw.headers["x-session-cache"] == "hit"
    assert made.usage is not None
    assert int(raw.headers["x-cached-tokens"]) <= made.usage.input_tokens_details.cached_tokens
    assert made.previous_response_id == first.id
    third = client.responses.create(model="talker", input="?", previous_response_id=made.id)
    assert third.output_text == "And once more."


def test_a_stored_response_is_read_and_deleted(place: Place) -> None:
    client = place.openai()
    made = client.responses.create(model="talker", input="Remember this", metadata={"for": "later"})
    assert client.responses.retrieve(made.id).to_dict() == made.to_dict()
    (item,) = client.responses.input_items.list(made.id).data
    assert item.content[0].text == "Remember this"  # type: ignore[union-attr]
    assert client.responses.cancel(made.id).status == "completed"
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="talker", input="?", previous_response_id=made.id)


def test_what_is_not_to_be_stored_is_not(place: Place) -> None:  # W23
    client = place.openai()
    made = client.responses.create(model="talker", input="Hi", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_another_keys_responses_are_not_there(place: Place) -> None:  # W65
    from mlxnb.link import keys

    made = place.openai().responses.create(model="talker", input="Hi")
    other = place.openai(keys.new(f"other-{made.id[-8:]}"))
    for ask in (other.responses.retrieve, other.responses.delete, other.responses.cancel):
        with pytest.raises(openai.NotFoundError):
            ask(made.id)


def test_a_running_response_is_cancelled_by_its_id(place: Place) -> None:
    client = place.openai()
    with (
        place.gate("long", 5) as gate,
        client.responses.stream(model="long", input="Go on") as stream,
    ):
        created = next(iter(stream))
        gate.wait()
        assert client.responses.cancel(created.response.id).status == "cancelled"  # type: ignore[union-attr]
        gate.open()
        with pytest.raises(openai.APIError, match="cancelled"):
            list(stream)
    assert place.turns()[-1]["finish_reason"] == "cancelled"


def test_diagnostics_name_what_was_missed(place: Place) -> None:  # W60
    client = place.openai()
    first = client.responses.create(model="talker", input="Hi", instructions="Be kind. " * 30)
    again = client.responses.create(
        model="talker",
        input="Hi",
        instructions="Be rude. " * 30,
        prompt_cache_options={"comparison_response_id": first.id},
    )
    found: Any = again.prompt_cache_diagnostics
    assert (found.type, found.reason) == ("cache_miss", "input_changed")
    assert found.cache_missed_tokens > 0
    unknown = client.responses.create(
        model="talker", input="Hi", prompt_cache_options={"comparison_response_id": "resp_no"}
    )
    assert unknown.prompt_cache_diagnostics is not None
    assert unknown.prompt_cache_diagnostics.type == "comparison_response_not_found"


# --- counts and lists -------------------------------------------------------------------------


def test_tokens_are_counted_as_they_are_prompted(place: Place) -> None:
    client = place.openai()
    asked: Any = {"model": "caller", "input": "Look there", "tools": [LOOK]}
    counted = client.responses.input_tokens.count(**asked)
    made = client.responses.create(**asked)
    assert made.usage is not None
    assert counted.input_tokens == made.usage.input_tokens


def test_usage_adds_up_and_agrees_with_the_frame(place: Place) -> None:  # W26, W28
    with place.openai().responses.stream(model="talker", input="Hi") as stream:
        usage: Any = stream.get_final_response().usage
    row = place.turns()[-1]
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert usage.input_tokens == usage.prefill_input_tokens + getattr(
        usage, "cached_prefix_tokens", 0
    )
    assert usage.output_tokens == row["usage"]["output_tokens"]
    assert usage.server_total_time_to_first_token_ms == pytest.approx(
        row["timing"]["ttft_s"] * 1000
    )
    assert usage.server_load_owner in (True, False)


@pytest.mark.parametrize(
    "asked", [{"extra_body": {"timings": False}}, {"extra_headers": {"X-Mlxnb-Timings": "false"}}]
)
def test_timings_can_be_left_out(place: Place, asked: dict[str, Any]) -> None:  # W28
    made = place.openai().responses.create(model="talker", input="Hi", **asked)
    assert made.usage is not None
    assert not made.usage.model_extra


def test_models_are_listed(place: Place) -> None:
    client = place.openai()
    names = {model.id for model in client.models.list()}
    assert {"talker", "demo"} <= names
    assert client.models.retrieve("gpt-9").owned_by == "mlxnb"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody/at/all")


# --- chat completions -------------------------------------------------------------------------


def test_a_completion_plain_and_by_the_stream_helper(place: Place) -> None:
    client = place.openai()
    plain = client.chat.completions.create(model="talker", messages=HI)
    with client.chat.completions.stream(
        model="talker", messages=HI, stream_options={"include_usage": True}
    ) as stream:
        told = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    text = plain.choices[0].message.content
    assert "".join(told) == final.choices[0].message.content == text == "Hello there, friend."
    assert final.usage is not None


def test_a_completions_tools_in_two_rounds(place: Place) -> None:
    client = place.openai()
    with client.chat.completions.stream(model="fan", messages=HI, tools=[LOOK_IN_CHAT]) as stream:
        first = stream.get_final_completion().choices[0]
    assert first.finish_reason == "tool_calls"
    calls = first.message.tool_calls or []
    assert [json.loads(call.function.arguments)["at"] for call in calls] == ["sky", "sea"]
    said = first.message.model_dump(
        include={
            "role": True,
            "content": True,
            "tool_calls": {"__all__": {"id", "type", "function"}},
        }
    )
    results: Any = [{"role": "tool", "tool_call_id": c.id, "content": "blue"} for c in calls]
    second = client.chat.completions.create(
        model="fan", messages=[*HI, said, *results], tools=[LOOK_IN_CHAT]
    )
    assert second.choices[0].message.content == "Both are blue."


def test_a_completions_form(place: Place) -> None:
    made = place.openai().chat.completions.parse(
        model="schemer", messages=HI, response_format=Verdict
    )
    assert made.choices[0].message.parsed == Verdict(answer="yes", sure=True)


def test_a_completions_call_is_forced_and_parsed(place: Place) -> None:
    class Look(BaseModel):
        at: str

    tool = pydantic_function_tool(Look, name="look")
    made = place.openai().chat.completions.parse(
        model="caller",
        messages=HI,
        tools=[tool],
        tool_choice={"type": "function", "function": {"name": "look"}},
    )
    (call,) = made.choices[0].message.tool_calls or []
    assert call.function.parsed_arguments == Look(at="sky")


def test_a_completion_reasons_and_stops(place: Place) -> None:
    client = place.openai()
    thought = client.chat.completions.create(model="thinker", messages=HI).choices[0].message
    assert thought.content == "Forty-two."
    assert thought.reasoning_content.strip() == "I wonder."  # type: ignore[attr-defined]
    cut = client.chat.completions.create(model="stopper", messages=HI, stop="STOP").choices[0]
    assert (cut.message.content, cut.finish_reason) == ("one two ", "stop")


# --- errors -----------------------------------------------------------------------------------


def test_mistakes_are_the_clients_own_errors(place: Place) -> None:  # W3
    client = place.openai()
    with pytest.raises(openai.NotFoundError, match="talker") as missing:
        client.responses.create(model="nobody", input="Hi")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="max_output_tokens"):
        client.responses.create(model="talker", input="Hi", max_output_tokens=0)
    with pytest.raises(openai.BadRequestError) as long:
        client.responses.create(model="talker", input="word " * 5000)
    assert long.value.code == "context_length_exceeded"
    orphan: Any = {"type": "function_call_output", "call_id": "call_x", "output": "blue"}
    with pytest.raises(openai.BadRequestError, match="call_x"):
        client.responses.create(model="caller", input=[orphan])
    image: Any = {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"}
    with pytest.raises(openai.BadRequestError, match="input_image"):
        client.responses.create(model="talker", input=[{"role": "user", "content": [image]}])
    with pytest.raises(openai.AuthenticationError):
        place.openai("mlxnb_wrong").responses.create(model="talker", input="Hi")
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="talker", input="Hi", previous_response_id="resp_x")
    with pytest.raises(openai.BadRequestError, match="n"):
        client.chat.completions.create(model="talker", messages=HI, n=2)


def test_what_is_not_here_is_not_found(place: Place) -> None:  # W2
    client = place.openai()
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="talker", input="Hi")
