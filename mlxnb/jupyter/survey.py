"""What all hosts together say: their health, their metrics, their models."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mlxnb import __version__
from mlxnb.errors import MlxnbError
from mlxnb.jupyter.hosts import Hosts
from mlxnb.link.record import HostRecord

PATIENCE_S = 2.0
"""Seconds that a host has to answer."""
STATUSES = ("ok", "loading", "degraded", "error")
_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? (.*)")


async def health(hosts: Hosts) -> dict[str, Any]:
    """The status of all hosts together, and each one's.

    ``ok`` where none runs: the next request starts one. ``degraded`` where some are in error,
    ``error`` where all are.
    """
    asked = await _ask_all(hosts, "/mlxnb/health")
    told = [_health(record, answer) for record, answer in asked]
    found = [entry["status"] for entry in told]
    worst = max(found, key=STATUSES.index, default="ok")
    status = "degraded" if worst == "error" and set(found) != {"error"} else worst
    return {"status": status, "version": __version__, "hosts": told}


async def metrics(hosts: Hosts) -> str:
    """Prometheus' text of all hosts; each sample has its host as a label.

    Families are told once, as the format wants it, with the samples of all hosts.
    """
    families: dict[str, tuple[list[str], list[str]]] = {}
    for record, answer in await _ask_all(hosts, "/mlxnb/metrics"):
        head, samples = families.setdefault("", ([], []))
        for line in (answer or b"").decode().splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                name = line.split(" ", 3)[2]
                head, samples = families.setdefault(name, ([], []))
                if len(head) < 2 and line not in head:
                    head.append(line)
            elif found := _SAMPLE.fullmatch(line):
                labels = f'host="{record.id}"' + (f",{found[2]}" if found[2] else "")
                samples.append(f"{found[1]}{{{labels}}} {found[3]}")
    lines = (line for head, samples in families.values() for line in (*head, *samples))
    return "".join(f"{line}\n" for line in lines)


async def models(hosts: Hosts) -> dict[str, Any]:
    """The models of all hosts as OpenAI's list: loaded ones are told by the host that has them."""
    told: dict[str, dict[str, Any]] = {}
    for _, answer in await _ask_all(hosts, "/mlxnb/v1/models"):
        for model in _json(answer).get("data", []):
            if model.get("loaded") or model["id"] not in told:
                told[model["id"]] = model
    return {"object": "list", "data": list(told.values())}


async def _ask_all(hosts: Hosts, path: str) -> Sequence[tuple[HostRecord, bytes | None]]:
    """Each live host and its answer; None: it has none."""
    live = hosts.live()
    return list(zip(live, await asyncio.gather(*(_ask(hosts, r, path) for r in live)), strict=True))


async def _ask(hosts: Hosts, record: HostRecord, path: str) -> bytes | None:
    try:
        async with asyncio.timeout(PATIENCE_S), hosts.client(record).stream("GET", path) as answer:
            return await answer.read()
    except (TimeoutError, MlxnbError):
        return None


def _health(record: HostRecord, answer: bytes | None) -> dict[str, Any]:
    told = _json(answer)
    status = told.get("status")
    known = {"id": record.id, "kind": record.kind, "title": record.title}
    return {**told, **known, "status": status if status in STATUSES else "error"}


def _json(answer: bytes | None) -> Mapping[str, Any]:
    try:
        found = json.loads(answer or b"null")
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}
