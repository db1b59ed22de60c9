"""What the shards hold: which are hollow, which are small, and which entries go first."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass

from mlxnb.cache.disk.rows import Key
from mlxnb.cache.disk.schema import delete

HEADER = 256
"""Bytes that an entry takes in a shard besides its data, at most; and a shard itself."""
MANY = 8
"""Small shards of about one size that are merged into one."""

_STOCKS = (
    "SELECT s.name, s.namespace, s.size, s.payload, count(e.shard), coalesce(sum(e.length), 0)"
    " FROM shards AS s LEFT JOIN entries AS e ON e.shard = s.name GROUP BY s.name"
)
_BY_USE = (
    "SELECT namespace, id, parent, shard, length, (SELECT count(*) FROM entries AS child WHERE"
    " child.parent = e.id AND child.namespace = e.namespace AND child.id != e.id)"
    " FROM entries AS e ORDER BY used"
)


@dataclass(slots=True)
class Stock:
    """A shard, and how many entries with how many bytes of its payload are still wanted."""

    name: str
    namespace: str
    size: int
    payload: int
    count: int
    live: int

    @property
    def hollow(self) -> bool:
        """Whether less than half of it is wanted."""
        return self.count == 0 or 2 * self.live < self.payload

    @property
    def frees(self) -> int:
        """Bytes that rewriting it frees, if it is to be rewritten."""
        if not self.hollow:
            return 0
        left = self.live + (self.count + 1) * HEADER if self.count else 0
        return max(0, self.size - left)

    def lose(self, length: int) -> int:
        """Note that an entry is no longer wanted; how many bytes more that frees."""
        before = self.frees
        self.count, self.live = self.count - 1, self.live - length
        return self.frees - before


def stocks(connection: sqlite3.Connection) -> dict[str, Stock]:
    """All shards by name."""
    return {values[0]: Stock(*values) for values in connection.execute(_STOCKS)}


# --- room -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Candidate:
    namespace: str
    id: str
    parent: str | None
    shard: str
    length: int
    children: int


def evict(connection: sqlite3.Connection, over: int) -> list[Stock]:
    """Delete least recently used entries until their shards can free ``over`` bytes.

    Returns
    -------
    The shards that are to be rewritten for it.
    """
    shards = stocks(connection)
    freed = sum(stock.frees for stock in shards.values())
    gone: defaultdict[str, list[str]] = defaultdict(list)
    candidates = _oldest_first(connection)
    while freed < over and (entry := next(candidates, None)) is not None:
        gone[entry.namespace].append(entry.id)
        if entry.shard in shards:
            freed += shards[entry.shard].lose(entry.length)
    candidates.close()
    for namespace, ids in gone.items():
        delete(connection, namespace, ids)
    return [stock for stock in shards.values() if stock.hollow]


def _oldest_first(connection: sqlite3.Connection) -> Generator[_Candidate, None, None]:
    """Entries, least recently used first, each after those that build on it."""
    waiting: dict[Key, _Candidate] = {}
    fewer: Counter[Key] = Counter()
    for values in connection.execute(_BY_USE):
        entry: _Candidate | None = _Candidate(*values)
        assert entry is not None
        key = entry.namespace, entry.id
        entry.children -= fewer.pop(key, 0)
        waiting[key] = entry
        while entry is not None and not entry.children:
            yield waiting.pop((entry.namespace, entry.id))
            entry = _lose_child(waiting, fewer, entry)
    yield from waiting.values()  # they build on each other in a circle


def _lose_child(
    waiting: dict[Key, _Candidate], fewer: Counter[Key], entry: _Candidate
) -> _Candidate | None:
    """Note in an entry's parent that it goes; the parent, if it is older."""
    if entry.parent is None:
        return None
    key = entry.namespace, entry.parent
    parent = waiting.get(key)
    if parent is None:
        fewer[key] += 1
    else:
        parent.children -= 1
    return parent


# --- merging ----------------------------------------------------------------------------------


def next_merge(shards: Iterable[Stock], batch: int) -> list[Stock]:
    """Shards of one namespace that are to become one, of about ``batch`` bytes; none: all is well.

    First those that are hollow. Then small ones, as soon as there are many of about one size: so
    an entry is rewritten a few times at most, however small the shards come.
    """
    groups: defaultdict[tuple[str, int], list[Stock]] = defaultdict(list)
    for stock in shards:
        if stock.hollow:
            groups[stock.namespace, -1].append(stock)
        elif stock.live < batch:
            groups[stock.namespace, stock.live.bit_length() // 3].append(stock)
    for (_, tier), group in sorted(groups.items()):
        if tier < 0 or len(group) >= MANY:
            return _up_to(group, batch)
    return []


def _up_to(group: list[Stock], batch: int) -> list[Stock]:
    taken, total = [], 0
    for stock in group:
        if total < batch:
            taken.append(stock)
            total += stock.live
    return taken


def together(shards: Iterable[Stock], batch: int) -> Iterator[list[Stock]]:
    """Hollow shards in the groups that they are rewritten in."""
    left = {stock.name: stock for stock in shards}
    while group := next_merge(left.values(), batch):
        yield group
        for stock in group:
            del left[stock.name]
