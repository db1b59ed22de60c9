"""Runs a script's cases, one by one, and names those that went well."""

from __future__ import annotations

import os
from collections.abc import Callable

URL = os.environ["MLXNB_URL"]
KEY = os.environ["MLXNB_KEY"]


def run(scope: dict[str, object]) -> None:
    """Run all functions of a script that are named ``test_…``; the first error ends it."""
    for name, case in scope.items():
        if name.startswith("test_") and isinstance(case, Callable):
            case()
            print(name, flush=True)
