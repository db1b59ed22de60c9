"""What an answer that is held to a JSON schema costs those in the same batch, and itself."""

from __future__ import annotations

import statistics

from mlxnb.bench.bed import Bed, gaps
from mlxnb.bench.figures import Figure, Sheet
from mlxnb.bench.sizes import Sizes
from mlxnb.bench.together import PROMPT, decoding
from mlxnb.engine.form import Form
from mlxnb.engine.request import Request
from mlxnb.engine.sampling import Sampling
from mlxnb.engine.vocabulary import Vocabulary
from mlxnb.sessions.held import hold
from mlxnb.sessions.texts import Texts

OTHERS = 3
"""Requests in the batch that are free."""
FORM = Form(
    schema={
        "type": "array",
        "minItems": 10_000,  # it lasts as long as it is measured
        "items": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
            "required": ["name", "count"],
            "additionalProperties": False,
        },
    }
)


def measure(bed: Bed, sizes: Sizes) -> list[Figure]:
    """Rates of free requests beside one more that is free, or held to `FORM`, in turn."""
    sheet = Sheet("constrained")
    words = words_of(bed)
    bed.run(held(_request(bed, sizes), words))  # compiles the vocabulary and the grammar
    for _ in range(sizes.rounds):
        free, tied = _request(bed, sizes), held(_request(bed, sizes), words)
        bed.run(free)
        bed.run(tied)
        sheet.add("a step alone, free", "ms", 1e3 * statistics.median(gaps(free)))
        sheet.add("a step alone, held to a schema", "ms", 1e3 * statistics.median(gaps(tied)))
        beside_free = _beside(bed, sizes, _request(bed, sizes))
        beside_held = _beside(bed, sizes, held(_request(bed, sizes), words))
        sheet.add(f"{OTHERS} requests beside a free one", "tokens/s", beside_free)
        sheet.add(f"{OTHERS} requests beside a held one", "tokens/s", beside_held)
        sheet.add(
            f"{OTHERS} requests beside a held one", "× beside a free one", beside_held / beside_free
        )
    return sheet.figures()


def _request(bed: Bed, sizes: Sizes) -> Request:
    return bed.request(bed.prompts.draw(PROMPT), sizes.answer, reuse=False)


def words_of(bed: Bed) -> Vocabulary:
    """The model's tokens as grammars see them."""
    return Texts.of_runtime(bed.runtime, Sampling()).vocabulary


def held(request: Request, words: Vocabulary) -> Request:
    """The request, held to `FORM`."""
    hold(request, words, FORM, reasons=False)
    return request


def _beside(bed: Bed, sizes: Sizes, one: Request) -> float:
    """Tokens a second of the others, together, while they all decode beside ``one``."""
    others = [_request(bed, sizes) for _ in range(OTHERS)]
    bed.run(one, *others)
    return decoding(others)
