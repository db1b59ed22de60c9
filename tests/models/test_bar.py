"""A bar is text that is gone in the end, in a terminal and in a notebook."""

from __future__ import annotations

from typing import Any

import pytest

from mlxnb.models import bar as bars


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """What a notebook's one output has been, in order."""
    outputs: list[dict[str, str]] = []

    class Handle:
        def display(self, bundle: dict[str, str], raw: bool) -> None:
            assert not outputs, "a bar has one output"
            outputs.append(bundle)

        def update(self, bundle: dict[str, str], raw: bool) -> None:
            outputs.append(bundle)

    monkeypatch.setattr("IPython.display.DisplayHandle", Handle)
    monkeypatch.setattr(bars, "in_kernel", lambda: True)
    return outputs


def test_in_a_notebook_it_is_text_that_is_replaced(shown: list[dict[str, Any]]) -> None:
    with bars.bar("loading it", 4096) as bar:
        bar.update(1024)
        bar.refresh()
    assert {*map(tuple, shown)} == {("text/plain",)}
    texts = [output["text/plain"] for output in shown]
    assert texts[0].startswith("loading it:   0%") and texts[-1] == ""
    assert any("1.00k/4.00k" in text for text in texts)


def test_one_that_is_not_shown_shows_nothing(shown: list[dict[str, Any]]) -> None:
    with bars.bar("loading it", 10, show=False) as bar:
        bar.update(10)
    assert shown == []


def test_in_a_terminal_its_line_is_wiped(capsys: pytest.CaptureFixture[str]) -> None:
    with bars.bar("answering", 3, unit="row") as bar:
        bar.update(3)
        bar.refresh()
    told = capsys.readouterr().err
    assert "answering: 100%" in told and told.endswith("\r")
