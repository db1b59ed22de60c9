"""What 500 requests through a notebook server leave behind in it and in its host: nothing."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from clients.by_hand.notebook import Notebook, notebook
from host.talk import wait_idle, wait_until
from parity.settled import assert_settled
from scripted import END

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
BODIES: dict[str, dict[str, Any]] = {
    RESPONSES: {"model": "talker", "input": "Hi"},
    MESSAGES: {
        "model": "talker",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi"}],
    },
}
ROUNDS, WARM_UP = 50, 10
"""Of ten requests each."""
IDLE_TASKS = 3
"""On the host's loop: its own, the one that counts them, and a connection that is kept."""
MOST_BYTES = 40_000
"""That a request may add to a process: a row of the ledger, and the allocator's unrest."""

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no list of descriptors")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Notebook]:
    with notebook(tmp_path, [f"Hello.{END}"]) as running:
        yield running


def ten_requests(served: Notebook) -> None:
    """Good ones, bad ones, and some whose clients leave at once."""
    for path, body in BODIES.items():
        assert served.server.post(path, body).status_code == 200
        with served.server.stream(path, {**body, "stream": True}) as answer:
            assert answer.read()
        assert served.server.post(path, {}).status_code == 400
        for stream in (True, False):
            with sent(served, path, {**body, "stream": stream}):
                pass
    wait_idle(served.host)


@contextmanager
def sent(served: Notebook, path: str, body: dict[str, Any]) -> Iterator[socket.socket]:
    """A connection that has carried a request, and is closed without having read of an answer."""
    url, content = urlsplit(served.base + path), json.dumps(body).encode()
    assert url.hostname and url.port
    head = [
        f"POST {url.path} HTTP/1.1",
        f"Host: {url.netloc}",
        f"Authorization: Bearer {served.key}",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
    ]
    with socket.create_connection((url.hostname, url.port)) as connection:
        connection.sendall("\r\n".join([*head, "", ""]).encode() + content)
        yield connection


def tasks(served: Notebook) -> int:
    async def count() -> int:
        return len(asyncio.all_tasks())

    return asyncio.run_coroutine_threadsafe(count(), served.host._loop).result(30)


def threads() -> list[str]:
    """Threads of this process without those of the host's pool, which stay for what comes."""
    names = sorted(thread.name for thread in threading.enumerate())
    return [name for name in names if not name.startswith("mlxnb-host_")]


def test_five_hundred_requests_leave_nothing(served: Notebook) -> None:
    here, server = psutil.Process(), psutil.Process(served.server.process.pid)
    for _ in range(WARM_UP):
        ten_requests(served)
    wait_until(lambda: tasks(served) <= IDLE_TASKS)
    gc.collect()
    processes = here, server
    files, threads_before = [each.num_fds() for each in processes], threads()
    threads_there = server.num_threads()
    bytes_before = [process.memory_info().rss for process in processes]
    for _ in range(ROUNDS):
        ten_requests(served)
    wait_until(lambda: tasks(served) <= IDLE_TASKS)
    gc.collect()
    for process, most in zip(processes, files, strict=True):
        wait_until(lambda process=process, most=most: process.num_fds() <= most)
    with suppress(AssertionError):  # the thread of a cancelled timer is there until it has noticed
        wait_until(lambda: len(threads()) <= len(threads_before))
    assert len(threads()) <= len(threads_before), (threads_before, threads())
    wait_until(lambda: server.num_threads() <= threads_there)
    assert_settled(served.engine)
    grown = [process.memory_info().rss for process in processes]
    slopes = [(now - then) / (10 * ROUNDS) for now, then in zip(grown, bytes_before, strict=True)]
    print(f"bytes a request: host {slopes[0]:.0f}, notebook server {slopes[1]:.0f}")
    assert max(slopes) < MOST_BYTES
