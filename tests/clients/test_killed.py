"""``kill -9`` in the midst of streams: the others notice, say so, and go on (C48, issue 4)."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import psutil
import pytest
from link.fake_host import until

from mlxnb.link.record import HostRecord, records

from .place import Place, headless_place, kernel_place

LOOK: Any = {"type": "function", "name": "look", "parameters": {"type": "object"}}
HI: Any = [{"role": "user", "content": "Go on"}]


class Streams:
    """Three streams of one model, one of each protocol, in the midst of their text."""

    def __init__(self, place: Place, stack: ExitStack) -> None:
        gate = stack.enter_context(place.gate("long"))
        client, other = place.openai(), place.anthropic()
        asked: Any = {"model": "long", "stream": True}
        self.responses = client.responses.create(**asked, input="Go on")
        self.messages = other.messages.create(**asked, messages=HI, max_tokens=4000)
        self.completions = client.chat.completions.create(**asked, messages=HI)
        gate.wait()
        until(lambda: place.control("GET", "/status")["in_flight"] == 3)
        gate.close(60)
        gate.wait()
        for stream, kind in (
            (self.responses, "response.output_text.delta"),
            (self.messages, "content_block_delta"),
        ):
            stack.enter_context(stream)
            next(event for event in stream if event.type == kind)
        stack.enter_context(self.completions)
        next(iter(self.completions))

    def end_in(self, message: str) -> None:
        """Each of them ends with an error that its client knows."""
        with pytest.raises(openai.APIError, match=message):
            list(self.responses)
        with pytest.raises(anthropic.APIError, match=message):
            list(self.messages)
        with pytest.raises(openai.APIError, match=message):
            list(self.completions)

    def break_off(self) -> None:
        """Each of them is cut off, and its client sees that."""
        for stream in (self.responses, self.messages, self.completions):
            with pytest.raises((openai.APIError, anthropic.APIError, httpx2.TransportError)):
                list(stream)


def host_of(place: Place) -> HostRecord:
    (record,) = (record for record in records() if record.kind != "notebook")
    return record


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def store_is_whole(folder: Path) -> None:
    with sqlite3.connect(folder / "state" / "responses.sqlite3") as store:
        assert store.execute("pragma integrity_check").fetchall() == [("ok",)]
    store.close()


def test_a_headless_host_that_is_killed(fresh_state: Path, models: Path) -> None:
    with headless_place(fresh_state, models) as place:
        client = place.openai()
        done = client.responses.create(model="talker", input="Hi")
        with ExitStack() as stack:
            streams = Streams(place, stack)
            first = host_of(place)
            kill(first.process.pid)
            streams.end_in("cannot be reached")
        made = client.responses.with_raw_response.create(  # by a new host
            model="talker", input="And?", previous_response_id=done.id
        )
        assert made.headers["x-session-cache"] == "cold_replay"
        assert made.parse().output_text == "Again, hello."
        assert host_of(place).id != first.id
        place.judge()  # what was broken off too is as W41 wants it
    store_is_whole(fresh_state)


def test_a_notebook_server_that_is_killed(fresh_state: Path, models: Path) -> None:
    (fresh_state / "one").mkdir()
    (fresh_state / "two").mkdir()
    with headless_place(fresh_state / "one", models) as place:
        done = place.openai().responses.create(model="talker", input="Hi")
        key = place.server.key
        with ExitStack() as stack:
            streams = Streams(place, stack)
            host = host_of(place).process.pid
            kill(place.server.process.pid)
            streams.break_off()
        until(lambda: not psutil.pid_exists(host))  # its host ends with it
        place.judge()
    with headless_place(fresh_state / "two", models) as place:
        client = place.openai(key)
        assert client.responses.retrieve(done.id).output_text == done.output_text
        made = client.responses.with_raw_response.create(
            model="talker", input="And?", previous_response_id=done.id
        )
        assert made.headers["x-session-cache"] == "cold_replay"
        place.judge()
        assert len(records()) == 2  # a notebook server and its host: the dead ones are swept
    store_is_whole(fresh_state)


def test_a_kernel_that_is_killed(fresh_state: Path, models: Path) -> None:  # C48
    with kernel_place(fresh_state, models) as place:
        client = place.openai()
        done = client.responses.create(model="talker", input="Hi")
        with ExitStack() as stack:
            streams = Streams(place, stack)
            kill(host_of(place).process.pid)
            streams.end_in("cannot be reached")
        assert place.kernel is not None
        until(lambda: [r for r in records() if r.kind == "kernel"] == [])
        with pytest.raises(openai.InternalServerError, match="%mlx_serve") as gone:
            client.responses.create(model="talker", input="Hi")
        assert gone.value.status_code == 503
        # Jupyter has started the kernel anew under its id; its notebook is run again
        place.kernel.serve(models)
        made = client.responses.with_raw_response.create(
            model="talker", input="And?", previous_response_id=done.id
        )
        assert made.headers["x-session-cache"] == "cold_replay"
        assert made.parse().output_text == "Again, hello."
        place.judge()
    store_is_whole(fresh_state)
