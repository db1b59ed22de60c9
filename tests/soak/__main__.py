"""The long soak, by hand: ``PYTHONPATH=tests python -m soak --minutes 30``."""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from pathlib import Path

from parity.families import FAMILIES

from mlxnb.sessions.local import LocalEngine

from .faults import Faults
from .models import make
from .soak import Soak

DEFAULT = "llama,qwen3,mixtral,gemma2,llama:8,gemma3_text,qwen3_next,mamba2,lfm2"


def main() -> None:
    """Print what was seen now and then; an assertion is what went wrong."""
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of this process's CPU time")
    parser.add_argument("--seed", default=str(time.time_ns()))
    told = f"some of {', '.join(FAMILIES)}; llama:8 keeps its KV in 8 bits"
    parser.add_argument("--families", default=DEFAULT, help=told)
    parser.add_argument("--no-faults", action="store_true", help="nothing fails, and no disk")
    options = parser.parse_args()
    logging.getLogger("mlxnb").setLevel(logging.ERROR)  # budgets are lowered on purpose
    print(f"seed {options.seed}, families {options.families}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MLXNB_CACHE"] = f"{folder}/cache"
        models = [make(name, Path(folder)) for name in options.families.split(",")]
        faults = None if options.no_faults else Faults(Path(folder), options.seed)
        engine = LocalEngine(budget=64 * 2**20) if faults is None else faults.engine
        soak = Soak(engine, models, options.seed, faults)
        try:
            _run(soak, options.minutes)
        finally:
            soak.engine.close()


def _run(soak: Soak, minutes: float) -> None:
    while time.process_time() < 60 * minutes:
        soak.round()
        if soak.seen.rounds % 10 == 0:
            print(f"\n{time.process_time():.0f} s\n{soak.seen}", flush=True)
    print(f"\nin the end\n{soak.seen}", flush=True)


if __name__ == "__main__":
    main()
