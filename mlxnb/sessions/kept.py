"""Which tokens of an answer stay in an exact history."""

from __future__ import annotations

from collections.abc import Callable

from mlxnb.engine.request import Request


def kept_output(request: Request, encode: Callable[[str], list[int]]) -> list[int]:
    """All tokens of an answer; of one that a stop string cut, those whose text is visible.

    Where the stop string begins inside a token, what is visible of that token is encoded anew.
    """
    if request.machine.stop_sequence is None:
        return list(request.generated)
    visible = request.machine.visible_raw_length
    detokenizer = request.detokenizer
    detokenizer.reset()
    kept, length, raw = 0, 0, ""
    for number, token in enumerate(request.generated, start=1):
        detokenizer.add_token(token)
        raw = detokenizer.text
        if len(raw) > visible:
            break
        kept, length = number, len(raw)
    detokenizer.finalize()
    rest = detokenizer.text[length:visible]
    return request.generated[:kept] + (encode(rest) if rest else [])
