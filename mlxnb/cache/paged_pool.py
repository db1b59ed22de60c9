"""A block pool whose blocks several sequences read in place.

Each slot counts the tables and index entries that hold it, and is free again when none does.
What is written by a running model is lazy: whoever looks at the slabs settles the pool first.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from weakref import WeakSet

import mlx.core as mx

from mlxnb import native
from mlxnb.cache.index import Slot
from mlxnb.cache.paged_call import Call
from mlxnb.cache.paged_kernels import Kernels, MlxKernels
from mlxnb.cache.paged_metal import metal_kernels
from mlxnb.cache.paged_native import NativeKernels, native_kernels
from mlxnb.cache.paged_sequence import PagedSequence
from mlxnb.cache.pool import BLOCK, BlockPool, Run
from mlxnb.mlxlm import LayerShape


def best_kernels() -> Kernels:
    """The native kernels of this device, where they are there and wanted; else MLX's own."""
    return native_kernels() or metal_kernels() or MlxKernels()


def in_place() -> bool:
    """Whether this device has kernels that read blocks in place.

    Without them paged caches give the same answers, but each step gathers what it reads, and
    contiguous caches are faster.
    """
    return type(best_kernels()) is not MlxKernels


class PagedPool(BlockPool):
    """Slots with reference counts.

    Parameters
    ----------
    layers
        The shape of each layer's KV.
    kernels
        What writes and attends; by default the native ones where they are there.

    Attributes
    ----------
    allocate
        Called for each slot that a sequence grows by; may raise. None: a free slot, or one of a
        new slab.
    """

    def __init__(self, layers: Sequence[LayerShape], kernels: Kernels | None = None) -> None:
        super().__init__(layers)
        self.kernels: Kernels = kernels or best_kernels()
        self.allocate: Callable[[], Slot] | None = None
        self.sequences: WeakSet[PagedSequence] = WeakSet()
        self.serials = itertools.count(1)
        self.dropped: deque[list[Slot]] = deque()
        self._counts: dict[Slot, int] = {}
        self._places: dict[int, tuple[int, int]] = {
            number: (group, place)
            for group, members in enumerate(self._groups.values())
            for place, number in enumerate(members)
        }
        self._call: tuple[object, Call] | None = None
        self._positions: tuple[tuple[int, ...], mx.array] | None = None

    # --- slots --------------------------------------------------------------------------------

    def take(self) -> Slot:
        """A free slot, held once."""
        self.reap()
        slot = super().take()
        self._counts[slot] = 1
        return slot

    def retain(self, slot: Slot) -> None:
        """Hold a slot once more."""
        self._counts[slot] += 1

    def give_back(self, slot: Slot) -> None:
        """Let go of a slot once; nobody's slot may be overwritten from then on."""
        self.kernels.flush(self)
        left = self._counts[slot] - 1
        if left:
            self._counts[slot] = left
            return
        del self._counts[slot]
        super().give_back(slot)

    def holders(self, slot: Slot) -> int:
        """How many tables and index entries hold a slot."""
        return self._counts.get(slot, 0)

    def reap(self) -> None:
        """Give back what sequences held that were forgotten instead of released."""
        while self.dropped:
            for slot in self.dropped.popleft():
                self.give_back(slot)

    def slot(self) -> Slot:
        """A slot for a sequence to grow into, held once."""
        if self.allocate is not None:
            return self.allocate()
        self.reap()
        if not self.free:
            self.grow()
        return self.take()

    # --- arrays -------------------------------------------------------------------------------

    def _zeros(self, shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
        """In large pages, where the native kernels read it: a step reads all of a row's KV."""
        zeros = super()._zeros(shape, dtype)
        return native.spread(zeros) if isinstance(self.kernels, NativeKernels) else zeros

    def place(self, layer: int) -> tuple[int, int]:
        """A layer's group, and its place among the group's layers."""
        return self._places[layer]

    def names(self) -> list[int]:
        """The slabs' names."""
        return list(self._slabs)

    def arrays(self, slab: int, group: int) -> tuple[mx.array, mx.array]:
        """A slab's keys and values of a group of layers."""
        part = self._slabs[slab]
        return part.keys[group], part.values[group]

    def layer_bytes(self, layer: int, blocks: int) -> int:
        """Bytes of so many blocks in one layer."""
        return blocks * BLOCK * self.layers[layer].nbytes

    def complete(self) -> None:
        """Complete all that was written: it is in the slabs."""
        self.kernels.flush(self)
        mx.eval([self.kernels.pending(self, layer) for layer in range(len(self.layers))])

    def settle(self) -> None:
        """Complete what was written and let go of the slabs, for MLX to update them in place."""
        self._call = None
        self.complete()

    def abandon(self) -> None:
        """Forget what is still to be computed, after a failure of a model's call."""
        self._call = None
        self.kernels.forget()

    def write(self, slots: Sequence[Slot], run: Run) -> None:
        """As a block pool does it, after what was written before."""
        self.settle()
        super().write(slots, run)

    def read(self, slots: Sequence[Slot], length: int, capacity: int) -> Run:
        """As a block pool does it, after what was written before."""
        self.settle()
        return super().read(slots, length, capacity)

    def copy(self, source: Slot, target: Slot) -> None:
        """Copy a block to another slot."""
        self.settle()
        super().move(source, target)

    def move(self, source: Slot, target: Slot) -> None:
        """Copy a block to a slot just taken, which replaces it wherever it is held.

        The index's own note of where the block lies is its owner's to change.
        """
        self.copy(source, target)
        self._counts[target] = self._counts.pop(source)
        for sequence in self.sequences:
            sequence.replace(source, target)

    # --- a call of the model ------------------------------------------------------------------

    def call(
        self,
        rows: Sequence[PagedSequence],
        starts: tuple[int, ...],
        counts: tuple[int, ...],
        width: int,
    ) -> Call:
        """The call that these rows are in; its layers get the same object."""
        key = ([(row.serial, row.version) for row in rows], starts, counts, width)
        if self._call is None or self._call[0] != key:
            serials = tuple(row.serial for row in rows)
            tables = [row.table for row in rows]
            self._call = key, Call(tables, starts, counts, width, serials)
        return self._call[1]

    def positions(self, offsets: tuple[int, ...]) -> mx.array:
        """``offsets`` as an array ``(rows,)`` int32; the layers of a call get the same one."""
        if self._positions is None or self._positions[0] != offsets:
            self._positions = offsets, mx.array(offsets, dtype=mx.int32)
        return self._positions[1]
