"""How a service is, and what it holds and does at this moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mlxnb.engine.core import Core
from mlxnb.sessions.serving.activity import Activity
from mlxnb.sessions.serving.filing import Filing
from mlxnb.sessions.serving.models import Models

Status = Literal["ok", "loading", "degraded", "error"]


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a service; the first of these that holds, from below.

    Attributes
    ----------
    status
        ``error``: the engine's thread is dead or stuck, or was closed. ``degraded``: requests are
        answered and cannot be stored. ``loading``: a model is being loaded. ``ok``: else.
    message
        What is wrong.
    loaded, loading
        Names of models.
    waiting, running
        Requests.
    restarts
        Times that the engine's thread was given up.
    """

    status: Status
    message: str
    loaded: tuple[str, ...]
    loading: tuple[str, ...]
    waiting: int
    running: int
    restarts: int


def health_of(core: Core, models: Models, filing: Filing) -> Health:
    """How it is now."""
    loading = tuple(models.loads.names)
    waiting, running = _requests(core, models)
    status, message = _status(core, filing, loading)
    loaded = tuple(runtime.info.name for runtime in core.runtimes())
    return Health(status, message, loaded, loading, waiting, running, core.restarts)


def _status(core: Core, filing: Filing, loading: Sequence[str]) -> tuple[Status, str]:
    if core.closed:
        return "error", "the engine is closed"
    if not core.owner.healthy:
        return "error", core.owner.ailment
    if filing.failed:
        return "degraded", "responses cannot be stored"
    return ("loading", "") if loading else ("ok", "")


def _requests(core: Core, models: Models) -> tuple[int, int]:
    """How many wait, for their turn or for a model, and how many run."""
    queues = core.queues().values()
    loading = sum(map(models.loads.waiting, models.loads.names))
    return sum(waits for waits, _ in queues) + loading, sum(runs for _, runs in queues)


def counters_of(core: Core, models: Models, activity: Activity) -> dict[str, float]:
    """What is now, and what loads have cost since the start, by name."""
    waiting, running = _requests(core, models)
    return {
        "waiting_requests": waiting,
        "running_requests": running,
        "loaded_models": len(core.runtimes()),
        "loading_models": len(models.loads.names),
        "model_loads": activity.loads,
        "failed_model_loads": activity.failed_loads,
        "model_load_seconds": activity.load_seconds,
        "cache_bytes": core.store.nbytes,
        "cache_budget_bytes": core.budget,
        "engine_restarts": core.restarts,
    }
