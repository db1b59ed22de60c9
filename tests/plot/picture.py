"""Draws the plots of the docs on the demo model: ``python -m plot.picture FILE.png``."""

from __future__ import annotations

import sys

from matplotlib import pyplot as plt

import mlxnb

SYSTEM = (
    "You answer questions of visitors of a museum of technology, in one short sentence, and you "
    "never make up a year, a name or a place that you are not sure of. Visitors are polite, most "
    "are in a hurry, and some are children. If you do not know, say so and name the desk."
)
QUESTIONS = ("Where is the steam engine?", "Who built it?", "Is it loud?")
ASKED = (("anna", 3), ("ben", 1), ("cleo", 2), ("dora", 1))
PANELS = [["turns", "reuse"], ["timeline", "tree"], ["certainty", "certainty"]]


def draw(path: str) -> None:
    """Ask in several sessions, and draw what came of it."""
    engine = mlxnb.engine()
    engine.load("demo", progress=False)
    options = {"system": SYSTEM, "temperature": 0.0, "max_tokens": 24}
    for name, count in ASKED:
        session = engine.session("demo", name=name, **options)
        for question in QUESTIONS[:count]:
            turn = session.send(question, logprobs=4, max_tokens=16)
    cache = engine.prefix_cache(wide=True)
    blocks = cache[(cache["kind"] == "kv") & (cache["start"] == 0)]
    engine.pin(blocks["block_id"].iloc[0])
    with plt.style.context("default"):
        figure, axes = plt.subplot_mosaic(PANELS, figsize=(11, 9), layout="constrained")
        mlxnb.plot.turns(ax=axes["turns"])
        mlxnb.plot.reuse(ax=axes["reuse"])
        mlxnb.plot.timeline(turn, ax=axes["timeline"])
        mlxnb.plot.tree(ax=axes["tree"])
        mlxnb.plot.logprobs(turn, ax=axes["certainty"])
        figure.savefig(path, dpi=100)


if __name__ == "__main__":
    draw(sys.argv[1])
