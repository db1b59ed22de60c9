"""Other clients through the notebook port, each in an environment of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from .installed import NODE, OTHERS, node_modules, venv
from .place import Place

CASES = re.compile(r"^(?:async )?(?:def|function) (test_\w+)", re.MULTILINE)


def run(script: Path, command: Sequence[str | Path], place: Place) -> None:
    """Run a script; every case in it has to be named as one that went well."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI", "ANTHROPIC"))}
    environment |= {"MLXNB_URL": place.url, "MLXNB_KEY": place.server.key}
    done = subprocess.run(
        [*command, script], env=environment, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.split() == CASES.findall(script.read_text())


@pytest.mark.timeout(900)  # the first time, it is installed
@pytest.mark.parametrize(
    ("packages", "script"),
    [
        ("anthropic-1", "with_anthropic_1.py"),
        ("agents", "with_agents.py"),
        ("langchain", "with_langchain.py"),
    ],
)
def test_a_python_client(place: Place, packages: str, script: str) -> None:  # W59
    run(OTHERS / script, [venv(packages)], place)
    place.wait_idle()


@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm")
@pytest.mark.parametrize("script", ["openai.mjs", "anthropic.mjs"])
def test_a_client_of_npm(place: Place, tmp_path: Path, script: str) -> None:  # W59
    # node looks for packages beside a script's real place
    packages = node_modules()
    for name in ("cases.mjs", script):
        shutil.copy(NODE / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(packages / "node_modules")
    run(tmp_path / script, ["node", "--preserve-symlinks"], place)
    place.wait_idle()
