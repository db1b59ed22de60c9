"""Time to the first token: of a prompt that is new, and of one whose beginning is known.

A decode step at the same context is what it is compared with.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from mlxnb.bench.apart import Bench
from mlxnb.bench.bed import Bed, first_s, gaps
from mlxnb.bench.figures import Figure, Sheet
from mlxnb.bench.prompts import Prompts
from mlxnb.bench.runs import Run
from mlxnb.bench.sizes import Sizes

STEPS = 8
"""Tokens decoded for the length of a step."""


def measure(
    bench: Bench, rivals: Mapping[str, Bench], sizes: Sizes, prompts: Prompts
) -> list[Figure]:
    """Cold and warm first tokens after a prefix, and a second conversation's.

    Of the rivals, the one that goes on from its last sequence by itself takes part: llama-cpp.
    """
    sheet = Sheet("first token")
    for _ in range(sizes.rounds):
        prefix = prompts.draw(sizes.prefix)
        said = [prompts.draw(sizes.message) for _ in range(2)]
        for what, unit, value in bench(warm, prefix, said):
            sheet.add(what, unit, value)
        if "llama-cpp" in rivals:
            for what, unit, value in rivals["llama-cpp"](_theirs, prefix, said):
                sheet.add(what, unit, value, who="llama-cpp")
        system = prompts.draw(sizes.system)
        said = [prompts.draw(sizes.message) for _ in range(2)]
        for what, unit, value in bench(second_conversation, system, said):
            sheet.add(what, unit, value)
    return sheet.figures()


Sample = tuple[str, str, float]
"""What, its unit, and its value."""


def warm(bed: Bed, prefix: list[int], said: list[list[int]]) -> list[Sample]:
    """A conversation begins with ``prefix``, goes on, is taken up by others, and by another."""
    size, new = f"{len(prefix):,}", f"{len(said[0])} new"
    cold = bed.request(prefix, 1 + STEPS, owner="one")
    bed.run(cold)
    own = bed.request(cold.tokens + said[0], 1, owner="one")
    bed.run(own)
    other = bed.request(prefix + said[1], 1, owner="two")
    bed.run(other)
    same = bed.request(prefix, 1, owner="three")
    bed.run(same)
    bed.forget()
    step = statistics.median(gaps(cold))
    samples = [(f"{size} tokens, cold", "s", first_s(cold)), ("a decode step there", "s", step)]
    for what, request in (
        (f"{size} cached + {new}, own session", own),
        (f"{size} cached + {new}, another session", other),
        (f"{size} again, another session", same),
    ):
        samples += [
            (what, "s", first_s(request)),
            (what, "decode steps", first_s(request) / step),
            (what, "× faster than cold", first_s(cold) / first_s(request)),
            (what, "tokens cached", float(request.cached or 0)),
        ]
    return samples


def second_conversation(bed: Bed, system: list[int], said: list[list[int]]) -> list[Sample]:
    """Another conversation with the system text of a first one, with and without reuse."""
    bed.run(bed.request(system + said[0], 1 + STEPS, owner="one"))
    second = bed.request(system + said[1], 1, owner="two")
    bed.run(second)
    without = bed.request(system + said[1], 1, reuse=False)
    bed.run(without)
    bed.forget()
    what = f"second conversation, {len(system):,} common + {len(said[1])}"
    return [
        (what, "s", first_s(second)),
        (f"{what}, without reuse", "s", first_s(without)),
        (what, "× faster than without", first_s(without) / first_s(second)),
        (what, "tokens cached", float(second.cached or 0)),
    ]


def _theirs(library: Any, prefix: list[int], said: list[list[int]]) -> list[Sample]:
    """The same of a library that keeps one sequence."""
    cold: Run = library.run(prefix, STEPS)
    own: Run = library.run(prefix + said[0], 1, keep=True)
    what = f"{len(prefix):,} cached + {len(said[0])} new, own session"
    return [
        (f"{len(prefix):,} tokens, cold", "s", cold.first_s),
        ("a decode step there", "s", cold.step_s),
        (what, "s", own.first_s),
        (what, "decode steps", own.first_s / cold.step_s),
        (what, "× faster than cold", cold.first_s / own.first_s),
    ]
