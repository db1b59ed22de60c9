"""What goes wrong around an engine: its disk, the system's memory, its own thread."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mlxnb.cache.disk import shard
from mlxnb.cache.disk.limits import Limits
from mlxnb.cache.disk.tier import INDEX, DiskTier
from mlxnb.engine import pressure
from mlxnb.errors import EngineDied
from mlxnb.models.memory import System
from mlxnb.sessions.local import LocalEngine

MIB, GIB = 2**20, 2**30
QUOTA = 6 * MIB
"""Bytes on disk: less than what is said in a day."""
LIMITS = Limits(delay_s=0.02, poll_s=0.05, tidy_s=0.2, off_s=0.2, close_s=10.0)
RESERVE = 512 * MIB
"""What a system of 8 GiB leaves to others."""
ROOMY = [0, 200_000, 1_000_000, 4 * GIB]
"""Bytes that KV may take of it."""


class Faults:
    """A disk and a system for an engine, and what goes wrong with them now and then.

    Parameters
    ----------
    folder
        Where the disk tier may have a folder.
    """

    def __init__(self, folder: Path, seed: str) -> None:
        self.random = random.Random(seed)
        self.kv = folder / "kv"
        self.seen: Counter[str] = Counter()
        self.engine = self.open()
        self._roomy = max(ROOMY)
        self._failing = False

    def open(self) -> LocalEngine:
        """An engine over the disk, on the system."""
        system = System(lambda: 8 * GIB, self._available, lambda: None)
        disk = DiskTier(self.kv, QUOTA, LIMITS)
        self.engine = LocalEngine(budget=64 * MIB, disk=disk, system=system)
        return self.engine

    def _available(self) -> int:
        return max(0, RESERVE + self._roomy - self.engine.core.store.nbytes)

    # --- what goes wrong ----------------------------------------------------------------------

    def happen(self) -> None:
        """One fault, whatever is going on."""
        acts: list[Callable[[], None]] = [self.wipe, self.damage, self.damage, self.garbage]
        acts += [self.fail, self.press, self.press, self.press]
        if self.random.random() < 0.1:
            acts = [self.kill]
        act = self.random.choice(acts)
        act()
        self.seen[act.__name__] += 1

    def wipe(self) -> None:
        """The folder goes, while it is read and written."""
        for _ in range(3):
            for path in list(self.kv.glob("*")):
                path.unlink(missing_ok=True)
            with suppress(OSError):
                self.kv.rmdir()

    def damage(self) -> None:
        """Some bytes of a shard change, or its end is lost, or all of it."""
        paths = list(self.kv.glob(f"*{shard.SUFFIX}"))
        if not paths:
            return
        with suppress(OSError):  # it was merged meanwhile
            path = self.random.choice(paths)
            data = bytearray(path.read_bytes())
            for at in self.random.choices(range(len(data) + 1), k=20):
                data[at : at + 1] = b"?"
            whole = self.random.random() < 0.5
            path.write_bytes(data if whole else data[: self.random.randrange(len(data))])

    def garbage(self) -> None:
        """The index is something else."""
        with suppress(OSError):
            (self.kv / INDEX).write_bytes(self.random.randbytes(5000))

    def fail(self) -> None:
        """What is written fails, until the next time."""
        self._failing = not self._failing

    def press(self) -> None:
        """Others take memory, or give it back."""
        self._roomy = self.random.choice(ROOMY)

    def kill(self) -> None:
        """The engine's thread ends in the midst of its work."""
        with suppress(EngineDied):
            self.engine.core.owner.call(_die)

    def mend(self) -> None:
        """All is well again, for what has to be."""
        self._failing, self._roomy = False, max(ROOMY)
        self.engine.core.check()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Writes may fail, and the system is looked at all the time, inside of the block."""
        save, every, recovery = shard.save_file, pressure.EVERY_S, pressure.RECOVERY_S

        def write(*args: Any) -> None:
            if self._failing:
                raise OSError(28, "No space left on device")
            save(*args)

        shard.save_file = write  # type: ignore[attr-defined]
        pressure.EVERY_S, pressure.RECOVERY_S = 0.0, 0.5
        try:
            yield
        finally:
            shard.save_file = save  # type: ignore[attr-defined]
            pressure.EVERY_S, pressure.RECOVERY_S = every, recovery


def _die() -> None:
    raise SystemExit
