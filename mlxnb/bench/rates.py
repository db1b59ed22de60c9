"""Prefill and decode rates, of this engine and of others in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mlxnb.bench import ours
from mlxnb.bench.apart import Bench
from mlxnb.bench.cost import ModelCost
from mlxnb.bench.figures import OURS, Figure, Sheet
from mlxnb.bench.prompts import Prompts
from mlxnb.bench.runs import Run
from mlxnb.bench.sizes import Sizes

ENOUGH_S = 60.0
"""Seconds that another library's samples may take at a context; the first may take longer."""


@dataclass(slots=True)
class Rival:
    """Another library, and the pace that it was last seen to have."""

    name: str
    bench: Bench
    prefill_s: float = 0.0
    decode_s: float = 0.0
    spent_s: float = 0.0

    def takes(self, context: int, decoded: int) -> float:
        """Seconds that a run is likely to take."""
        return context * self.prefill_s + decoded * self.decode_s

    def run(self, prompt: list[int], decoded: int) -> Run:
        """A run, from which its pace is taken."""
        run: Run = self.bench(_run, prompt, decoded)
        self.prefill_s, self.decode_s = run.first_s / len(prompt), run.decode_s / decoded
        self.spent_s += run.first_s + run.decode_s
        return run


def _run(library: Any, prompt: list[int], decoded: int) -> Run:
    run: Run = library.run(prompt, decoded)
    return run


def measure(
    bench: Bench,
    rivals: Mapping[str, Bench],
    sizes: Sizes,
    prompts: Prompts,
    cost: ModelCost | None,
) -> list[Figure]:
    """Tokens a second at each context: of the prompt, and of what is decoded after it.

    A rival's samples are fewer where one takes long, and none where it would take longer than
    ``sizes.patience``.
    """
    sheet = Sheet("rates")
    others = [Rival(name, other) for name, other in rivals.items()]
    for context in sizes.contexts:
        able = list(_able(sheet, others, context, sizes))
        for number in range(sizes.rounds):
            prompt = prompts.draw(context)
            _note(sheet, OURS, context, bench(ours.run, prompt, sizes.decoded), cost)
            for rival in able:
                if number == 0 or rival.spent_s + rival.takes(context, sizes.decoded) <= ENOUGH_S:
                    _note(sheet, rival.name, context, rival.run(prompt, sizes.decoded), None)
    return sheet.figures()


def _able(sheet: Sheet, rivals: list[Rival], context: int, sizes: Sizes) -> Iterator[Rival]:
    """Those whose run is worth waiting for."""
    for rival in rivals:
        rival.spent_s = 0.0
        expected = rival.takes(context, sizes.decoded)
        if expected <= sizes.patience:
            yield rival
            continue
        why = f"not run: it would take about {expected:,.0f} s"
        for phase in ("prefill", "decode"):
            sheet.leave_out(_name(phase, context), "tokens/s", rival.name, why)


def _note(sheet: Sheet, who: str, context: int, run: Run, cost: ModelCost | None) -> None:
    prefill = None if cost is None else cost.prefill(context)
    decode = None if cost is None else cost.decode(context)
    sheet.add(_name("prefill", context), "tokens/s", context / run.first_s, who, prefill)
    sheet.add(_name("decode", context), "tokens/s", run.decode_tps, who, decode)


def _name(phase: str, context: int) -> str:
    return f"prefill of {context:,}" if phase == "prefill" else f"decode after {context:,}"
