"""The core cases with openai-agents, over Responses and over chat completions."""

from __future__ import annotations

import asyncio

import cases
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI, NotFoundError
from pydantic import BaseModel

set_tracing_disabled(True)
KINDS = (OpenAIResponsesModel, OpenAIChatCompletionsModel)


class Verdict(BaseModel):
    answer: str
    sure: bool


@function_tool
def look(at: str) -> str:
    """Look at something."""
    return f"{at} is blue"


def ran(kind, model, tools=(), output_type=None, streams=False, **more):
    """The result of a run, and its text deltas."""

    async def run():
        async with AsyncOpenAI(base_url=f"{cases.URL}/v1", api_key=cases.KEY) as client:
            agent = Agent(
                name="one",
                instructions="Be kind.",
                model=kind(model=model, openai_client=client),
                tools=list(tools),
                output_type=output_type,
                model_settings=more.pop("settings", ModelSettings()),
            )
            if not streams:
                return await Runner.run(agent, "Hi", **more), []
            result, deltas = Runner.run_streamed(agent, "Hi", **more), []
            async for event in result.stream_events():
                told = getattr(event, "data", None)  # of raw events
                if getattr(told, "type", "") == "response.output_text.delta":
                    deltas.append(told.delta)
            return result, deltas

    return asyncio.run(run())


def test_text_and_stream():
    for kind in KINDS:
        plain, _ = ran(kind, "talker")
        assert plain.final_output == "Hello there, friend."
        streamed, deltas = ran(kind, "talker", streams=True)
        assert "".join(deltas) == streamed.final_output == plain.final_output


def test_tools_in_two_rounds():
    for kind in KINDS:
        for streams in (False, True):
            result, _ = ran(kind, "fan", [look], streams=streams)
            assert result.final_output == "Both are blue."
            assert len(result.raw_responses) == 2


def test_form():
    for kind in KINDS:
        result, _ = ran(kind, "schemer", output_type=Verdict)
        assert result.final_output == Verdict(answer="yes", sure=True)


def test_usage_of_reused_tokens():
    result, _ = ran(OpenAIResponsesModel, "fan", [look])
    used = result.context_wrapper.usage
    assert used.requests == 2
    assert used.input_tokens_details.cached_tokens > 0


def test_continuing_by_the_earlier_id():
    first, _ = ran(OpenAIResponsesModel, "talker")
    second, _ = ran(OpenAIResponsesModel, "talker", previous_response_id=first.last_response_id)
    assert second.final_output == "Again, hello."


def test_reasoning():
    settings = ModelSettings(reasoning={"effort": "medium", "summary": "auto"})
    result, _ = ran(OpenAIResponsesModel, "thinker", settings=settings)
    assert [item.type for item in result.new_items] == ["reasoning_item", "message_output_item"]
    assert result.final_output == "Forty-two."


def test_errors():
    for kind in KINDS:
        try:
            ran(kind, "nobody")
        except NotFoundError:
            continue
        raise AssertionError("there is no such model")


cases.run(globals())
