"""The long soak, by hand: ``PYTHONPATH=tests python -m soak --minutes 10``."""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from pathlib import Path

from parity.families import FAMILIES

from mlxnb.sessions.local import LocalEngine

from .soak import Soak

DEFAULT = "llama,qwen3,phi3,mixtral,gemma2,gpt_oss"


def main() -> None:
    """Print what was seen now and then; an assertion is what went wrong."""
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of this process's CPU time")
    parser.add_argument("--seed", default=str(time.time_ns()))
    parser.add_argument("--families", default=DEFAULT, help=f"some of {', '.join(FAMILIES)}")
    options = parser.parse_args()
    logging.getLogger("mlxnb").setLevel(logging.ERROR)  # budgets are lowered on purpose
    print(f"seed {options.seed}, families {options.families}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MLXNB_CACHE"] = f"{folder}/cache"
        names = options.families.split(",")
        folders = [FAMILIES[name].save(Path(folder) / name) for name in names]
        engine = LocalEngine(budget=64 * 2**20)
        try:
            _run(Soak(engine, folders, options.seed), options.minutes)
        finally:
            engine.close()


def _run(soak: Soak, minutes: float) -> None:
    while time.process_time() < 60 * minutes:
        soak.round()
        if soak.seen.rounds % 10 == 0:
            print(f"\n{time.process_time():.0f} s\n{soak.seen}", flush=True)
    print(f"\nin the end\n{soak.seen}", flush=True)


if __name__ == "__main__":
    main()
