"""The checkpoints of all models: how many bytes they take, and which may go first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count

from mlxnb.cache.checkpoint import Checkpoint, Stretch


class Snapshots:
    """A book of checkpoints; a stretch that several share is counted once.

    Parameters
    ----------
    clock
        Numbers that order uses in time.
    """

    def __init__(self, clock: count[int]) -> None:
        self.nbytes = 0
        self._clock = clock
        self._all: set[Checkpoint] = set()
        self._holders: Counter[Stretch] = Counter()

    def __iter__(self) -> Iterator[Checkpoint]:
        return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def add(self, checkpoint: Checkpoint, now: float) -> None:
        """Count a checkpoint in."""
        self.nbytes += self.growth(checkpoint)
        self._all.add(checkpoint)
        self._holders.update(checkpoint.stretches)
        self.touch(checkpoint, now)

    def growth(self, checkpoint: Checkpoint) -> int:
        """Bytes that a checkpoint adds to what is there."""
        new = (stretch for stretch in checkpoint.stretches if stretch not in self._holders)
        return checkpoint.states.nbytes + _bytes(new)

    def touch(self, checkpoint: Checkpoint, now: float) -> None:
        """Mark a checkpoint as just used."""
        checkpoint.stamp, checkpoint.last_used = next(self._clock), now

    def drop(self, checkpoint: Checkpoint) -> None:
        """Forget a checkpoint, wherever it is held; harmless when done twice."""
        if checkpoint.dropped:
            return
        checkpoint.dropped = True
        self._all.discard(checkpoint)
        self.nbytes -= self.bytes_of(checkpoint)
        for stretch in checkpoint.stretches:
            self._holders[stretch] -= 1
            if not self._holders[stretch]:
                del self._holders[stretch]
        if checkpoint.live is not None:
            checkpoint.live.checkpoints.remove(checkpoint)
        if checkpoint.node is not None:
            del checkpoint.node.marks[checkpoint.key]

    def bytes_of(self, checkpoint: Checkpoint) -> int:
        """Bytes that go when a checkpoint is dropped."""
        alone = (stretch for stretch in checkpoint.stretches if self._holders[stretch] == 1)
        return checkpoint.states.nbytes + _bytes(alone)

    def share_of(self, checkpoint: Checkpoint) -> int:
        """Its part of all bytes: what several share is divided among them."""
        parts = (s.nbytes // self._holders[s] for s in checkpoint.stretches)
        return checkpoint.states.nbytes + sum(parts)

    def oldest(self) -> Checkpoint | None:
        """The one that was used least recently of those that nobody relies on."""
        free = (checkpoint for checkpoint in self._all if not checkpoint.used)
        return min(free, key=lambda checkpoint: checkpoint.stamp, default=None)

    def evictable(self) -> int:
        """Bytes that are there for convenience alone."""
        used = [checkpoint for checkpoint in self._all if checkpoint.used]
        kept = {stretch for checkpoint in used for stretch in checkpoint.stretches}
        return self.nbytes - _bytes(kept) - sum(c.states.nbytes for c in used)


def _bytes(stretches: Iterable[Stretch]) -> int:
    return sum(stretch.nbytes for stretch in stretches)
