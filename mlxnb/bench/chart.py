"""A picture of a run: rates beside others' and the roofline, first tokens, and concurrency."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlxnb.bench.figures import OURS, Figure
from mlxnb.bench.report import Report
from mlxnb.bench.roofline import roof

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {OURS: "#2a6f97", "llama-cpp": "#e07a5f", "mlx-lm": "#9a9a9a"}
BOUND = "black"


def draw(report: Report, file: Path) -> None:
    """Write the chart; panels whose figures are missing are left out.

    Parameters
    ----------
    file
        Its suffix names the format: png, svg or pdf.
    """
    from matplotlib.figure import Figure as Canvas

    limits = roof(report.figures)
    shown = panels(report.figures)
    rows = -(-len(shown) // 2) or 1
    canvas = Canvas(figsize=(11, 0.6 + 3.2 * rows), layout="constrained")
    for number, (title, figures) in enumerate(shown.items(), 1):
        axes = canvas.add_subplot(rows, 2, number)
        _bars(axes, figures, limits)
        axes.set_title(title, fontsize=10)
        if "seconds" in title:
            axes.set_xscale("log")
    canvas.legend(handles=_legend(shown, limits is not None), loc="outside lower center", ncols=4)
    canvas.savefig(file, dpi=100)


def panels(figures: list[Figure]) -> dict[str, list[Figure]]:
    """What is drawn, by the panels' titles."""

    def of(part: str, unit: str, start: str = "") -> list[Figure]:
        named = [f for f in figures if f.part == part and f.unit == unit]
        return [f for f in named if f.what.startswith(start) and "while" not in f.what]

    found = {
        "Prefill, tokens/s": of("rates", "tokens/s", "prefill"),
        "Decode, tokens/s": of("rates", "tokens/s", "decode"),
        "Time to the first token, seconds": of("first token", "s"),
        "Concurrent requests, tokens/s in all": of("concurrent", "tokens/s"),
    }
    return {title: some for title, some in found.items() if some}


def _bars(axes: Axes, figures: list[Figure], limits: tuple[float, float] | None) -> None:
    """Medians as bars with their range; the bound as a line across ours."""
    names = list(dict.fromkeys(f.what for f in figures))
    people = list(dict.fromkeys(f.who for f in figures))
    height = 0.8 / len(people)
    for figure in figures:
        if figure.median is None or figure.low is None or figure.high is None:
            continue
        at = names.index(figure.what) + height * (people.index(figure.who) - (len(people) - 1) / 2)
        spread = [[figure.median - figure.low], [figure.high - figure.median]]
        colour = COLOURS[figure.who]
        axes.barh(at, figure.median, height, xerr=spread, color=colour, capsize=2)
        bound = None if limits is None else figure.bound(*limits)
        if bound is not None:
            axes.vlines(bound, at - height / 2, at + height / 2, color=BOUND)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()


def _legend(shown: dict[str, list[Figure]], bound: bool) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    people = dict.fromkeys(f.who for figures in shown.values() for f in figures)
    handles: list[Any] = [Patch(color=COLOURS[who], label=who) for who in people]
    return handles + [Line2D([], [], label="roofline", color=BOUND)] * bound
