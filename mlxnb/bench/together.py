"""Several requests at once: tokens a second in all, and how that grows with their number."""

from __future__ import annotations

from mlxnb.bench.bed import Bed, stamps
from mlxnb.bench.cost import ModelCost
from mlxnb.bench.figures import Cost, Figure, Sheet
from mlxnb.bench.sizes import Sizes
from mlxnb.engine.request import Request

PROMPT = 32
"""Tokens of each prompt."""


def measure(bed: Bed, sizes: Sizes, cost: ModelCost | None) -> list[Figure]:
    """Requests that arrive together; the numbers of them alternate."""
    sheet = Sheet("concurrent")
    for _ in range(sizes.rounds):
        one: float | None = None
        for rows in sizes.rows:
            requests = [
                bed.request(bed.prompts.draw(PROMPT), sizes.answer, reuse=False)
                for _ in range(rows)
            ]
            bed.run(*requests)
            total = throughput(requests)
            one = one or total / rows
            name = f"{rows} request{'s' if rows > 1 else ''}"
            bound = None if cost is None else _cost(cost, rows, sizes.answer)
            sheet.add(name, "tokens/s", total, cost=bound)
            sheet.add(name, "× one", total / one)
            sheet.add(f"{name}, while all decode", "tokens/s", decoding(requests))
    return sheet.figures()


def throughput(requests: list[Request]) -> float:
    """Generated tokens a second, from the first arrival to the last token; prefill included."""
    begin = min(request.clock.arrived for request in requests)
    end = max(stamps(request)[-1] for request in requests)
    return sum(len(request.generated) for request in requests) / (end - begin)


def decoding(requests: list[Request]) -> float:
    """Tokens a second between the last one's first token and the first one's last."""
    begin = max(stamps(request)[0] for request in requests)
    end = min(stamps(request)[-1] for request in requests)
    count = sum(begin < stamp <= end for request in requests for stamp in stamps(request))
    return count / (end - begin) if end > begin else float("nan")


def _cost(cost: ModelCost, rows: int, answer: int) -> Cost:
    """Of each generated token, with its share of the prompts."""
    prompt, token = cost.prefill(rows * PROMPT), cost.decode(PROMPT + answer // 2, rows)
    share = PROMPT / answer
    return Cost(token.nbytes + share * prompt.nbytes, token.operations + share * prompt.operations)
