"""CPU streams of MLX, handed on from a thread that has ended to the next that computes.

MLX gives each thread its own default stream. On the CPU that is a thread of the operating system
which lasts as long as the process: ``mx.clear_streams`` does not end it, and each call of
``mx.clear_cache`` waits for every one there is (3 microseconds each where all are idle, measured
with MLX 0.32.4; many times that on a busy machine).
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mlx.core as mx

log = logging.getLogger(__name__)

_lock = threading.Lock()
_free: list[mx.Stream] = []


def take_stream() -> mx.Stream:
    """Make a stream the calling thread's default on the CPU; nobody else has it meanwhile."""
    import mlx.core as mx

    with _lock:
        stream = _free.pop() if _free else None
    stream = stream or mx.new_thread_unsafe_stream(mx.cpu)
    mx.set_default_stream(stream)
    return stream


def hand_on(stream: mx.Stream) -> None:
    """Finish what the calling thread has pending, clear its streams and let others have this one.

    A stream that something went wrong on is not handed on: its error would be another's.
    """
    import mlx.core as mx

    try:
        mx.synchronize()  # the default device's stream, which may be a GPU's
        mx.synchronize(stream)
    except RuntimeError as error:
        log.error("what an ended thread had pending failed: %s", error)
        return
    finally:
        mx.clear_streams()
    with _lock:
        _free.append(stream)
