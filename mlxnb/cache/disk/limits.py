"""How much the disk tier takes on, and when it does what."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds and intervals of a tier.

    Attributes
    ----------
    backlog
        Bytes that may wait to be written.
    batch
        Bytes after which what waits is written at once, and up to which shards are merged.
    delay_s
        Seconds after which what waits is written however little it is.
    poll_s
        Seconds between two looks for what other processes have written.
    tidy_s
        Seconds of quiet after which times of use and notes are written, and small shards merged.
    orphan_s
        Age of a file that belongs to no row, in seconds, from which it is deleted.
    off_s
        Seconds that nothing is written after a fault.
    close_s
        Seconds that closing may take.
    """

    backlog: int = 256 * MIB
    batch: int = 64 * MIB
    delay_s: float = 0.5
    poll_s: float = 0.2
    tidy_s: float = 5.0
    orphan_s: float = 600.0
    off_s: float = 60.0
    close_s: float = 2.0
