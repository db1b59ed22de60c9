"""The core cases with LangChain's clients of both vendors."""

from __future__ import annotations

import anthropic
import cases
import openai
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class Verdict(BaseModel):
    """What was found."""

    answer: str
    sure: bool


@tool
def look(at: str) -> str:
    """Look at something."""
    return f"{at} is blue"


def models(name, **more):
    """A model of that name over each of the three protocols."""
    openai_way = {"base_url": f"{cases.URL}/v1", "api_key": cases.KEY, "max_retries": 0}
    yield ChatOpenAI(model=name, use_responses_api=True, **openai_way, **more)
    yield ChatOpenAI(model=name, use_responses_api=False, stream_usage=True, **openai_way, **more)
    yield ChatAnthropic(
        model=name, base_url=cases.URL, api_key=cases.KEY, max_tokens=400, max_retries=0, **more
    )


def test_text_and_stream():
    for model in models("talker"):
        assert model.invoke("Hi").text == "Hello there, friend."
        chunks = list(model.stream("Hi"))
        assert "".join(chunk.text for chunk in chunks) == "Hello there, friend."
        whole = sum(chunks[1:], chunks[0])
        assert whole.usage_metadata["output_tokens"] > 0


def test_tools_in_two_rounds():
    for model in models("fan"):
        bound, said = model.bind_tools([look]), [HumanMessage("Hi")]
        first = bound.invoke(said)
        assert [call["args"] for call in first.tool_calls] == [{"at": "sky"}, {"at": "sea"}]
        results = [
            ToolMessage(look.invoke(c["args"]), tool_call_id=c["id"]) for c in first.tool_calls
        ]
        assert bound.invoke([*said, first, *results]).text == "Both are blue."
        chunks = list(bound.stream(said))
        assert len(sum(chunks[1:], chunks[0]).tool_calls) == 2


def test_a_conversation():
    for model in models("talker"):
        said = [HumanMessage("Hi")]
        said += [model.invoke(said), HumanMessage("And?")]
        assert model.invoke(said).text == "Again, hello."


def test_form():
    for model in models("schemer"):
        formed = model.with_structured_output(Verdict, method="json_schema")
        assert formed.invoke("Well?") == Verdict(answer="yes", sure=True)


def test_thinking():
    *_, model = models("thinker", thinking={"type": "enabled", "budget_tokens": 50})
    thought, answer = model.invoke("Hm?").content
    assert thought["thinking"].strip() == "I wonder."
    assert answer["text"] == "Forty-two."


def test_stop_sequence():
    _, completions, messages = models("stopper")
    for model in (completions, messages):
        assert model.invoke("Hi", stop=["STOP"]).text == "one two "


def test_count():
    *_, model = models("talker")
    assert model.get_num_tokens_from_messages([HumanMessage("Hi")]) > 0


def test_errors():
    for model in models("nobody"):
        try:
            model.invoke("Hi")
        except (openai.NotFoundError, anthropic.NotFoundError):
            continue
        raise AssertionError("there is no such model")


cases.run(globals())
