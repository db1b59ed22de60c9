"""What the handlers of a host share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from mlxnb.host.gate import Gate
from mlxnb.host.meters import Meters
from mlxnb.host.traffic import Traffic
from mlxnb.link.patience import WRITE_S

if TYPE_CHECKING:
    from mlxnb.sessions.reply import Reply
    from mlxnb.sessions.serving.service import Service

T = TypeVar("T")

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """What a host takes, and how long it keeps silent.

    Attributes
    ----------
    body_bytes
        The largest body; beyond it: 413 (W58).
    keep_alive_s
        Silence on a stream, in seconds, after which it gets an event (W33).
    write_timeout_s
        Seconds after which a client that takes nothing of its answer is given up.
    """

    body_bytes: int = 32 * MIB
    keep_alive_s: float = 5.0
    write_timeout_s: float = WRITE_S


@dataclass(frozen=True, slots=True)
class Context:
    """The service of a host, and how requests of one listening socket reach it.

    ``pool`` runs what blocks: rendering, counting, the store. Never the loop. ``replies`` are the
    turns of other processes' notebooks that run, by their ids.
    """

    service: Service
    gate: Gate
    pool: Executor
    traffic: Traffic
    meters: Meters
    limits: Limits = Limits()
    replies: dict[str, Reply] = field(default_factory=dict)

    async def blocking(self, function: Callable[[], T]) -> T:
        """Run a function on the pool and wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, function)
