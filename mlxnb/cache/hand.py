"""What users do to the prefix cache by hand: keep something, or let it go."""

from __future__ import annotations

from mlxnb.cache.checkpoint import Checkpoint
from mlxnb.cache.eviction import check_free, eviction_order, free_branch
from mlxnb.cache.index import Block, PrefixIndex
from mlxnb.cache.live import Live
from mlxnb.cache.room import Room
from mlxnb.cache.shelf import Shelf
from mlxnb.cache.space import Space
from mlxnb.errors import UnknownBlock


class Hand:
    """Finds blocks, hot caches and checkpoints by the ids that the frame shows.

    Parameters
    ----------
    shelf
        What is on disk; None: nothing.
    """

    def __init__(
        self, room: Room, index: PrefixIndex, spaces: dict[str, Space], shelf: Shelf | None
    ) -> None:
        self._room, self._index, self._spaces, self._shelf = room, index, spaces, shelf

    def pin(self, name: str, pinned: bool = True) -> None:
        """Keep a block (with all before it), a hot cache or a checkpoint, or let it go again.

        Raises
        ------
        UnknownBlock
            No block, or more than one, has an id that begins so.
        """
        with self._room.lock:
            self._found(name).pinned = pinned

    def evict(self, name: str) -> None:
        """Let a block go with all behind it, or a hot cache, or a checkpoint.

        Of what is in memory a copy may be on disk; of what is on disk alone that goes. To be called
        on the engine's thread.

        Raises
        ------
        UnknownBlock
            No block, or more than one, has an id that begins so.
        InvalidOption
            It is in use, or pinned.
        """
        with self._room.lock:
            try:
                found = self._found(name)
            except UnknownBlock:
                if self._evict_from_disk(name):
                    return
                raise
            if isinstance(found, Block):
                for block in reversed(free_branch(found)):
                    self._room.space_of(block).remove(block)
                return
            check_free(found)
            if isinstance(found, Live):
                self._spaces[found.key].drop(found)
            else:
                self._spaces[found.space].forget(found)

    def order(self) -> list[str]:
        """Ids of what can go now, in the order in which it would."""
        with self._room.lock:
            return eviction_order(list(self._spaces.values()), list(self._room.snapshots))

    def _evict_from_disk(self, name: str) -> bool:
        """Delete what is on disk alone, with all behind it; False: there is no such thing."""
        shelf = self._shelf
        return shelf is not None and any(shelf.evict(key, name) for key in self._spaces)

    def _found(self, name: str) -> Live | Block | Checkpoint:
        lives = (live for space in self._spaces.values() for live in space.lives)
        found: list[Live | Block | Checkpoint] = [live for live in lives if live.id == name]
        found += [c for c in self._room.snapshots if c.id == name]
        if not found:
            found += [b for b in self._index if name and b.id.startswith(name)]
        if len(found) != 1:
            raise UnknownBlock(
                f"{len(found) or 'no'} blocks have an id that begins with {name!r}; "
                "ids are in the prefix cache's frame"
            )
        return found[0]
