"""Who sees which turns of a host that several people use: W65."""

from __future__ import annotations

import datetime as dt

import pytest

from mlxnb.host.sight import Sight
from mlxnb.link.proof import Identity, owner
from mlxnb.records.turn import TurnRecord

BOB = Identity("bob", "jupyter")


def turn(session: str | None, caller: str) -> TurnRecord:
    now = dt.datetime.now(dt.UTC)
    return TurnRecord("t1", session, "m", "responses", "here", now, caller=caller)


@pytest.mark.parametrize("session", [None, "resp_abcdefgh_0"])
def test_an_answer_is_seen_by_whoever_asked_for_it(session: str | None) -> None:
    """A stored answer's row names its response, which is nobody's session."""
    asked = turn(session, BOB.caller)
    assert Sight(BOB).sees_turn(asked)
    assert not Sight(owner()).sees_turn(asked)
    assert not Sight(Identity("cy", "jupyter")).sees_turn(asked)


def test_the_owners_answers_are_the_owners() -> None:
    asked = turn("resp_abcdefgh_0", "")
    assert Sight(owner()).sees_turn(asked)
    assert not Sight(BOB).sees_turn(asked)
