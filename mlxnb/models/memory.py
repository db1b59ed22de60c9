"""The memory that a model takes, estimated from headers, against what the machine has."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlxnb.container import memory_limits
from mlxnb.errors import NotEnoughMemory
from mlxnb.models.folder import weight_files
from mlxnb.models.safetensors import Tensor, read_header
from mlxnb.models.source import ModelSource

_FLOATS = ("F16", "BF16", "F32")


def estimate_bytes(source: ModelSource) -> int:
    """Bytes of the weights once loaded: on a CPU device floats take 4 bytes each.

    Models whose loading unpacks weights (float8 checkpoints of some families) take more.
    """
    widen = on_cpu()
    files = weight_files(source.path)
    if source.adapter is not None:
        files = [*files, source.adapter / "adapters.safetensors"]
    return sum(_loaded(tensor, widen) for file in files for tensor in read_header(file).values())


def _loaded(tensor: Tensor, widen: bool) -> int:
    if widen and tensor.dtype in _FLOATS:
        return 4 * tensor.size
    return tensor.end - tensor.start


def on_cpu() -> bool:
    """Whether MLX's default device is the CPU."""
    import mlx.core as mx

    return bool(mx.default_device().type == mx.cpu)


def memory_bytes() -> int:
    """The machine's memory, or a container's limit where that is less."""
    import psutil

    limits = (each.limit for each in memory_limits())
    return min([int(psutil.virtual_memory().total), *limits])


def available_bytes() -> int:
    """Memory that may be taken now, within the container's and the device's limits."""
    import psutil

    return max(0, min([int(psutil.virtual_memory().available), *_left()]))


def left_bytes() -> int | None:
    """What is left below limits that end the process when they are passed; None: there are none.

    Those are a container's and, on Metal, the device's: it aborts where a command finds no memory.
    """
    return max(0, min(found)) if (found := _left()) else None


def trim() -> None:
    """Give freed memory back to the system, which glibc would keep for the process.

    It does so by itself for large arrays alone: of 1.8 GB of live caches that were freed, all
    stayed with the process until this was called. Takes 0.2 ms where there is nothing to give.
    """
    give_back = _trimmer()
    if give_back is not None:
        give_back(0)


@functools.cache
def _trimmer() -> Callable[[int], int] | None:
    """``malloc_trim(3)``, where the C library has it."""
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return found


def _left() -> list[int]:
    return [each.left for each in memory_limits()] + _device_bytes()


def _device_bytes() -> list[int]:
    """What the device's recommended working set leaves; nothing on a CPU."""
    import mlx.core as mx

    if on_cpu():
        return []
    device: dict[str, Any] = mx.device_info()
    working_set = int(device.get("max_recommended_working_set_size") or 0)
    return [working_set - mx.get_active_memory()] if working_set else []


@dataclass(frozen=True, slots=True)
class System:
    """Where an engine asks how much memory there is; tests give it their own answers.

    See `memory_bytes`, `available_bytes` and `left_bytes`.
    """

    memory: Callable[[], int] = memory_bytes
    available: Callable[[], int] = available_bytes
    left: Callable[[], int | None] = left_bytes


def check_memory(source: ModelSource, available: int | None = None) -> None:
    """Check that a model fits before any of it is read.

    Parameters
    ----------
    source
        The model.
    available
        Bytes; None: ask the machine.

    Raises
    ------
    NotEnoughMemory
        The weights alone take more.
    """
    needed = estimate_bytes(source)
    present = available_bytes() if available is None else available
    if needed > present:
        raise NotEnoughMemory(
            f"{source.name} takes {needed / 2**30:.2f} GiB and {present / 2**30:.2f} GiB are "
            "free; unload another model, close other programs, or choose a smaller or more "
            "strongly quantized model",
            needed,
            present,
        )
