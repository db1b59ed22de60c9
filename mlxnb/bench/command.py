"""The command line of the bench."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
from pathlib import Path

from mlxnb.bench.parts import PARTS, VERSUS, Contest
from mlxnb.bench.report import Report
from mlxnb.bench.sizes import QUICK, Sizes
from mlxnb.errors import InvalidOption
from mlxnb.models.source import ModelSource

EXTRA = "pip install 'mlxnb[bench]'"


def main(arguments: list[str]) -> int:
    """Measure, print a table, and keep it where that is asked for.

    Raises
    ------
    InvalidOption
        Something that an option needs is not there.
    """
    options = _parser().parse_args(arguments)
    _check(options)
    from mlxnb.bench.machine import machine
    from mlxnb.models.info import describe
    from mlxnb.models.resolve import resolve

    source = resolve(options.model)
    sizes = _sizes(options).within(describe(source).context_length)
    report = Report({**machine(), "model": source.name})
    if options.json is not None:
        report.load(options.json)
    gguf = gguf_of(source) if "llama-cpp" in options.vs else None
    contest = Contest(source, sizes, tuple(options.vs), gguf)
    try:
        for name in options.only or PARTS:
            report.add(PARTS[name](contest))
            if options.json is not None:
                report.save(options.json)
    finally:
        contest.close()
    print(report)
    if options.chart is not None:
        from mlxnb.bench.chart import draw

        draw(report, options.chart)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mlxnb bench",
        description="Measure how fast a model runs here, and what its KV takes.",
    )
    add = parser.add_argument
    add("--model", default="demo", metavar="NAME", help="what to measure (default: demo)")
    add(
        "--vs",
        action="append",
        default=[],
        choices=VERSUS,
        help="and beside it, in turn; again for more",
    )
    add("--only", action="append", choices=PARTS, help="this part alone; again for more")
    add("--context", action="append", type=int, metavar="N", help="of rates: these contexts alone")
    add("--rounds", type=int, metavar="N", help="times that each is measured")
    add("--quick", action="store_true", help="small sizes, one round: rough figures")
    add("--json", type=Path, metavar="FILE", help="add the figures to FILE, part by part")
    add("--chart", type=Path, metavar="FILE", help="draw all figures (png, svg, pdf)")
    return parser


def _check(options: argparse.Namespace) -> None:
    """See that what is measured with is there, before anything takes its time."""
    wanted = {"llama_cpp": "llama-cpp" in options.vs, "matplotlib": options.chart is not None}
    for library, needed in wanted.items():
        if needed and importlib.util.find_spec(library) is None:
            raise InvalidOption(f"this needs {library}, which is not installed: {EXTRA}")
    for value in (options.rounds, *(options.context or ())):
        if value is not None and value < 1:
            raise InvalidOption(f"rounds and contexts are 1 or more, not {value}")


def _sizes(options: argparse.Namespace) -> Sizes:
    sizes = QUICK if options.quick else Sizes()
    if options.context:
        sizes = dataclasses.replace(sizes, contexts=tuple(options.context))
    return sizes if options.rounds is None else dataclasses.replace(sizes, rounds=options.rounds)


def gguf_of(source: ModelSource) -> Path:
    """The GGUF file that a model was imported from; of the demo model it is fetched.

    Raises
    ------
    InvalidOption
        The model comes from no GGUF file.
    """
    from mlxnb.models import demo

    if source.kind == "gguf":
        return Path(source.name)
    if source.name == demo.NAME:
        return demo.demo_gguf()
    raise InvalidOption(
        f"llama-cpp reads GGUF files, and {source.name} is none; give --model a .gguf file, or demo"
    )
