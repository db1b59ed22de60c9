"""The whole way: a client, the notebook port, a headless host with the demo model."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from link.fake_host import until

from jupyter.server import Server, notebook_server
from mlxnb.link.record import HostRecord, records
from mlxnb.models.cachedir import cache_dir

QUESTION = {"model": "claude-any", "input": "Say hello.", "max_output_tokens": 8, "temperature": 0}


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, state: Path, demo_path: Path
) -> Iterator[Server]:
    del state
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLXNB_CACHE", str(cache_dir()))
        folder = tmp_path_factory.mktemp("shared")
        with notebook_server(folder, aliases={"claude-*": "demo"}) as server:
            yield server


def headless() -> HostRecord:
    (record,) = records("headless")
    return record


def events(raw: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for event in raw.strip().split("\n\n"):
        name, data = event.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_a_response_is_answered_streamed_and_continued(shared: Server) -> None:
    first = shared.post("/v1/responses", QUESTION)
    assert first.status_code == 200, (first.text, shared.log)
    assert first.json()["model"] == "claude-any"
    assert first.json()["id"].split("_")[1] == headless().id
    assert first.headers["x-session-cache"] == "fresh"
    more = QUESTION | {"previous_response_id": first.json()["id"], "stream": True}
    answer = shared.post("/v1/responses", more)
    assert answer.headers["x-session-cache"] == "hit"
    assert int(answer.headers["x-cached-tokens"]) > 0
    told = events(answer.text)
    assert told[0][0] == "response.created" and told[-1][0] == "response.completed"
    assert [data["sequence_number"] for _, data in told] == list(range(len(told)))


def test_messages_are_answered_and_counted(shared: Server) -> None:
    body = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
    answer = shared.post(
        "/v1/messages", body | {"max_tokens": 4}, headers={"x-api-key": shared.key}
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["type"] == "message"
    counted = shared.post("/v1/messages/count_tokens", body).json()["input_tokens"]
    used = answer.json()["usage"]
    cached = used["cache_read_input_tokens"] + used["cache_creation_input_tokens"]
    assert counted == used["input_tokens"] + cached


def test_w9_the_models_are_listed(shared: Server) -> None:
    listed = shared.ask("GET", "/v1/models").json()["data"]
    assert "demo" in [one["id"] for one in listed]
    unknown = shared.post("/v1/responses", QUESTION | {"model": "none"})
    assert unknown.status_code == 404 and "demo" in unknown.json()["error"]["message"]


def test_w65_one_keys_responses_are_not_anothers(shared: Server) -> None:
    mine = shared.post("/v1/responses", QUESTION).json()["id"]
    assert shared.ask("GET", f"/v1/responses/{mine}").status_code == 200
    assert shared.ask("GET", f"/v1/responses/{mine}", headers=shared.jupyter).status_code == 404


def test_c25_a_client_that_leaves_stops_the_engine(shared: Server) -> None:
    long = QUESTION | {"max_output_tokens": 2000, "stream": True, "input": "Tell a tale."}
    with shared.stream("/v1/responses", long) as answer:
        for text in answer.iter_text():
            if "output_text.delta" in text:
                break

    def cancelled() -> bool:
        turns = shared.ask("GET", "/api/turns", headers=shared.jupyter)
        return '"cancelled"' in turns.text

    until(cancelled)


def test_a_host_killed_in_a_stream_is_told_replaced_and_its_chain_goes_on(shared: Server) -> None:
    first = shared.post("/v1/responses", QUESTION).json()["id"]
    dead = headless()
    long = QUESTION | {"max_output_tokens": 2000, "stream": True, "input": "Tell a long story."}
    with shared.stream("/v1/responses", long) as answer:
        raw = ""
        for chunk in answer.iter_text():
            if "output_text.delta" in chunk and "output_text.delta" not in raw:
                os.kill(dead.process.pid, signal.SIGKILL)
            raw += chunk
    told = events(raw)
    assert [name for name, _ in told[-2:]] == ["error", "response.failed"]
    assert [data["sequence_number"] for _, data in told] == list(range(len(told)))
    more = shared.post("/v1/responses", QUESTION | {"previous_response_id": first})
    assert more.status_code == 200, more.text
    assert more.headers["x-session-cache"] == "cold_replay"
    assert headless().id != dead.id


def test_the_host_is_gone_when_the_notebook_server_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLXNB_CACHE", str(cache_dir()))
    monkeypatch.setenv("MLXNB_STATE", str(tmp_path / "state"))
    with notebook_server(tmp_path / "s") as server:
        assert server.post("/v1/responses", QUESTION | {"model": "demo"}).status_code == 200
        host = headless()
        server.process.kill()
        until(lambda: not psutil.pid_exists(host.process.pid))
    assert records() == []
