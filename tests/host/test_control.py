"""The control routes: what another process's notebook sees of this host, and does there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlxnb.host.control.rows import from_json, record_from_json
from mlxnb.link.client import Client
from mlxnb.link.proof import Identity
from mlxnb.models.info import ModelInfo
from mlxnb.records.block_row import BlockRow
from mlxnb.records.explain import Explanation
from mlxnb.records.frames import (
    memory_frame,
    models_frame,
    prefix_frame,
    sessions_frame,
    turns_frame,
)
from mlxnb.records.memory_row import MemoryRow
from mlxnb.records.session_row import SessionRow
from mlxnb.records.turn import Turn

from .talk import JSON, events, get, post, wait_until
from .world import World

ANOTHER = Identity("another", "jupyter")
API = "/mlxnb/api"


def call(client: Client, method: str, path: str, body: Any = None, who: Any = None) -> Any:
    content = None if body is None else json.dumps(body).encode()
    with client.stream(method, API + path, body=content, headers=JSON, identity=who) as answer:
        answer.read()
    if answer.headers["content-type"].startswith("text/event-stream"):
        return list(events(iter(answer.text.split("\n"))))
    return answer.json()


def say_hello(world: World, who: Any = None, name: str = "talk") -> list[tuple[str, Any]]:
    call(world.client, "POST", "/sessions", {"name": name}, who)
    told: list[tuple[str, Any]] = call(
        world.client, "POST", f"/sessions/{name}/turns", {"text": "Hi"}, who
    )
    return told


def test_frames_come_over_as_they_are_here(world: World) -> None:
    say_hello(world)
    records = map(record_from_json, call(world.client, "GET", "/turns")["turns"])
    blocks = from_json(list[BlockRow], call(world.client, "GET", "/prefix?text=1")["blocks"])
    sessions = from_json(list[SessionRow], call(world.client, "GET", "/sessions")["sessions"])
    models = from_json(list[ModelInfo], call(world.client, "GET", "/models")["models"])
    assert turns_frame(records, wide=True).equals(world.engine.turns(wide=True))
    assert prefix_frame(blocks).equals(world.engine.prefix_cache())
    assert sessions_frame(sessions).equals(world.engine.sessions())
    assert models_frame(models).equals(world.engine.models())
    memory = memory_frame([from_json(MemoryRow, call(world.client, "GET", "/memory")["memory"])])
    same = ["weights_bytes", "kv_bytes", "snapshots_bytes", "budget_bytes", "reserve_bytes"]
    assert memory[same].equals(world.engine.memory()[same])


def test_a_turn_is_followed_as_it_is_generated(world: World) -> None:
    told = say_hello(world)
    names = [name for name, _ in told]
    assert names.index("prefill") < names.index("piece")
    assert names[-1] == "turn"
    text = "".join(payload["text"] for name, payload in told if name == "piece")
    turn = from_json(Turn, told[-1][1]["turn"])
    assert text == turn.text == "Hello."
    assert record_from_json(told[-1][1]["record"]).source == "python"


def test_a_session_is_continued_forked_and_set_back(world: World) -> None:
    say_hello(world)
    second = call(world.client, "POST", "/sessions/talk/turns", {"text": "And?"})
    assert second[-1][1]["turn"]["text"] == "Again."
    fork = call(world.client, "POST", "/sessions/talk/fork", {"name": "other"})
    assert (fork["name"], fork["forked_from"], fork["turns"]) == ("other", "talk", 2)
    assert call(world.client, "POST", "/sessions/talk/rewind", {"turns": 1})["turns"] == 1
    assert call(world.client, "POST", "/sessions/talk/reset", {})["history"] == []
    assert call(world.client, "DELETE", "/sessions/talk") == {}
    assert [s["name"] for s in call(world.client, "GET", "/sessions")["sessions"]] == ["other"]


def test_explain_comes_over(world: World) -> None:
    say_hello(world)
    turn = world.engine.ledger.last().turn_id
    told = call(world.client, "GET", f"/explain/{turn}")["explanation"]
    assert from_json(Explanation, told) == world.engine.explain(turn)


def test_texts_of_http_turns_are_told_only_where_they_are_asked_for(world: World) -> None:  # W67
    body = {"model": "talker", "input": "some secret words"}
    assert post(world.client, body, "/mlxnb/v1/responses").status_code == 200
    turn = world.engine.ledger.last().turn_id
    for path, shown in (("", False), ("?text=1", True)):
        told = json.dumps(call(world.client, "GET", f"/explain/{turn}{path}"))
        assert ("secret" in told) is shown
        assert ("secret" in json.dumps(call(world.client, "GET", f"/prefix{path}"))) is shown


def test_a_load_is_told_as_it_goes_on(world: World) -> None:
    assert call(world.client, "POST", "/unload", {"name": "talker"}) == {}
    assert call(world.client, "GET", "/status")["health"]["loaded"] == []
    told = call(world.client, "POST", "/load", {"name": "no-such-model-anywhere"})
    assert [name for name, _ in told] == ["failed"]
    assert told[0][1]["error"]["code"] == "model_not_found"


def test_the_budget_and_pins_are_changed(world: World) -> None:
    say_hello(world)
    assert call(world.client, "POST", "/budget", {"bytes": 2**25}) == {"bytes": 2**25}
    assert world.engine.budget == 2**25
    block = world.engine.prefix_cache()["block_id"][0]
    call(world.client, "POST", "/pin", {"block": block, "pinned": True})
    assert bool(world.engine.prefix_cache()["pinned"][0])


def test_a_system_text_is_warmed(world: World) -> None:
    told = call(world.client, "POST", "/warm", {"system": "You are short."})
    assert told["turn"]["usage"]["prompt_tokens"] > 0


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/unload", {}, "name"),
        ("/unload", {"name": 7}, "name"),
        ("/unload", {"name": "x", "more": 1}, "more"),
        ("/budget", {"bytes": "many"}, "bytes"),
        ("/sessions/talk/turns", {"text": "Hi", "source": "responses"}, "source"),
        ("/warm", {}, None),
    ],
)
def test_wrong_fields_are_named(world: World, path: str, body: Any, field: Any) -> None:
    call(world.client, "POST", "/sessions", {"name": "talk"})
    answer = post(world.client, body, API + path)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field


def test_several_users_see_only_their_own(world: World) -> None:  # W65
    say_hello(world)
    say_hello(world, ANOTHER)
    turns = call(world.client, "GET", "/turns")["turns"]
    theirs = call(world.client, "GET", "/turns", who=ANOTHER)["turns"]
    assert [turn["session"] for turn in turns] == ["talk"]
    assert len(theirs) == 1
    assert theirs[0]["turn_id"] != turns[0]["turn_id"]
    assert theirs[0]["cache"] == "fresh"  # W22: the same words, and nothing shared
    mine = turns[0]["turn_id"]
    assert call(world.client, "GET", f"/explain/{mine}", who=ANOTHER)["error"]["code"]
    blocks = call(world.client, "GET", "/prefix?text=1")["blocks"]
    assert {block["preview"] for block in blocks} == {""}


def test_a_users_sessions_are_not_there_for_another(world: World) -> None:
    say_hello(world, name="mine")
    told = call(world.client, "GET", "/sessions/mine", who=ANOTHER)
    assert told["error"]["code"] == "session_not_found"
    assert call(world.client, "GET", "/sessions", who=ANOTHER)["sessions"] == []


def test_a_client_that_leaves_stops_its_turn(world: World) -> None:
    call(world.client, "POST", "/sessions", {"name": "talk"})
    with world.gate(2) as gate:
        body = json.dumps({"text": "Hi"}).encode()
        with world.client.stream(
            "POST", f"{API}/sessions/talk/turns", body=body, headers=JSON
        ) as answer:
            chunks = answer.iter_bytes()
            next(chunks)
            gate.wait()
        session = world.engine.find_session("talk")
        wait_until(lambda: all(r.cancelled for r in unfinished(world)))
        gate.open()
        wait_until(lambda: not session.answering)
    assert session.last is not None
    assert session.last.finish_reason == "cancelled"


def unfinished(world: World) -> list[Any]:
    return [r for lane in world.engine.core._life.lanes.values() for r in lane._unfinished]


def test_status_says_what_the_host_does(world: World) -> None:
    status = get(world.client, f"{API}/status").json()
    assert status["health"]["loaded"] == ["talker"]
    assert status["in_flight"] == 0
