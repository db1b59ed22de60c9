"""Random delays where threads and processes hand something on, in every Python process.

``make test-races`` puts this folder on ``PYTHONPATH``. Most delays are as long as a busy machine
makes them; some are long enough for nearly everything else to come first.
"""

from __future__ import annotations

import functools
import os
import random
import sys
import threading
import time
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

OFTEN, SHORT_S = 0.15, 0.01
SELDOM, LONG_S = 0.01, 0.25
SWITCH_S = 0.03
"""How long a thread may keep the others out; Python's own value is 0.005."""

_sleep = time.sleep  # tests replace it
_random = random.Random()


def delay(times: float = 1.0) -> None:
    """Sleep, or do not; ``times`` as often as elsewhere."""
    chance = _random.random() / times
    if chance < OFTEN:
        _sleep(_random.random() * (LONG_S if chance < SELDOM else SHORT_S))


def _delayed(owner: Any, name: str, before: float = 1.0, after: float = 0.0) -> None:
    function: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(function)
    def slow(*args: Any, **options: Any) -> Any:
        delay(before)
        result = function(*args, **options)
        if after:
            delay(after)
        return result

    setattr(owner, name, slow)


def _delay_all() -> None:
    sys.setswitchinterval(SWITCH_S)
    _delayed(threading.Thread, "run", before=4)
    _delayed(threading.Event, "set", after=1)
    _delayed(Future, "set_result", after=1)
    _delayed(BaseEventLoop, "call_soon_threadsafe", after=1)
    _delayed(BaseEventLoop, "_run_once", before=0.1)
    for name in ("fsync", "rename", "replace", "unlink"):
        _delayed(os, name, after=1)


if os.environ.get("MLXNB_TEST_DELAYS"):
    _delay_all()
