"""A host without an engine, as a process: it does what a request's ``fake`` says.

Run as ``python fake_host.py [--kind K] [--models A,B] [--kernel-id I] [--version V]``, or as
``… -m mlxnb.host --parent-pid P --config FILE`` in the headless host's place. ``Fake`` starts one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_unix_socket
from tornado.web import Application, RequestHandler

from mlxnb.link.client import Client
from mlxnb.link.proof import prove, verify
from mlxnb.link.record import HostRecord, publish, records, withdraw
from mlxnb.wire.sse import encode

DEADLINE_S = 60
METRICS = """\
# HELP turns_total Turns.
# TYPE turns_total counter
turns_total 3.0
turns_total{model="a{b}",le="+Inf"} 1.0
# HELP queue Waiting.
# TYPE queue gauge
queue 0.0
"""


class Handler(RequestHandler):
    """Notes what it sees; answers with what ``fake`` says, or with what it saw."""

    waiting: asyncio.Future[Any]

    def prepare(self) -> None:
        self.waiting = asyncio.get_running_loop().create_future()
        record = self.settings["record"]
        who = verify(record.secret, self.request.headers, self.request.method, self.request.uri)
        self.set_header("X-Mlxnb-Proof", prove(record.secret, self.request.headers))
        self.saw = {
            "host": record.id,
            "method": self.request.method,
            "uri": self.request.uri,
            "headers": dict(self.request.headers.get_all()),
            "identity": asdict(who),
            "body": self.request.body.decode(),
        }

    async def any(self) -> None:
        path, seen = self.request.path, self.settings["seen"]
        if path == "/mlxnb/seen":
            self.finish(json.dumps(seen))
        elif path == "/mlxnb/forget":
            seen.update(requests=[], gone=0)
        elif path == "/mlxnb/go":
            self.settings["go"].release()
        elif path == "/mlxnb/health":
            self.finish({"status": self.settings["config"].get("status", "ok"), "detail": 1})
        elif path == "/mlxnb/metrics":
            await self.finish(METRICS)
        elif path == "/mlxnb/v1/models":
            mine = [{"id": name, "loaded": True} for name in self.settings["record"].models]
            seen["requests"].append(self.saw)
            await self.finish({"data": [*mine, {"id": "disk", "loaded": False}]})
        else:
            await self.play()

    get = post = delete = head = put = patch = any

    async def play(self) -> None:
        seen = self.settings["seen"]
        seen["requests"].append(self.saw)
        try:
            fake = json.loads(self.request.body).get("fake", {})
        except (ValueError, AttributeError):
            fake = {}
        self.set_status(fake.get("status", 200))
        self.set_header("Set-Cookie", "a=b")
        for name, value in fake.get("headers", {}).items():
            self.set_header(name, value)
        if fake.get("die") == "at once":
            os.kill(os.getpid(), signal.SIGKILL)
        if fake.get("wait"):
            await self.step()
        if "events" not in fake:
            self.finish(fake.get("body", self.saw))
            return
        self.set_header("Content-Type", "text/event-stream; charset=utf-8")
        try:
            await self.stream(fake)
        except StreamClosedError:
            return

    async def stream(self, fake: dict[str, Any]) -> None:
        await self.flush()
        for event in fake["events"]:
            self.write(event if isinstance(event, str) else encode(*event))
            await self.flush()
            if fake.get("step"):
                await self.step()
        if fake.get("die"):
            await asyncio.sleep(0.2)  # until the bytes are read
            os.kill(os.getpid(), signal.SIGKILL)

    async def step(self) -> None:
        """Wait for a go, unless the client goes first."""
        self.waiting = asyncio.ensure_future(self.settings["go"].acquire())
        with suppress(asyncio.CancelledError):
            await self.waiting

    def on_connection_close(self) -> None:
        self.settings["seen"]["gone"] += 1
        self.waiting.cancel()


async def main(options: argparse.Namespace) -> None:
    config = json.loads(Path(options.config).read_text()) if options.config else {}
    fake = config.get("aliases", {}).get("fake", "")  # how tests talk to a supervised one
    print("starting up", file=sys.stderr, flush=True)
    if "no mlx" in fake:
        raise ModuleNotFoundError("No module named 'mlx'")
    models = tuple(name for name in options.models.split(",") if name)
    record = HostRecord.here(options.kind, kernel_id=options.kernel_id, title=options.title)
    record = replace(record.with_models(models), version=options.version or record.version)
    if "old version" in fake:
        record = replace(record, version="0.0.1")
    seen = {"requests": [], "gone": 0, "config": config, "argv": sys.argv}
    app = Application(
        [(".*", Handler)], record=record, seen=seen, go=asyncio.Semaphore(0), config=vars(options)
    )
    server = HTTPServer(app)
    server.add_socket(bind_unix_socket(str(record.socket)))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    publish(record)
    print("mlxnb.host[WARNING]: its own words", file=sys.stderr, flush=True)
    await asyncio.sleep(0.3 if config else 0)
    print("Traceback with a SECRET PROMPT", file=sys.stderr, flush=True)
    print("mlxnb.host[WARNING]: last own words", file=sys.stderr, flush=True)
    await stop.wait()
    withdraw(record)


class Fake:
    """A running fake host, spoken to over its socket."""

    def __init__(self, process: subprocess.Popen[bytes], record: HostRecord) -> None:
        self.process, self.record = process, record
        self._client = Client(record)

    @property
    def seen(self) -> dict[str, Any]:
        return self._client.call("GET", "/mlxnb/seen")

    def forget(self) -> None:
        self._client.call("POST", "/mlxnb/forget")

    def go(self) -> None:
        """Let the waiting handler take one step."""
        self._client.call("POST", "/mlxnb/go")

    def wait_for_gone(self, count: int = 1) -> None:
        until(lambda: self.seen["gone"] >= count)

    def wait_for_request(self, count: int = 1) -> None:
        until(lambda: len(self.seen["requests"]) >= count)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self._client.close()
        self.process.kill()
        self.process.wait()
        withdraw(self.record)


def until(true: Any) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)


@contextmanager
def fake_host(kind: str = "kernel", **options: str) -> Iterator[Fake]:
    """Start a fake host with ``models="a,b"``, ``kernel_id``, ``version``, ``status``."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    argv = [sys.executable, __file__, f"--kind={kind}", *flags]
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    found: list[HostRecord] = []

    def is_up() -> bool:
        assert process.poll() is None, "the fake host ended"
        found[:] = [one for one in records() if one.process.pid == process.pid]
        return bool(found)

    until(is_up)
    fake = Fake(process, found[0])
    try:
        yield fake
    finally:
        fake.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", dest="module")
    parser.add_argument("--parent-pid")
    parser.add_argument("--config")
    parser.add_argument("--kind", default="headless")
    parser.add_argument("--models", default="")
    parser.add_argument("--kernel-id")
    parser.add_argument("--title", default="")
    parser.add_argument("--version")
    parser.add_argument("--status", default="ok")
    asyncio.run(main(parser.parse_args()))
