"""What the processes of ``test_restart`` do: ``python -m parity.restarting JOB``.

One talks with several models at once until it is killed; one asks again what that one was asked.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

from engine.running import until

from mlxnb.cache.disk.tier import DiskTier
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.local_session import LocalSession

from .bench import NEVER
from .lives import KINDS, MIB
from .world import WORDS

CONVERSATIONS = 20
TURNS = 3
TOKENS = 8
COMMON = "You say what you see, in as few words as you can. " * 3


def system_of(number: int) -> str:
    """Every other one is common to all who have one of that kind."""
    return COMMON if number % 2 else f"You are number {number} of many. {COMMON[::-1]}"


def text_of(number: int, turn: int) -> str:
    """What is said; many of them begin alike."""
    start = [" ".join(WORDS[: 3 + number % 4])] if number % 3 else []
    return " ".join([*start, f"in turn {turn}", WORDS[(number + turn) % len(WORDS)]])


class Process:
    """An engine with models over a folder of KV, as a job says."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        os.environ["MLXNB_CACHE"] = job["cache"]
        self.disk = DiskTier(Path(job["kv"]), 256 * MIB)
        self.engine = LocalEngine(budget=256 * MIB, disk=self.disk)
        self.folder = Path(job["said"])

    def load(self, kind: str, folder: str, adapter: str | None, kv_bits: int | None) -> str:
        os.environ["MLXNB_PAGED"] = "0" if kind.endswith("contiguous") else "1"
        bits = KINDS[kind].get("kv_bits") if kv_bits is None else kv_bits
        load: dict[str, Any] = {"adapter": adapter, "kv_bits": bits or None}
        return self.engine.load(folder, progress=False, **load).name

    def session(self, model: str, number: int, **options: Any) -> LocalSession:
        return self.engine.session(model, system=system_of(number), logit_bias=NEVER, **options)

    # --- the one that is killed ---------------------------------------------------------------

    def talk(self) -> None:
        """All conversations with all models; each line tells of one that is done."""
        models = {kind: self.load(kind, path, None, None) for kind, path in self.job["models"]}
        for number in range(CONVERSATIONS):
            for kind, model in models.items():
                self.converse(kind, model, number)
                print(f"{number} {kind}", flush=True)
        shelf = self.engine.core.store.shelf
        assert shelf is not None
        until(lambda: shelf.packer.idle)
        assert self.disk.flush(60)
        print("flushed", flush=True)

    def converse(self, kind: str, model: str, number: int) -> None:
        session = self.session(model, number)
        histories = []
        computed = 0
        for turn in range(TURNS):
            histories.append(session._history)
            said = session.send(text_of(number, turn), max_tokens=TOKENS)
            computed = said.prompt_tokens + said.output_tokens - 1
        kept = {
            "again": (histories[-1], said.prompt_tokens - 1, said.tokens),
            "on": (session._history, computed, None),
        }
        path = self.folder / f"{number} {kind}"
        path.with_suffix(".new").write_bytes(pickle.dumps(kept))
        path.with_suffix(".new").rename(path)

    # --- the one that comes after it ----------------------------------------------------------

    def ask(self) -> None:
        """The third turn again, or a fourth one, of all that was said; and the same cold."""
        found = [self.asked(**question) for question in self.job["questions"]]
        (self.folder / "found.json").write_text(json.dumps(found))
        print("asked", flush=True)

    def asked(
        self,
        kind: str,
        model: str,
        salt: str = "",
        adapter: str | None = None,
        kv_bits: int | None = None,
        most: int = CONVERSATIONS,
    ) -> dict[str, Any]:
        name = self.load(kind, model, adapter, kv_bits)
        sums = dict.fromkeys(("computed", "cached", "disk", "own_computed", "own_disk"), 0)
        wrong = []
        for number in range(most):
            path = self.folder / f"{number} {kind}"
            if not path.exists():
                continue
            which = "on" if number % 4 > 1 else "again"
            history, computed, heard = pickle.loads(path.read_bytes())[which]
            turn, cold = (
                self.answer(name, number, history, which, cache_salt=salt, reuse=reuse)
                for reuse in (True, False)
            )
            if turn.tokens != cold.tokens or (
                self.job["same"] and heard not in (None, turn.tokens)
            ):
                wrong.append([number, which, turn.tokens, cold.tokens, heard])
            record = self.engine.ledger[turn.id]
            own = not number % 2
            sums["computed"] += computed
            sums["cached"] += min(turn.cached_tokens, computed)
            sums["disk"] += min(record.disk_tokens, computed)
            sums["own_computed"] += own * computed
            sums["own_disk"] += own * min(record.disk_tokens, computed)
        return {**sums, "wrong": wrong}

    def answer(self, model: str, number: int, history: Any, which: str, **options: Any) -> Any:
        session = self.session(model, number, **options)
        session._history = history
        session._key = self.engine.core.runtime(model).key
        turn = TURNS if which == "on" else TURNS - 1
        return session.send(text_of(number, turn), max_tokens=TOKENS)


def main() -> None:
    """Do what the job says."""
    job = json.loads(Path(sys.argv[1]).read_text())
    process = Process(job)
    getattr(process, job["do"])()
    sys.stdin.read()  # until it is killed, or nobody is there any more


if __name__ == "__main__":
    main()
