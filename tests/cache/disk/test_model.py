"""The tier against what anybody would write: a dict of entries for each namespace."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mlxnb.cache.disk.entry import Entry
from mlxnb.cache.disk.tier import DiskTier

from .world import PATIENCE_S, QUICK, chain, ids, plain, size

NAMESPACES = st.sampled_from(["aa", "bb"])
TRUNK = chain("trunk", 6, size=700)
BRANCHES = [
    TRUNK[:cut] + chain(f"branch {cut}", 4, size=900, parent=TRUNK[cut - 1].id, start=cut)
    for cut in (1, 3, 5)
]
CHAINS = [TRUNK, *BRANCHES]
WHICH = st.integers(0, len(CHAINS) - 1)
PARTS = st.tuples(st.integers(0, 3), st.integers(1, 9))


class Machine(RuleBasedStateMachine):
    """Chains that share their beginnings are put, read, forgotten and cleared."""

    quota: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp()) / "kv"
        self.model: dict[str, dict[str, Entry]] = {"aa": {}, "bb": {}}
        self.tier = self.open()

    def open(self) -> DiskTier:
        return DiskTier(self.folder, self.quota, QUICK)

    def leading(self, namespace: str, asked: list[str]) -> list[Entry]:
        """What the model has of a chain."""
        there = self.model[namespace]
        cut = next((n for n, name in enumerate(asked) if name not in there), len(asked))
        return [there[name] for name in asked[:cut]]

    @rule(namespace=NAMESPACES, which=WHICH, part=PARTS)
    def put(self, namespace: str, which: int, part: tuple[int, int]) -> None:
        entries = CHAINS[which][part[0] : part[1]]
        new = [entry for entry in entries if entry.id not in self.model[namespace]]
        taken = self.tier.put(namespace, entries)
        assert taken == len(new) if self.quota is None else taken >= len(new)
        self.model[namespace].update({entry.id: entry for entry in new})

    @rule(namespace=NAMESPACES, which=WHICH, part=PARTS)
    def get(self, namespace: str, which: int, part: tuple[int, int]) -> None:
        asked = ids(CHAINS[which][part[0] : part[1]])
        expected = self.leading(namespace, asked)
        found = self.tier.get(namespace, asked)
        if self.quota is not None:
            expected = expected[: len(found)]
        assert plain(found) == plain(expected)

    @rule(namespace=NAMESPACES, which=WHICH, end=st.integers(1, 9))
    def forget(self, namespace: str, which: int, end: int) -> None:
        asked = ids(CHAINS[which][:end])
        there = self.model[namespace]
        for name in reversed(asked):
            if any(entry.parent == name for entry in there.values()):
                break
            there.pop(name, None)
        self.tier.forget(namespace, asked)
        assert self.tier.has(namespace, asked) <= len(self.leading(namespace, asked))
        assert self.tier.flush(PATIENCE_S)

    @rule(namespace=st.none() | NAMESPACES)
    def clear(self, namespace: str | None) -> None:
        self.tier.clear(namespace)
        for name in [namespace] if namespace is not None else ["aa", "bb"]:
            self.model[name].clear()

    @rule()
    def flush(self) -> None:
        assert self.tier.flush(PATIENCE_S)

    @rule()
    def reopen(self) -> None:
        self.tier.close()
        self.tier = self.open()

    @invariant()
    def has_what_the_model_has(self) -> None:
        for namespace in self.model:
            for whole in CHAINS:
                expected = len(self.leading(namespace, ids(whole)))
                there = self.tier.has(namespace, ids(whole))
                assert there == expected if self.quota is None else there <= expected
        assert self.tier.state == "ok"

    def teardown(self) -> None:
        self.tier.close()
        shutil.rmtree(self.folder.parent)


class Crowded(Machine):
    """The same where there is not room for everything: what is there is right."""

    quota = 9000

    @rule()
    def flush(self) -> None:
        assert self.tier.flush(PATIENCE_S)
        assert size(self.folder) <= 9000 if self.folder.exists() else True


FEW = settings(max_examples=60, stateful_step_count=25)
TestDisk = Machine.TestCase
TestDisk.settings = FEW
TestCrowded = Crowded.TestCase
TestCrowded.settings = FEW
