"""`import mlxnb` and `%load_ext mlxnb` cost next to nothing until the first use."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("mlx", "mlx_lm", "transformers", "pandas", "huggingface_hub", "numpy", "ipywidgets")

# Processor time, not the clock's: what else the machine does is no fault of the import.
IMPORT = """
import json, sys, time
before, start = set(sys.modules), time.process_time()
import mlxnb
took = time.process_time() - start
print(json.dumps([took, sorted(set(sys.modules) - before)]))
"""
LOAD_EXT = """
import json, sys, time
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
before, start = set(sys.modules), time.process_time()
shell.run_line_magic("load_ext", "mlxnb")
took = time.process_time() - start
assert "mlx_chat" in shell.magics_manager.magics["cell"], "the extension was not loaded"
print(json.dumps([took, sorted(set(sys.modules) - before)]))
"""


def measure(script: str) -> tuple[float, set[str]]:
    """Run `script` in a fresh process; return its seconds and the modules that it imported."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    took, modules = json.loads(done.stdout.splitlines()[-1])
    return took, set(modules)


@pytest.mark.parametrize("script", [IMPORT, LOAD_EXT], ids=["import", "load_ext"])
def test_nothing_heavy_is_imported(script: str) -> None:
    _, modules = measure(script)
    assert "mlxnb" in modules
    assert not modules & set(HEAVY)


@pytest.mark.parametrize("script", [IMPORT, LOAD_EXT], ids=["import", "load_ext"])
def test_takes_less_than_a_tenth_of_a_second(script: str) -> None:
    assert any(measure(script)[0] < 0.1 for _ in range(5))
