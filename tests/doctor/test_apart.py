"""Checks in another process: whatever becomes of it is a finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlxnb.doctor import apart
from mlxnb.doctor.finding import Finding

FOUND = "from mlxnb.doctor.finding import Finding\nprint(Finding('sums', True, 'fine').line())\n"
SUMS = Finding("sums", True, "fine")


def findings(folder: Path, code: str) -> list[Finding]:
    (folder / "checked.py").write_text(f"{FOUND}import os, sys\nsys.stdout.flush()\n{code}\n")
    return apart.findings("checked", "all of it", {"PYTHONPATH": str(folder)})


def test_findings_come_back(tmp_path: Path) -> None:
    assert findings(tmp_path, "") == [SUMS]


@pytest.mark.parametrize("said", ["hello", "{}", "[1]", "3"])
def test_what_a_library_prints_is_passed_over(tmp_path: Path, said: str) -> None:
    assert findings(tmp_path, f"print({said!r})") == [SUMS]


def test_a_crash_is_told_with_what_came_last(tmp_path: Path) -> None:
    bad = Finding("all of it", False, "was ended by SIGKILL after “sums”")
    assert findings(tmp_path, "os.kill(os.getpid(), 9)") == [SUMS, bad]


def test_an_exception_is_told(tmp_path: Path) -> None:
    bad = Finding("all of it", False, "ValueError: no GPU after “sums”")
    assert findings(tmp_path, "raise ValueError('no GPU')") == [SUMS, bad]


def test_a_module_that_is_not_there_is_told() -> None:
    (finding,) = apart.findings("no_such_module", "all of it")
    assert finding.good is False and "no_such_module" in finding.told


def test_a_hang_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "PATIENCE_S", 0.2)
    (finding,) = findings(tmp_path, "import time; time.sleep(60)")
    assert finding.good is False and "did not end" in finding.told


def test_switches_hold_there(tmp_path: Path) -> None:
    code = "print(Finding(os.environ['MLXNB_PAGED'], None, '').line())"
    (tmp_path / "checked.py").write_text(f"{FOUND}import os\n{code}\n")
    switches = {"PYTHONPATH": str(tmp_path), "MLXNB_PAGED": "0"}
    assert apart.findings("checked", "it", switches)[-1].check == "0"
