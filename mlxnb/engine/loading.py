"""A load on its way: told about on the thread that waits for it, and given up from there."""

from __future__ import annotations

from collections.abc import Callable

from mlxnb.errors import MlxnbError


class GivenUp(MlxnbError):
    """Nobody waits for this load any more."""


class Loading:
    """Progress of a load, from the engine's thread to the one that waits.

    Parameters
    ----------
    progress
        Called with bytes done and bytes in all; None: nobody wants to know.
    """

    def __init__(self, progress: Callable[[int, int], None] | None) -> None:
        self._progress = progress
        self._latest: tuple[int, int] | None = None
        self._given_up = False

    def note(self, done: int, total: int) -> None:
        """Take the state down; on the engine's thread. Raises ``GivenUp``."""
        if self._given_up:
            raise GivenUp("the load was interrupted")
        self._latest = (done, total)

    def tell(self) -> None:
        """Pass the newest state on; on the thread that waits."""
        latest, self._latest = self._latest, None
        if self._progress is not None and latest is not None:
            self._progress(*latest)

    def give_up(self) -> None:
        """Stop the load at the next layer."""
        self._given_up = True
