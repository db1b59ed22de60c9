"""The parts of the bench, by name, and whom they are measured on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlxnb.bench.apart import Apart, Bench
from mlxnb.bench.cost import ModelCost, cost_of
from mlxnb.bench.figures import Figure
from mlxnb.bench.prompts import Prompts
from mlxnb.bench.sizes import SPARE, Sizes
from mlxnb.models.source import ModelSource

VERSUS = ("mlx-lm", "llama-cpp")
"""Libraries that can be measured beside ours."""


class Contest:
    """Who is measured: each in a process of its own, which starts when it is first asked.

    Parameters
    ----------
    source
        The model.
    sizes
        How much is measured.
    versus
        Of `VERSUS`, whom to compare with.
    gguf
        The model's GGUF file, for llama-cpp.
    """

    def __init__(
        self,
        source: ModelSource,
        sizes: Sizes,
        versus: tuple[str, ...] = (),
        gguf: Path | None = None,
    ) -> None:
        self.source = source
        self.sizes = sizes
        self._versus = versus
        self._gguf = gguf
        self._open = ExitStack()

    def close(self) -> None:
        """End all processes."""
        self._open.close()

    def start(
        self, make: Callable[..., Any], *arguments: Any, environment: Mapping[str, str] = {}
    ) -> Bench:
        """A process with something to measure in it."""
        apart = Apart(make, *arguments, environment=environment)
        self._open.callback(apart.close)
        return apart

    @cached_property
    def ours(self) -> Bench:
        """Our engine with the model, as a user has it."""
        from mlxnb.bench.bed import Bed

        return self.start(Bed.open, self.source)

    @cached_property
    def null(self) -> Bench:
        """Our engine with a model that computes nothing."""
        from mlxnb.bench.bed import Bed

        return self.start(Bed.null)

    @cached_property
    def both_kinds(self) -> list[Bench]:
        """Our engine with contiguous KV, and with paged KV where the device and the model can."""
        from mlxnb.bench.bed import Bed

        kinds = ({"MLXNB_PAGED": paged} for paged in "01")
        found = [self.start(Bed.open, self.source, environment=kind) for kind in kinds]
        return found if found[1](_pages) else found[:1]

    @cached_property
    def sparing(self) -> Bench:
        """Our engine with the model, leaving a core to others."""
        from mlxnb.bench.bed import Bed
        from mlxnb.bench.busy import spare_core

        return self.start(Bed.open, self.source, environment=spare_core())

    def folder(self) -> Path:
        """An empty folder, which goes at the end."""
        return Path(self._open.enter_context(TemporaryDirectory(prefix="mlxnb-")))

    def served(self, environment: Mapping[str, str]) -> tuple[Bench, int]:
        """Our engine with the model behind HTTP, and the port of a notebook server before it."""
        from mlxnb.bench.served import NotebookServer, Served, places

        folder = self.folder()
        bench = self.start(Served, self.source, environment=places(folder) | dict(environment))
        return bench, self._open.enter_context(closing(NotebookServer(folder))).port

    @cached_property
    def rivals(self) -> Mapping[str, Bench]:
        """The others, by name."""
        found: dict[str, Bench] = {}
        if "mlx-lm" in self._versus:
            from mlxnb.bench.plain import ENVIRONMENT, Plain

            found["mlx-lm"] = self.start(Plain.open, self.source, environment=ENVIRONMENT)
        if "llama-cpp" in self._versus:
            from mlxnb.bench.llama import Llama

            sizes = self.sizes
            context = max(*sizes.contexts, sizes.prefix) + sizes.message + sizes.decoded + SPARE
            found["llama-cpp"] = self.start(Llama, self._gguf, context)
        return found

    @cached_property
    def cost(self) -> ModelCost | None:
        """What the model's tokens cost."""
        return self.ours(cost_of, self.source)

    @cached_property
    def prompts(self) -> Prompts:
        """Prompts for the model, for all."""
        return Prompts(self.ours(_vocabulary), seed=1)


def _vocabulary(bed: Any) -> int:
    size: int = bed.runtime.vocab
    return size


def _pages(bed: Any) -> bool:
    paged: bool = bed.runtime.paged
    return paged


# --- the parts --------------------------------------------------------------------------------


def _roofline(contest: Contest) -> list[Figure]:
    from mlxnb.bench import roofline

    return roofline.measure(contest.sizes.rounds)


def _rates(contest: Contest) -> list[Figure]:
    from mlxnb.bench import rates

    return rates.measure(contest.ours, contest.rivals, contest.sizes, contest.prompts, contest.cost)


def _first_token(contest: Contest) -> list[Figure]:
    from mlxnb.bench import first_token

    return first_token.measure(contest.ours, contest.rivals, contest.sizes, contest.prompts)


def _concurrent(contest: Contest) -> list[Figure]:
    from mlxnb.bench import together

    return contest.ours(together.measure, contest.sizes, contest.cost)


def _kv(contest: Contest) -> list[Figure]:
    from mlxnb.bench import kv

    return [f for bench in contest.both_kinds for f in bench(kv.measure, contest.sizes)]


def _beside(contest: Contest) -> list[Figure]:
    from mlxnb.bench import beside

    return [f for bench in contest.both_kinds for f in bench(beside.measure, contest.sizes)]


def _disk(contest: Contest) -> list[Figure]:
    from mlxnb.bench import disk
    from mlxnb.bench.bed import Bed

    return contest.start(Bed.open, contest.source, contest.folder())(disk.measure, contest.sizes)


def _engine(contest: Contest) -> list[Figure]:
    from mlxnb.bench import allocation, overhead, planning

    rounds = contest.sizes.rounds
    return [
        *planning.measure(50 * rounds),
        *contest.null(overhead.measure, 200, rounds),
        *contest.null(allocation.measure),
    ]


def _constrained(contest: Contest) -> list[Figure]:
    from mlxnb.bench import constrained

    return contest.ours(constrained.measure, contest.sizes)


def _port(contest: Contest) -> list[Figure]:
    from mlxnb.bench import busy, port

    found: list[Figure] = []
    for how, environment in (("", {}), (", a core left free", busy.spare_core())):
        bench, number = contest.served(environment)
        found += port.measure(bench, number, contest.source.name, contest.sizes, how)
    return found


def _busy(contest: Contest) -> list[Figure]:
    from mlxnb.bench import busy

    return busy.measure(contest.sparing, contest.start(busy.Cell), contest.sizes)


PARTS: dict[str, Callable[[Contest], list[Figure]]] = {
    "roofline": _roofline,
    "rates": _rates,
    "first-token": _first_token,
    "concurrent": _concurrent,
    "kv": _kv,
    "beside": _beside,
    "disk": _disk,
    "constrained": _constrained,
    "port": _port,
    "busy": _busy,
    "engine": _engine,
}
"""What each measures stands in the module of its name.

``engine`` is what the engine itself takes, with a model that computes nothing.
"""
