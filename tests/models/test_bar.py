"""A bar is text that is gone in the end, in a terminal and in a notebook."""

from __future__ import annotations

import pytest

from mlxnb.models import bar as bars


@pytest.mark.parametrize("kernel", [False, True])
def test_its_line_is_wiped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kernel: bool
) -> None:
    monkeypatch.setattr(bars, "in_kernel", lambda: kernel)
    with bars.bar("loading it", 4096) as bar:
        bar.update(1024)
        bar.refresh()
    out, err = capsys.readouterr()
    told, other = (out, err) if kernel else (err, out)
    assert "1.00k/4.00k" in told and told.endswith("\r") and not told.split("\r")[-2].strip()
    assert other == ""


def test_one_that_is_not_shown_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with bars.bar("answering", 3, unit="row", show=False) as bar:
        bar.update(3)
    assert capsys.readouterr() == ("", "")
