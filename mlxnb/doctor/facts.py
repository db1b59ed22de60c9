"""What is installed, and on which machine. Nothing here imports MLX, which may be what is ill."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mlxnb import __version__
from mlxnb.container import cores
from mlxnb.models.cachedir import cache_dir

LIBRARIES = ("mlx", "mlx-metal", "mlx-lm", "transformers", "ipython", "jupyterlab", "pandas")
SWITCHES = ("MLXNB_NATIVE", "MLXNB_PAGED", "MLXNB_METAL", "MLXNB_THREADS", "MLXNB_ISA")


def facts() -> dict[str, str]:
    """Facts by name; no path that names the user."""
    import psutil

    found = {"mlxnb": __version__, "python": platform.python_version()}
    found |= {name: _version(name) for name in LIBRARIES}
    found["platform"] = platform.platform()
    found["processors"] = f"{os.cpu_count()}, {platform.machine()}"
    if cores() != os.cpu_count():
        found["processors"] += f", of which {cores()} may be used"
    found["memory"] = f"{psutil.virtual_memory().total / 2**30:.1f} GiB"
    found["models in"] = without_paths(str(cache_dir()))
    found["switches"] = ", ".join(f"{n}={os.environ[n]}" for n in SWITCHES if n in os.environ)
    return {name: fact for name, fact in found.items() if fact}


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "" if distribution == "mlx-metal" else "not installed"


def without_paths(text: str) -> str:
    """The text with the environment's folder and the user's written short."""
    for place, short in ((sys.prefix, "<environment>"), (str(Path.home()), "~")):
        if len(place) > 1:
            text = text.replace(place, short)
    return text
