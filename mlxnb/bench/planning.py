"""How long it takes to decide what a long prompt can reuse."""

from __future__ import annotations

import random
import time

from mlxnb.bench.figures import Figure, Sheet
from mlxnb.cache.index import Block, PrefixIndex
from mlxnb.cache.live import Live
from mlxnb.cache.plan import make_plan
from mlxnb.cache.pool import BLOCK
from mlxnb.records.tokens import WIDTH, pack

PROMPT = 32_000
"""Tokens of the prompt that is planned."""
OTHERS = 10_000
"""Blocks of other prompts in the index."""


def measure(rounds: int) -> list[Figure]:
    """Milliseconds of planning, a sample a round."""
    index, root, prompt, lives = _crowded()
    sheet = Sheet("planning")
    for _ in range(rounds):
        begin = time.perf_counter()
        plan = make_plan(index, root, lives, prompt, owner="nobody")
        took = 1e3 * (time.perf_counter() - begin)
        sheet.add(f"{PROMPT:,} tokens against {OTHERS:,} blocks", "ms", took)
        assert plan.matched == PROMPT - 1, "the whole prompt but its last token is there"
    return sheet.figures()


def _crowded() -> tuple[PrefixIndex, Block, bytes, list[Live]]:
    """An index with the prompt's blocks, others that share parts of it, and hot caches."""
    draw = random.Random(0)
    index = PrefixIndex(BLOCK)
    root = index.root("model", "")
    prompt = pack(draw.randrange(50_000) for _ in range(PROMPT))
    _file(index, root, prompt)
    for _ in range(OTHERS // 20):
        shared = draw.randrange(0, PROMPT // 2) // BLOCK * BLOCK
        tail = pack(draw.randrange(50_000) for _ in range(20 * BLOCK))
        _file(index, root, prompt[: shared * WIDTH] + tail)
    hot = Live("model", root, "another", b"", running=False)
    hot.tokens = bytearray(prompt[: PROMPT * WIDTH // 2])
    return index, root, prompt, [hot]


def _file(index: PrefixIndex, root: Block, tokens: bytes) -> None:
    block, width = root, BLOCK * WIDTH
    for at in range(0, len(tokens), width):
        piece = tokens[at : at + width]
        block = block.children.get(piece) or index.add(block, piece, (0, 0))
