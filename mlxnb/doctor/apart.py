"""Checks run in processes of their own: what takes one down is then a finding, not the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from mlxnb.doctor.finding import Finding

PATIENCE_S = 600
"""Seconds that a module's checks may take."""


def findings(module: str, what: str, environment: dict[str, str] | None = None) -> list[Finding]:
    """Run a module that prints findings, a line each.

    Parameters
    ----------
    what
        Names the whole of it, should it end before its time.
    environment
        Variables set for it, beside those that are.
    """
    command = [sys.executable, "-m", module]
    wanted = os.environ | (environment or {})
    try:
        run = subprocess.run(
            command, env=wanted, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return [Finding(what, False, f"did not end within {PATIENCE_S} s")]
    found = [finding for line in run.stdout.splitlines() if (finding := _finding(line))]
    if run.returncode:
        last = f" after “{found[-1].check}”" if found else ""
        found.append(Finding(what, False, f"{_end(run.returncode, run.stderr)}{last}"))
    return found


def _finding(line: str) -> Finding | None:
    try:
        return Finding.of(line)
    except (ValueError, TypeError):  # a library's own talk
        return None


def _end(status: int, stderr: str) -> str:
    """How a process ended, in a line."""
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    lines = stderr.strip().splitlines() or [f"ended with status {status}"]
    return lines[-1]
