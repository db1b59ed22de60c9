"""Processes that start, use, restart and leave an engine exit with 0.

Without the owner's last act about a third of them abort in MLX's own clean-up.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from models.tiny import byte_level, config_of, random_model, save_folder

PROCESSES = 20
TESTS = Path(__file__).parents[1]
SCRIPT = """
import sys, threading, time
sys.path[:0] = [{tests!r}, {root!r}]
from pathlib import Path
from engine.running import Engine, prompt_of
from mlxnb.errors import EngineDied
from mlxnb.models.source import ModelSource

way, folder = sys.argv[1], Path(sys.argv[2])
engine = Engine(budget=2**24)
source = ModelSource("model", folder)

def answer():
    return engine.answer(prompt_of(20), 5, model=engine.core.load(source).info.name)

def die():
    raise SystemExit

first = answer()
try:
    if way == "stuck":
        engine.core.owner.stuck_after = 0.5
        engine.core.owner.call(lambda: time.sleep(2))
    elif way == "dies":
        engine.core.owner.call(die)
except EngineDied:
    engine.core.check()
assert answer() == first
assert engine.core.restarts == (way in ("stuck", "dies"))
if way == "closes":
    engine.close()
elif way == "runs":
    engine.start(engine.request(prompt_of(20), 100_000, model="model"))
print("good")
"""


def test_twenty_processes_exit_well(tmp_path: Path) -> None:
    config = config_of("llama", 400)
    save_folder(tmp_path / "model", config, byte_level("smollm"), random_model(config))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(tests=str(TESTS), root=str(TESTS.parent)))
    environment = {**os.environ, "MLXNB_CACHE": str(tmp_path / "cache")}

    def run(way: str) -> tuple[str, int, str]:
        done = subprocess.run(
            [sys.executable, str(script), way, str(tmp_path / "model")],
            capture_output=True,
            text=True,
            timeout=240,
            env=environment,
        )
        return done.stdout, done.returncode, done.stderr[-2000:]

    ways = ["dies", "stuck", "runs", "leaves", "closes"] * (PROCESSES // 5)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(run, ways))
    assert [(out, code) for out, code, _ in results] == [("good\n", 0)] * PROCESSES, results
