"""The engine: one thread that owns MLX, a lane a model, requests in and events out.

``mlxnb.engine`` is both this package and the function that returns the process's engine: the
import system binds the package under that name, so it can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self) -> Any:
        """The process's engine; see `mlxnb.process_engine`."""
        return sys.modules["mlxnb"].process_engine()


sys.modules[__name__].__class__ = _Callable
