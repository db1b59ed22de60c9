from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from mlxnb import cli
from mlxnb.bench.command import gguf_of
from mlxnb.bench.parts import PARTS
from mlxnb.bench.sizes import QUICK, Sizes
from mlxnb.errors import InvalidOption
from mlxnb.models.source import ModelSource


def run(source: ModelSource, *arguments: str) -> int:
    return cli.main(["bench", "--model", source.name, "--quick", *arguments])


def test_parts_of_a_run_add_up_in_one_file(source: ModelSource, tmp_path: Path) -> None:
    file, chart = tmp_path / "run.json", tmp_path / "run.png"
    assert run(source, "--only", "concurrent", "--json", str(file)) == 0
    arguments = ("--only", "rates", "--context", "40", "--rounds", "2", "--vs", "mlx-lm")
    assert run(source, *arguments, "--json", str(file), "--chart", str(chart)) == 0
    content = json.loads(file.read_text("utf-8"))
    assert content["machine"]["model"] == source.name
    figures = content["figures"]
    assert {figure["part"] for figure in figures} == {"concurrent", "rates"}
    rates = [figure for figure in figures if figure["part"] == "rates"]
    assert {figure["who"] for figure in rates} == {"mlxnb", "mlx-lm"}
    assert {len(figure["samples"]) for figure in rates} == {2}
    assert chart.stat().st_size > 0


def test_the_engine_itself_is_measured_with_a_model_that_computes_nothing(
    source: ModelSource, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(source, "--only", "engine") == 0
    printed = capsys.readouterr().out
    for part in ("planning", "overhead", "allocation"):
        assert part in printed


@pytest.mark.parametrize(
    ("arguments", "library"),
    [(["--vs", "llama-cpp"], "llama_cpp"), (["--chart", "x.png"], "matplotlib")],
)
def test_what_is_not_installed_is_said_before_anything_runs(
    arguments: list[str],
    library: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    find = importlib.util.find_spec

    def missing(name: str) -> Any:
        return None if name == library else find(name)

    monkeypatch.setattr("importlib.util.find_spec", missing)
    assert cli.main(["bench", *arguments]) == 1
    printed = capsys.readouterr().err
    assert f"needs {library}" in printed
    assert "pip install 'mlxnb[bench]'" in printed


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--context", "-3"]])
def test_numbers_below_one_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", *arguments]) == 1
    assert "1 or more" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--only", "nonsense"], ["--vs", "nonsense"]])
def test_an_unknown_part_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", *arguments])


def test_help_names_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["bench", "--help"])
    printed = capsys.readouterr().out
    assert all(part in printed for part in PARTS)


def test_llama_cpp_reads_the_file_that_a_model_was_imported_from(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    assert gguf_of(ModelSource(str(file), tmp_path, "gguf")) == file


def test_a_model_without_a_gguf_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"none; give --model a \.gguf file"):
        gguf_of(ModelSource("some/model", tmp_path))


def test_sizes_fit_a_models_context() -> None:
    small = Sizes().within(2048)
    assert small.contexts == (128, 1000)
    assert max(small.prefix, small.long) + small.decoded + small.message < 2048
    assert QUICK.within(8192) == QUICK
