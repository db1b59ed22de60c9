"""The demo model calls functions and answers in a form, as far as it is held to both."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from mlxnb.errors import InvalidOption
from mlxnb.sessions.engine import Engine
from mlxnb.sessions.session import Session

CITIES = ("Oslo", "Paris", "Rome")


class City(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, Field(max_length=20)]
    country: Literal["France", "Italy", "Norway"]
    founded: Annotated[int, Field(ge=-1000, le=2000)]


@pytest.fixture
def session(demo_path: Path, engine: Engine) -> Session:
    """One that may call ``forecast``, whose arguments are kept in ``asked``."""
    engine.load(demo_path, progress=False)
    made: Any = engine.session(system="You are a helpful assistant.", max_tokens=150)
    made.asked = []

    @made.tool(confirm=False)
    def forecast(
        city: Literal["Oslo", "Paris", "Rome"],
        days: Annotated[int, Field(ge=1, le=7)],
        hourly: bool = False,
    ) -> dict[str, Any]:
        """Say how the weather will be.

        Parameters
        ----------
        city
            Where.
        days
            How far ahead.
        """
        made.asked.append((city, days, hourly))
        return {"city": city, "weather": "sunny", "high": 21}

    return made  # type: ignore[no-any-return]


def test_a_call_that_is_forced_has_the_types_that_the_function_wants(session: Any) -> None:
    turn = session.run(
        "What will the weather be in Oslo in the next 3 days?", tool_choice="forecast"
    )
    assert session.asked, "the call was forced"
    for city, days, hourly in session.asked:
        assert city in CITIES
        assert type(days) is int and 1 <= days <= 7
        assert type(hourly) is bool
    assert session.calls()["error"].isna().all()
    assert (turn.finish_reason, turn.tool_calls) == ("stop", [])
    assert session.turns == 2
    assert "sunny" in turn.text


def test_a_tool_that_is_named_is_called_once(session: Any) -> None:
    turn = session.send("What will the weather be in Oslo?", tool_choice="forecast", max_tokens=400)
    assert [call.name for call in turn.tool_calls] == ["forecast"]
    assert (turn.finish_reason, turn.text) == ("tool_calls", "")


def test_a_choice_of_a_tool_that_is_not_there_is_refused(session: Any) -> None:
    with pytest.raises(InvalidOption, match="there is no tool 'other'"):
        session.run("hi", tool_choice="other")
    assert session.turns == 0


def test_an_answer_in_a_form_is_its_value(session: Any) -> None:
    turn = session.send("Describe Rome as JSON.", schema=City, tool_choice="none")
    assert turn.invalid is None
    assert isinstance(turn.parsed, City)
    assert City.model_validate_json(turn.text) == turn.parsed
    assert session.asked == []
