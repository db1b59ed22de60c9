"""Anthropic's newest client through the notebook port."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import pytest
from pydantic import BaseModel

from .place import Place

LOOK: Any = {
    "name": "look",
    "input_schema": {
        "type": "object",
        "properties": {"at": {"type": "string"}},
        "required": ["at"],
    },
}
HI: Any = [{"role": "user", "content": "Hi"}]


class Verdict(BaseModel):
    answer: str
    sure: bool


def ask(model: str, messages: Any = HI, **more: Any) -> Any:
    return {"model": model, "messages": messages, "max_tokens": 100} | more


def text(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


# --- text -------------------------------------------------------------------------------------


def test_text(place: Place) -> None:
    made = place.anthropic().messages.create(**ask("talker"))
    assert (text(made), made.stop_reason) == ("Hello there, friend.", "end_turn")


def test_the_stream_helper_adds_up_to_the_plain_answer(place: Place) -> None:  # W34, W40
    with place.anthropic().messages.stream(**ask("talker")) as stream:
        told = list(stream.text_stream)
        final = stream.get_final_message()
    assert len(told) > 1
    assert "".join(told) == text(final) == "Hello there, friend."


def test_a_raw_stream_ends_with_message_stop(place: Place) -> None:
    *_, last = place.anthropic().messages.create(**ask("talker"), stream=True)
    assert last.type == "message_stop"


async def _async_text(place: Place) -> str:
    client = anthropic.AsyncAnthropic(base_url=place.url, api_key=place.server.key)
    async with client, client.messages.stream(**ask("talker")) as stream:
        return await stream.get_final_text()


def test_the_client_for_asyncio_streams(place: Place) -> None:
    assert asyncio.run(_async_text(place)) == "Hello there, friend."


def test_a_bearer_token_is_as_good_as_x_api_key(place: Place) -> None:  # W4
    client = anthropic.Anthropic(base_url=place.url, auth_token=place.server.key, api_key=None)
    with client:
        assert text(client.messages.create(**ask("talker"))) == "Hello there, friend."


def test_the_length_cuts_an_answer(place: Place) -> None:
    made = place.anthropic().messages.create(**ask("long", max_tokens=5))
    assert made.stop_reason == "max_tokens"


def test_a_stop_sequence_is_named(place: Place) -> None:  # W36
    client = place.anthropic()
    with client.messages.stream(**ask("stopper", stop_sequences=["STOP", " "])) as stream:
        final = stream.get_final_message()
    assert (text(final), final.stop_reason, final.stop_sequence) == (
        "one two ",
        "stop_sequence",
        "STOP",
    )


def test_a_conversation_reuses_its_prefix(place: Place) -> None:  # W18, W21, W27
    client = place.anthropic()
    first = client.messages.create(**ask("talker", system="Answer kindly."))
    said = {"role": "assistant", "content": [b.to_dict() for b in first.content]}
    more = [*HI, said, {"role": "user", "content": "And?"}]
    raw = client.messages.with_raw_response.create(**ask("talker", more, system="Answer kindly."))
    second = raw.parse()
    assert text(second) == "Again, hello."
    assert raw.headers["x-session-cache"] == "prefix_hit"
    used = second.usage
    counted = client.messages.count_tokens(
        model="talker", messages=more, system="Answer kindly."
    ).input_tokens
    assert (used.cache_read_input_tokens or 0) >= first.usage.output_tokens
    assert (
        used.input_tokens
        + (used.cache_read_input_tokens or 0)
        + (used.cache_creation_input_tokens or 0)
        == counted
    )


def test_a_changing_billing_line_does_not_defeat_the_cache(place: Place) -> None:  # W17, C27
    client = place.anthropic()
    for number in range(2):
        system: Any = [
            {"type": "text", "text": f"x-anthropic-billing-header: {number}"},
            {"type": "text", "text": "You look at things. " * 10},
        ]
        made = client.messages.create(**ask("talker", system=system))
    assert (made.usage.cache_read_input_tokens or 0) > made.usage.input_tokens


def test_an_answer_goes_on_from_its_beginning(place: Place) -> None:  # W17
    begun = [*HI, {"role": "assistant", "content": "Hello there,"}]
    assert text(place.anthropic().messages.create(**ask("talker", begun))) == " friend."


def test_the_demo_model_answers(place: Place) -> None:
    asked = ask("demo", max_tokens=8, extra_body={"temperature": 0})
    client = place.anthropic()
    plain = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        assert text(stream.get_final_message()) == text(plain) != ""


# --- tools, thinking, forms -------------------------------------------------------------------


def results(message: Any, **more: Any) -> Any:
    calls = [block for block in message.content if block.type == "tool_use"]
    return {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": call.id, "content": "blue", **more}
            for call in calls
        ],
    }


@pytest.mark.parametrize("model", ["caller", "fan"])
def test_tools_in_two_rounds(place: Place, model: str) -> None:  # W11, W34
    client = place.anthropic()
    first = client.messages.create(**ask(model, tools=[LOOK]))
    assert first.stop_reason == "tool_use"
    assert [block.type for block in first.content] == ["tool_use"] * (2 if model == "fan" else 1)
    assert first.content[0].input == {"at": "sky"}  # type: ignore[union-attr]
    said = {"role": "assistant", "content": [block.to_dict() for block in first.content]}
    with client.messages.stream(**ask(model, [*HI, said, results(first)], tools=[LOOK])) as stream:
        second = stream.get_final_message()
    assert "blue" in text(second)
    assert (second.usage.cache_read_input_tokens or 0) > 0


def test_tools_on_a_stream(place: Place) -> None:  # W34
    with place.anthropic().messages.stream(**ask("fan", tools=[LOOK])) as stream:
        parts = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    assert "".join(parts) == '{"at": "sky"}{"at": "sea"}'
    assert [block.input for block in final.content] == [{"at": "sky"}, {"at": "sea"}]  # type: ignore[union-attr]


def test_the_tool_runner_runs_to_the_end(place: Place) -> None:
    @anthropic.beta_tool
    def look(at: str) -> str:
        """Look at something.

        Args:
            at: What.
        """
        seen.append(at)
        return "blue"

    seen: list[str] = []
    runner = place.anthropic().beta.messages.tool_runner(**ask("fan", tools=[look]))
    assert text(runner.until_done()) == "Both are blue."
    assert sorted(seen) == ["sea", "sky"]


def test_one_call_at_most_where_only_one_is_wanted(place: Place) -> None:  # W17
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    made = place.anthropic().messages.create(**ask("fan", tools=[LOOK], tool_choice=choice))
    assert len(made.content) == 1


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "look"}])
def test_a_call_can_be_forced(place: Place, choice: Any) -> None:  # W17
    schema = {"type": "object", "properties": {"at": {"enum": ["sky", "sea"]}},
              "required": ["at"], "additionalProperties": False}  # fmt: skip
    tool = {"name": "look", "input_schema": schema}
    made = place.anthropic().messages.create(**ask("talker", tools=[tool], tool_choice=choice))
    assert made.stop_reason == "tool_use"
    assert made.content[0].input["at"] in ("sky", "sea")  # type: ignore[union-attr]


def test_thinking_comes_first_and_goes_back(place: Place) -> None:  # W17, W34, C31
    client = place.anthropic()
    thinking = {"type": "enabled", "budget_tokens": 50}
    with client.messages.stream(**ask("thinker", thinking=thinking)) as stream:
        first = stream.get_final_message()
    thought, answer = first.content
    assert thought.type == "thinking" and thought.thinking.strip() == "I wonder."
    assert thought.signature
    assert answer.type == "text" and answer.text == "Forty-two."
    said = {"role": "assistant", "content": [block.to_dict() for block in first.content]}
    more = [*HI, said, {"role": "user", "content": "Sure?"}]
    assert text(client.messages.create(**ask("thinker", more, thinking=thinking))) == "Yes."


def test_omitted_thinking_is_carried_by_its_signature(place: Place) -> None:  # W17
    thinking = {"type": "adaptive", "display": "omitted"}
    made = place.anthropic().messages.create(**ask("thinker", thinking=thinking))
    (thought,) = (block for block in made.content if block.type == "thinking")
    assert thought.thinking == "" and thought.signature


def test_parse_reads_what_has_the_form(place: Place) -> None:  # W17
    client = place.anthropic()
    made = client.messages.parse(**ask("schemer", output_format=Verdict))
    assert made.parsed_output == Verdict(answer="yes", sure=True)
    with client.messages.stream(**ask("schemer", output_format=Verdict)) as stream:
        assert stream.get_final_message().parsed_output == Verdict(answer="yes", sure=True)


# --- counts, diagnostics, lists ---------------------------------------------------------------


def test_tokens_are_counted_as_they_are_prompted(place: Place) -> None:  # W51
    client = place.anthropic()
    asked: Any = {"model": "caller", "messages": HI, "tools": [LOOK], "system": "Look."}
    counted = client.messages.count_tokens(**asked)
    used = client.messages.create(**asked, max_tokens=5).usage
    assert counted.input_tokens == used.input_tokens + (used.cache_read_input_tokens or 0)


def test_the_first_event_has_the_counts_already(place: Place) -> None:  # W27, W28
    with place.anthropic().messages.stream(**ask("talker")) as stream:
        events = list(stream)
    start = next(event.message.usage for event in events if event.type == "message_start")
    delta: Any = next(event.usage for event in events if event.type == "message_delta")
    assert (start.input_tokens, start.cache_read_input_tokens) == (
        delta.input_tokens,
        delta.cache_read_input_tokens,
    )
    assert delta.server_total_time_to_first_token_ms > 0
    assert delta.output_tokens == place.turns()[-1]["usage"]["output_tokens"]


def test_diagnostics_name_what_was_missed(place: Place) -> None:  # W60
    client = place.anthropic()
    first = client.messages.create(
        **ask("talker", system="Be kind. " * 30, diagnostics={"previous_message_id": None})
    )
    assert first.diagnostics is None
    again = client.messages.create(
        **ask("talker", system="Be curt. " * 30, diagnostics={"previous_message_id": first.id})
    )
    assert again.diagnostics is not None
    reason: Any = again.diagnostics.cache_miss_reason
    assert reason.type == "system_changed"
    assert reason.cache_missed_input_tokens > 0


def test_models_are_listed(place: Place) -> None:
    client = place.anthropic()
    assert {"talker", "demo"} <= {model.id for model in client.models.list()}
    assert client.models.retrieve("claude-9").max_input_tokens == 4096  # C52
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("nobody")


# --- errors -----------------------------------------------------------------------------------


def test_mistakes_are_the_clients_own_errors(place: Place) -> None:  # W3
    client = place.anthropic()
    with pytest.raises(anthropic.NotFoundError, match="talker"):
        client.messages.create(**ask("nobody"))
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        client.messages.create(**ask("talker", max_tokens=0))
    with pytest.raises(anthropic.BadRequestError, match="messages"):
        client.messages.create(**ask("talker", []))
    with pytest.raises(anthropic.BadRequestError, match="context window"):
        client.messages.create(**ask("talker", [{"role": "user", "content": "word " * 5000}]))
    orphan = {"type": "tool_result", "tool_use_id": "toolu_x", "content": "blue"}
    with pytest.raises(anthropic.BadRequestError, match="toolu_x"):
        client.messages.create(**ask("talker", [*HI, {"role": "user", "content": [orphan]}]))
    with pytest.raises(anthropic.AuthenticationError) as refused:
        place.anthropic("mlxnb_wrong").messages.create(**ask("talker"))
    body: Any = refused.value.body
    assert body["request_id"] == refused.value.request_id


def test_a_thread_is_refused_in_the_words_that_the_client_knows(place: Place) -> None:  # W54
    with pytest.raises(anthropic.BadRequestError) as refused:
        place.anthropic().messages.create(**ask("talker", extra_body={"thread": {"id": "x"}}))
    body: Any = refused.value.body
    assert body["error"]["details"] == {
        "error_code": "thread_unsupported_request",
        "unsupported": ["thread"],
    }
