"""What a run was measured on, and with."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mlxnb.container import cores

LIBRARIES = ("mlx", "mlx-lm", "llama-cpp-python", "numpy")


def machine() -> dict[str, str]:
    """Processor, cores, memory, system, and the versions of what was measured."""
    import mlx.core as mx
    import psutil

    from mlxnb import __version__, native

    facts = {
        "processor": _processor(),
        "cores": str(cores()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "platform": platform.platform(),
        "device": str(mx.default_device()),
        "python": platform.python_version(),
        "mlxnb": __version__,
        "native kernels": native.reason() or "in use",
    }
    return facts | {name: found for name in LIBRARIES if (found := _version(name))}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
