"""What the notebook port adds, against the engine called in its host."""

from __future__ import annotations

import statistics
from contextlib import closing

from mlxnb.bench.apart import Bench
from mlxnb.bench.figures import Figure, Sheet
from mlxnb.bench.served import Client, Served
from mlxnb.bench.sizes import Sizes

PROMPT = "Write a long story about a lighthouse, a storm and the people in them."
PAIRS = 4
"""Answers of each kind in a round: machines are noisy, and this is about small times."""


def measure(bench: Bench, port: int, model: str, sizes: Sizes, how: str = "") -> list[Figure]:
    """Answers to one prompt, in the host and through the port, in turn; all but one token cached.

    Parameters
    ----------
    bench
        Of a `Served`.
    port
        A notebook port that passes requests on to it.
    how
        What the figures' names end in.
    """
    sheet = Sheet("port")
    with closing(Client(port, bench(Served.key))) as client:
        for _ in range(2):  # both ways are warm
            bench(Served.direct, PROMPT, sizes.answer)
            client.ask(model, PROMPT, sizes.answer)
        for _ in range(sizes.rounds):
            pairs = [
                (
                    bench(Served.direct, PROMPT, sizes.answer),
                    client.ask(model, PROMPT, sizes.answer),
                )
                for _ in range(PAIRS)
            ]
            here, there = zip(*pairs, strict=True)
            assert {run.decoded for run in here} == {run.decoded for run in there}
            for what, of in (("first token", "first_s"), ("each token", "step_s")):
                own = 1e3 * statistics.median(getattr(run, of) for run in here)
                seen = 1e3 * statistics.median(getattr(run, of) for run in there)
                sheet.add(f"{what}, in the host{how}", "ms", own)
                sheet.add(f"{what}, through the notebook port{how}", "ms", seen)
                sheet.add(f"{what}, added by the notebook port{how}", "ms", seen - own)
    return sheet.figures()
