"""The compiled extension: whether it is there, and why not."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from mlxnb.container import cores


def available() -> bool:
    """Whether the kernels are there, and this process may and can use them."""
    return reason() is None


def reason() -> str | None:
    """Why the kernels are not used; None: they are."""
    if not wanted():
        return "MLXNB_NATIVE=0 switches the native kernels off"
    if mx.default_device() != mx.Device(mx.DeviceType.cpu):
        return "the native kernels are for the CPU, and the default device is another"
    return _extension()[1]


def wanted() -> bool:
    """Whether nobody has switched the kernels off."""
    return os.environ.get("MLXNB_NATIVE") != "0"


@functools.cache
def _extension() -> tuple[Any, str | None]:
    """The extension, or None and why."""
    try:
        module = importlib.import_module("mlxnb._native")
    except ModuleNotFoundError:
        return None, (
            "mlxnb was installed without its native kernels (no compiler, or not Linux); models "
            "run with MLX's own, which are slow on this machine's CPU. To get them: install a "
            "C++20 compiler, then pip install --force-reinstall --no-deps mlxnb"
        )
    except ImportError as error:
        return None, f"the native kernels cannot be loaded beside mlx {_mlx_version()}: {error}"
    built_for = getattr(module, "mlx_version", "an unknown version")
    if built_for != _mlx_version():
        return None, (
            f"the native kernels were built for mlx {built_for} and mlx {_mlx_version()} is "
            "installed: pip install --force-reinstall --no-deps mlxnb builds them anew"
        )
    if "MLXNB_THREADS" not in os.environ:
        module.use_cores(cores())
    return module, None


def _mlx_version() -> str:
    version: str = vars(mx)["__version__"]
    return version


def extension() -> Any:
    """The extension's module; None where there is none for this mlx."""
    return _extension()[0]


def kernel(name: str) -> Callable[..., mx.array]:
    """A function of the extension; without it one that refuses everything, as kernels do."""
    module, _ = _extension()
    return _refuse if module is None else getattr(module, name)


def _refuse(*args: Any, **kwargs: Any) -> mx.array:
    raise ValueError("there are no native kernels")
