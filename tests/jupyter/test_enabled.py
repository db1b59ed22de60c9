"""Installing the package is all it takes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from jupyter.server import environment


def test_the_extension_is_enabled_by_the_installation(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_server", "extension", "list"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    printed = re.sub(r"\x1b\[\d+m", "", done.stdout + done.stderr)
    assert re.search(r"^ *mlxnb enabled$", printed, re.MULTILINE), printed
    assert re.search(r"^ *mlxnb \S+ OK$", printed, re.MULTILINE), printed
