"""Clients that cannot share one environment: each in its own, made once and kept.

``python -m clients.installed`` makes all of them, so that no test waits for it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

OTHERS = Path(__file__).with_name("others")
NODE = Path(__file__).with_name("node")
CACHE = Path(os.environ.get("MLXNB_CACHE") or user_cache_path("mlxnb", appauthor=False))
SETS = ("anthropic-1", "agents", "langchain")


def venv(name: str) -> Path:
    """The Python of a set of packages, as ``others/{name}.txt`` pins them."""
    pins = OTHERS / f"{name}.txt"
    folder = _folder(name, sys.version.encode() + pins.read_bytes())
    python = folder / "bin" / "python"
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / "whole").exists():
            shutil.rmtree(folder, ignore_errors=True)
            # our own pip serves all of them
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
            install = [
                sys.executable,
                "-m",
                "pip",
                "--python",
                python,
                "install",
                "--quiet",
                "--no-deps",
                "--requirement",
                pins,
            ]
            subprocess.run(install, check=True)
            (folder / "whole").touch()
    return python


def node_modules() -> Path:
    """The folder of npm's packages, as ``node/package-lock.json`` pins them, scripts beside it."""
    lock = (NODE / "package-lock.json").read_bytes()
    folder = _folder("node", lock)
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / "whole").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(NODE / name, folder)
            install = ["npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"]
            install += ["--cache", str(folder.with_name("npm"))]
            subprocess.run(install, cwd=folder, check=True)
            (folder / "whole").touch()
    return folder


def _folder(name: str, content: bytes) -> Path:
    """A place for what that content asks for."""
    cache = CACHE / "test-clients"
    cache.mkdir(parents=True, exist_ok=True)
    return cache / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}"


if __name__ == "__main__":
    with ThreadPoolExecutor(2) as pool:
        making = [pool.submit(venv, each) for each in reversed(SETS)]  # the largest first
        if shutil.which("npm"):
            making.append(pool.submit(node_modules))
        for one in making:
            print(one.result())
