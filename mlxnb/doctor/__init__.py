"""``mlxnb doctor``: what this machine makes of mlxnb, as a report that can be sent.

Whatever imports MLX runs in processes of its own, so that the report is written even where a
kernel or a driver takes the process down.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from mlxnb.doctor.apart import PATIENCE_S, findings
from mlxnb.doctor.facts import facts, without_paths
from mlxnb.doctor.finding import Finding
from mlxnb.doctor.report import report
from mlxnb.errors import InvalidOption
from mlxnb.models.demo import demo_ready

IN_PLACE = {"MLXNB_PAGED": "1", "MLXNB_METAL": "1"}
CONTIGUOUS = {"MLXNB_PAGED": "0", "MLXNB_METAL": "0"}
BENCH = "import sys; from mlxnb.cli import main; sys.exit(main(['bench', '--quick']))"


def examine(file: Path | None = None, bench: bool = True) -> int:
    """Print a report, and write it to ``file``.

    Parameters
    ----------
    bench
        Whether to run the quick bench too.

    Returns
    -------
    int
        0, or 1 where a check found something bad.

    Raises
    ------
    InvalidOption
        The file cannot be written; nothing was checked then.
    """
    if file is not None:
        _write(file, "")
    found = [*_checks()]
    figures = ""
    if bench:
        finding, figures = _bench()
        found.append(finding)
    text = without_paths(report(facts(), found, figures))
    print(text, end="")
    if file is not None:
        _write(file, text)
    return int(any(finding.good is False for finding in found))


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise InvalidOption(f"the report cannot be written to {file}: {reason}") from error


def _checks() -> Iterator[Finding]:
    _tell("the device")
    yield from findings("mlxnb.doctor.device", "MLX")
    _tell("kernels")
    yield from findings("mlxnb.doctor.kernels", "kernels")
    for name, switches in (("blocks", IN_PLACE), ("contiguous KV", CONTIGUOUS)):
        _tell(f"the demo model, {name}")
        yield from findings("mlxnb.doctor.conversation", f"demo model, {name}", switches)


def _bench() -> tuple[Finding, str]:
    """Whether it ran, and what it printed; it would fetch the demo model, so that must be there."""
    if not demo_ready():
        return Finding("bench", None, "measures the demo model, which is not on this machine"), ""
    _tell("the quick bench")
    try:
        run = subprocess.run(
            [sys.executable, "-c", BENCH], capture_output=True, text=True, timeout=PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        return Finding("bench", False, f"did not end within {PATIENCE_S} s"), ""
    if run.returncode:
        last = (run.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return Finding("bench", False, f"ended with status {run.returncode}: {last}"), ""
    return Finding("bench", True, "see below"), run.stdout.strip()


def _tell(what: str) -> None:
    """On the other stream: the report may be piped into a file."""
    print(f"checking {what} …", file=sys.stderr, flush=True)
