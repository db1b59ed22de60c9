"""The control routes of sessions as files: whose they are, and what they refuse."""

from __future__ import annotations

from typing import Any

from mlxnb.link.proof import Identity
from mlxnb.sessions.exported_store import kept_file

from .test_control import ANOTHER, call, say_hello
from .world import World

THIRD = Identity("third", "jupyter")


def exported(world: World, who: Any = None, **options: Any) -> dict[str, Any]:
    call(world.client, "POST", "/sessions", {"name": "talk", "options": options}, who)
    say_hello(world, who)
    found: dict[str, Any] = call(world.client, "GET", "/sessions/talk/export", None, who)
    return found["exported"]  # type: ignore[no-any-return]


def test_a_session_is_exported_and_imported(world: World) -> None:
    told = exported(world)
    body = {"exported": told, "name": "other", "model": None}
    made = call(world.client, "POST", "/import", body)
    assert (made["name"], made["turns"], made["note"]) == ("other", 1, None)
    session = world.engine.find_session("talk")
    assert (made["history"], made["tokens"]) == (session.history, session.tokens)


def test_what_is_no_session_is_a_400_that_says_where(world: World) -> None:
    told = {**exported(world), "version": 9}
    answer = call(world.client, "POST", "/import", {"exported": told, "name": "other"})
    assert answer["error"]["class"] == "InvalidOption"
    assert answer["error"]["message"] == (
        "this is no exported session of mlxnb: version: Input should be 1"
    )
    assert len(world.engine.all_sessions()) == 1


def test_names_and_salts_are_those_that_the_user_gave(world: World) -> None:
    told = exported(world, ANOTHER, cache_salt="mine")
    assert (told["name"], told["options"]["cache_salt"]) == ("talk", "mine")
    full = world.engine.find_session("jupyter:another/talk")
    assert full.options.cache_salt == "jupyter:another/mine"


def test_an_import_is_its_user_s_own_and_shares_no_kv_with_others(world: World) -> None:
    told = exported(world, ANOTHER)
    body = {"exported": told, "name": None, "model": None}
    assert call(world.client, "POST", "/import", body, THIRD)["name"] == "talk"
    theirs = world.engine.find_session("jupyter:third/talk")
    assert theirs.options.cache_salt == "jupyter:third/"
    assert theirs.history == world.engine.find_session("jupyter:another/talk").history
    call(world.client, "POST", "/sessions/talk/turns", {"text": "And?"}, THIRD)
    assert world.engine.ledger.last().usage.cached_tokens == 0


def test_kept_sessions_are_each_user_s_own(world: World) -> None:
    exported(world, ANOTHER)
    assert call(world.client, "POST", "/sessions/talk/keep", {}, ANOTHER) == {}
    assert kept_file("jupyter:another/talk").exists()
    for who in (None, THIRD):
        for name in (None, "talk"):
            answer = call(world.client, "POST", "/restore", {"name": name}, who)
            assert answer["error"]["class"] == "UnknownSession"
            assert "another" not in answer["error"]["message"]
    world.engine.remove_session("jupyter:another/talk")
    found = call(world.client, "POST", "/restore", {"name": None}, ANOTHER)
    assert (found["name"], found["turns"]) == ("talk", 1)


def test_tools_are_taken_and_told(world: World) -> None:
    exported(world)
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    told = call(world.client, "POST", "/sessions/talk/tools", {"tools": [tool]})
    assert world.engine.find_session("talk").options.tool_list == [tool]
    assert len(told["options"]["tools"]) == 1
    wrong = call(world.client, "POST", "/sessions/talk/tools", {"tools": [3]})
    assert wrong["error"]["class"] == "InvalidOption"


def test_nothing_cannot_be_said(world: World) -> None:
    exported(world)
    answer = call(world.client, "POST", "/sessions/talk/turns", {"text": None})
    assert answer["error"]["message"].startswith("a message is a string")
