"""The memory that a model takes, estimated from headers, against what the machine has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlxnb.errors import NotEnoughMemory
from mlxnb.models.folder import weight_files
from mlxnb.models.safetensors import Tensor, read_header
from mlxnb.models.source import ModelSource

_FLOATS = ("F16", "BF16", "F32")
_CGROUP = Path("/sys/fs/cgroup")


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


def available_bytes() -> int:
    """Memory that weights may take now, within the container's and the device's limits."""
    import mlx.core as mx
    import psutil

    found = int(psutil.virtual_memory().available)
    limit = _container_bytes()
    if limit is not None:
        found = min(found, limit)
    if not on_cpu():
        device: dict[str, Any] = mx.device_info()
        working_set = device.get("max_recommended_working_set_size")
        if working_set:
            found = min(found, int(working_set) - mx.get_active_memory())
    return max(0, found)


def _container_bytes() -> int | None:
    """What a container's limit leaves, its file cache not counted; None without a limit."""
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        lines = (_CGROUP / "memory.stat").read_text().splitlines()
        cached = dict(line.split() for line in lines).get("inactive_file", "0")
    except (OSError, ValueError):
        return None
    return limit - used + int(cached)


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
