"""The console script: commands, exit statuses, and errors as one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlxnb import cli
from mlxnb.errors import MlxnbError
from mlxnb.link import keys

COMMANDS = ("demo", "serve", "bench", "models", "doctor", "pull", "keys", "rm")


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    printed = capsys.readouterr().out
    assert all(f"\n    {command} " in printed for command in COMMANDS)


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["models", "--nonsense"], ["pull"]])
def test_what_is_no_command_exits_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert "usage: mlxnb" in capsys.readouterr().err


def test_a_users_mistake_is_one_line_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pull", "no-such-model-anywhere"]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith("mlxnb pull: ")
    assert printed.err.count("\n") == 1


def test_models_prints_the_frame(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["models"]) == 0
    printed = capsys.readouterr().out
    for column in ("name", "family", "context_length", "fingerprint"):
        assert column in printed


def test_an_interrupt_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mlxnb.quickstart.run", interrupted)
    assert cli.main(["demo"]) == 130


def test_a_failing_demo_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(path: object) -> None:
        raise MlxnbError("cell 3: ValueError: no")

    monkeypatch.setattr("mlxnb.quickstart.run", failing)
    assert cli.main(["demo"]) == 1
    assert capsys.readouterr().err == "mlxnb demo: cell 3: ValueError: no\n"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXNB_STATE", str(tmp_path / "state"))


@pytest.mark.usefixtures("state")
def test_w4_keys_are_made_listed_shown_and_revoked(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["keys", "new", "laptop"]) == 0
    printed = capsys.readouterr().out.strip()
    assert (found := keys.check(printed)) and found.name == "laptop"
    assert cli.main(["keys", "new", "saved", "--save"]) == 0
    assert "mlxnb_" not in capsys.readouterr().out
    assert cli.main(["keys", "show", "saved"]) == 0
    saved = capsys.readouterr().out.strip()
    assert (found := keys.check(saved)) and found.name == "saved"
    assert cli.main(["keys", "list"]) == 0
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()] == ["laptop", "saved"]
    assert "mlxnb_" not in listed and found.hash not in listed
    assert cli.main(["keys", "revoke", "laptop"]) == 0
    assert keys.check(printed) is None


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize("action", ["show", "revoke"])
def test_a_key_that_is_not_there_is_one_line(
    action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["keys", action, "nobody"]) == 1
    assert capsys.readouterr().err.startswith("mlxnb keys: no key is named 'nobody'")
