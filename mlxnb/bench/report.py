"""Figures of one machine, as a table and as JSON that later runs add to."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlxnb.bench.figures import OURS, Cost, Figure
from mlxnb.bench.roofline import roof
from mlxnb.errors import InvalidOption

if TYPE_CHECKING:
    import pandas as pd


@dataclass(slots=True)
class Report:
    """What was measured, on what: ``machine`` maps facts to their values."""

    machine: dict[str, str]
    figures: list[Figure] = field(default_factory=list)

    def add(self, figures: Iterable[Figure]) -> None:
        """Take figures in; one of the same key is replaced where it stands."""
        known = {figure.key: figure for figure in self.figures}
        known |= {figure.key: figure for figure in figures}
        self.figures = list(known.values())

    # --- looking ------------------------------------------------------------------------------

    def frame(self) -> pd.DataFrame:
        """A row a figure, others' beside ours.

        Columns: part, what, unit, median, low, high, bound (by the roofline, where that was
        measured), of_bound, and for each other library its median, and ours over it.
        """
        import pandas as pd

        others = list(dict.fromkeys(f.who for f in self.figures if f.who != OURS))
        rows: dict[tuple[str, str, str], dict[str, Any]] = {}
        for figure in self.figures:
            row = rows.setdefault(figure.key[:3], _empty(figure, others))
            if figure.who == OURS:
                row |= {"median": figure.median, "low": figure.low, "high": figure.high}
                row |= self._bounded(figure)
            else:
                row[figure.who] = figure.median
        for row in rows.values():
            row |= {f"× {who}": _over(row["median"], row[who]) for who in others}
        return pd.DataFrame(list(rows.values())).astype(dict.fromkeys(_floats(others), "float64"))

    def _bounded(self, figure: Figure) -> dict[str, float | None]:
        limits = roof(self.figures)
        bound = None if limits is None else figure.bound(*limits)
        return {"bound": bound, "of_bound": _over(figure.median, bound)}

    def __str__(self) -> str:
        """The machine and the table, for a terminal."""
        lines = [f"{name:<18}{fact}" for name, fact in self.machine.items()]
        if self.figures:
            text = self.frame().to_string(index=False, na_rep="", float_format=_short)
            lines += ["", *text.splitlines()]
        lines += [f"{f.who}, {f.what}: {f.note}" for f in self.figures if f.note]
        return "\n".join(lines)

    # --- keeping ------------------------------------------------------------------------------

    def save(self, file: Path) -> None:
        """Write all of it as JSON."""
        content = dataclasses.asdict(self)
        limits = roof(self.figures)
        for figure, entry in zip(self.figures, content["figures"], strict=True):
            entry["median"] = figure.median
            entry["bound"] = None if limits is None else figure.bound(*limits)
        file.write_text(json.dumps(content, indent=1) + "\n", "utf-8")

    def load(self, file: Path) -> None:
        """Take in what a file holds that ``save`` wrote, if there is one.

        Raises
        ------
        InvalidOption
            It is of another machine or other versions, or no such file.
        """
        if not file.exists():
            return
        try:
            content = json.loads(file.read_text("utf-8"))
            theirs = content["machine"]
            figures = [_figure(entry) for entry in content["figures"]]
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidOption(f"{file} does not hold a bench's figures: {error}") from None
        if differing := [
            k for k in {**theirs, **self.machine} if theirs.get(k) != self.machine.get(k)
        ]:
            raise InvalidOption(
                f"{file} holds figures of another run ({', '.join(differing)} differ); name "
                "another file"
            )
        self.add(figures)


def _figure(entry: dict[str, Any]) -> Figure:
    names = {field.name for field in dataclasses.fields(Figure)}
    known = {name: value for name, value in entry.items() if name in names}
    cost = known.pop("cost", None)
    samples = tuple(known.pop("samples"))
    return Figure(**known, samples=samples, cost=None if cost is None else Cost(**cost))


def _empty(figure: Figure, others: list[str]) -> dict[str, Any]:
    head: dict[str, Any] = {"part": figure.part, "what": figure.what, "unit": figure.unit}
    return head | dict.fromkeys(_floats(others))


def _floats(others: list[str]) -> list[str]:
    columns = ["median", "low", "high", "bound", "of_bound"]
    return columns + [column for who in others for column in (who, f"× {who}")]


def _over(value: float | None, other: float | None) -> float | None:
    return None if value is None or not other else value / other


def _short(value: float) -> str:
    """Four digits that count, and no fraction of large numbers."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"
