"""The loop of a request that runs alone: chunked prefill, then decode one token ahead.

Phases: (1) ``prefill`` puts all but the last token of the sequence into the caches, a chunk a
call; (2) ``Solo`` feeds the last one; (3) each ``step`` feeds the token that was drawn, so that
the next is being computed while this one is read and turned into text.
"""

from __future__ import annotations

import time

import mlx.core as mx

from mlxnb import mlxlm
from mlxnb.engine.logprobs import Choice, bad_logits, normalized
from mlxnb.engine.request import Request
from mlxnb.engine.runtime import Runtime

Drawn = tuple[mx.array, mx.array, Choice | None]
"""A token ``(1,)``, its log-probability ``(1,)``, and what it was drawn from where that is wanted.
"""
CLEAR_EVERY = 256
"""Decode steps between two times that MLX gives back freed memory, as in mlx-lm's loop."""


def prefill(runtime: Runtime, request: Request) -> int:
    """Compute one chunk of the sequence; returns how many tokens are left before the last.

    The last token is left to the decode, unless there is to be none.
    """
    live = request.live
    assert live is not None and live.caches is not None
    todo = request.tokens[live.length :]
    if not request.prefill_only:
        todo.pop()
    chunk = todo[: live.until_mark(runtime.rate.chunk)]
    if chunk:
        begin = time.perf_counter()
        runtime.model(mx.array([chunk]), cache=live.caches)
        mlxlm.evaluate(live.caches)
        seconds = time.perf_counter() - begin
        runtime.rate.note(len(chunk), seconds)
        mx.clear_cache()
        request.fed(chunk)
        request.record.prefill_chunks += 1
        request.record.chunks.append((begin - request.clock.arrived, seconds, len(chunk)))
        request.progress()
    return len(todo) - len(chunk)


class Solo:
    """Decode of one request on its own caches.

    Parameters
    ----------
    pending
        A token that was drawn already and is not in the caches (a row that comes out of a
        batch), and the log-probabilities ``(vocab,)`` that it was drawn from; None: the
        sequence's last token is fed first.
    """

    def __init__(
        self,
        runtime: Runtime,
        request: Request,
        pending: tuple[int, mx.array] | None = None,
    ) -> None:
        live = request.live
        assert live is not None and live.caches is not None
        self.request = request
        self._model, self._caches = runtime.model, live.caches
        self._steps = 0
        self._context = None
        if request.processors:
            self._context = mlxlm.token_buffer(request.tokens[: live.length])
        self._drawn: Drawn | None
        if pending is not None:
            token = mx.array([pending[0]], dtype=mx.uint32)
            self._drawn = token, mx.zeros((1,)), request.choice(pending[1], token)
        else:
            last = (request.generated or request.prompt)[-1]
            self._drawn = self._draw(mx.array([last], dtype=mx.uint32))
            request.fed([last])

    def _draw(self, token: mx.array) -> Drawn:
        """Feed ``(1,)`` token; the next one, being computed."""
        logits = self._model(token[None], cache=self._caches)[:, -1, :]
        if self._context is not None:
            context = self._context.update_and_fetch(token)
            for processor in self.request.processors:
                logits = processor(context, logits)
        assert self.request.sampler is not None
        logprobs = normalized(logits)
        drawn = self.request.sampler(logprobs)
        likely = mx.take(logprobs, drawn)
        choice = self.request.choice(logprobs, drawn)
        mx.async_eval(drawn, likely, choice.arrays if choice is not None else [])
        return drawn, likely, choice

    def step(self) -> int:
        """The next token; the one after it is under way unless this must be the last.

        Raises
        ------
        BadLogits
            It was drawn from NaN or infinite logits.
        """
        drawn = self._drawn
        assert drawn is not None, "a settled loop takes no step"
        following = self._draw(drawn[0]) if self.request.remaining > 1 else None
        token = self._read(drawn)
        if following is not None:
            self.request.fed([token])
        self._drawn = following
        self._steps += 1
        if self._steps % CLEAR_EVERY == 0:
            mx.clear_cache()
        return token

    def settle(self) -> int | None:
        """The token that was drawn last, without drawing another; the loop ends here.

        Raises as ``step`` does.
        """
        drawn, self._drawn = self._drawn, None
        return None if drawn is None else self._read(drawn)

    def _read(self, drawn: Drawn) -> int:
        token = drawn[0].item()
        assert isinstance(token, int), "a token is a whole number"
        if not mlxlm.is_number(drawn[1]):
            request = self.request
            raise bad_logits(request.model, len(request.generated), bool(request.processors))
        if drawn[2] is not None:
            self.request.choices.append(drawn[2].read(token))
        return token
