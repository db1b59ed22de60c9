"""The core cases with anthropic 1.x, which sends its key as x-api-key."""

from __future__ import annotations

import anthropic
import cases
from pydantic import BaseModel

client = anthropic.Anthropic(base_url=cases.URL, api_key=cases.KEY, max_retries=0, timeout=100)
HI = [{"role": "user", "content": "Hi"}]
LOOK = {
    "name": "look",
    "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}},
}


class Verdict(BaseModel):
    answer: str
    sure: bool


def ask(model, messages=HI, **more):
    return {"model": model, "messages": messages, "max_tokens": 100} | more


def text(message):
    return "".join(block.text for block in message.content if block.type == "text")


def test_text_and_stream():
    assert text(client.messages.create(**ask("talker"))) == "Hello there, friend."
    with client.messages.stream(**ask("talker")) as stream:
        assert "".join(stream.text_stream) == "Hello there, friend."


def test_tools_in_two_rounds():
    first = client.messages.create(**ask("fan", tools=[LOOK]))
    assert first.stop_reason == "tool_use"
    assert [block.input for block in first.content] == [{"at": "sky"}, {"at": "sea"}]
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "blue"}
        for block in first.content
    ]
    more = [
        *HI,
        {"role": "assistant", "content": [block.model_dump() for block in first.content]},
        {"role": "user", "content": results},
    ]
    assert text(client.messages.create(**ask("fan", more, tools=[LOOK]))) == "Both are blue."


def test_thinking():
    with client.messages.stream(
        **ask("thinker", thinking={"type": "enabled", "budget_tokens": 50})
    ) as stream:
        thought, answer = stream.get_final_message().content
    assert thought.thinking.strip() == "I wonder." and thought.signature
    assert answer.text == "Forty-two."


def test_stop_sequence():
    made = client.messages.create(**ask("stopper", stop_sequences=["STOP"]))
    assert (made.stop_reason, made.stop_sequence) == ("stop_sequence", "STOP")


def test_form():
    made = client.messages.parse(**ask("schemer", output_format=Verdict))
    assert made.parsed_output == Verdict(answer="yes", sure=True)


def test_count_and_models():
    counted = client.messages.count_tokens(model="talker", messages=HI)
    used = client.messages.create(**ask("talker")).usage
    assert counted.input_tokens == used.input_tokens + used.cache_read_input_tokens
    assert "talker" in {model.id for model in client.models.list()}


def test_errors():
    for error, change in (
        (anthropic.NotFoundError, {"model": "nobody"}),
        (anthropic.BadRequestError, {"max_tokens": 0}),
    ):
        try:
            client.messages.create(**ask("talker") | change)
        except error:
            continue
        raise AssertionError(f"no {error.__name__}")
    stranger = anthropic.Anthropic(base_url=cases.URL, api_key="mlxnb_wrong", max_retries=0)
    try:
        stranger.messages.create(**ask("talker"))
    except anthropic.AuthenticationError as refused:
        assert refused.request_id == refused.body["request_id"]
    else:
        raise AssertionError("a wrong key is refused")


def test_leaving():
    with client.messages.stream(**ask("long", max_tokens=4000)) as stream:
        next(iter(stream.text_stream))


cases.run(globals())
