"""``mlxnb bench``: what the engine itself costs, measured on this machine.

Machines are noisy: each figure is a median with its spread, and what is compared runs in turn
within one process.
"""

from __future__ import annotations

import argparse
import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any


def main(arguments: list[str]) -> int:
    """Run the benches and print their figures; ``--json FILE`` keeps them."""
    parser = argparse.ArgumentParser(prog="mlxnb bench", description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, rougher figures")
    parser.add_argument("--model", metavar="NAME", help="also measure this model's token rates")
    parser.add_argument(
        "--vs", choices=["mlx-lm"], help="and the same with MLX's own operations, in turn"
    )
    options = parser.parse_args(arguments)
    if options.vs and not options.model:
        parser.error("--vs compares a model's rates: name one with --model, such as demo")
    figures = run(quick=options.quick)
    if options.model:
        from mlxnb.bench import throughput

        contexts, rounds = ([128], 1) if options.quick else ([128, 1000], 3)
        versus = options.vs is not None
        figures |= throughput.measure(options.model, contexts, rounds, versus)
    print("\n".join(f"{name:<58} {_shown(value)}" for name, value in figures.items()))
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": machine(), "figures": figures}, indent=2))
    return 0


def run(quick: bool = False) -> dict[str, Any]:
    """All figures by name; times are (median, spread or p99) pairs with units in the names."""
    from mlxnb.bench import allocation, overhead, planning

    figures: dict[str, Any] = {}
    figures.update(planning.measure(rounds=50 if quick else 300))
    figures.update(overhead.measure(steps=200 if quick else 1000, rounds=3 if quick else 7))
    figures.update(allocation.measure())
    return figures


def machine() -> dict[str, str]:
    """What it ran on."""
    import mlx.core as mx

    return {
        "platform": platform.platform(),
        "device": str(mx.device_info().get("device_name", "")),
        "mlx": version("mlx"),
        "mlx-lm": version("mlx-lm"),
        "python": platform.python_version(),
    }


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " … ".join(_shown(part) for part in value)
    return f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"
