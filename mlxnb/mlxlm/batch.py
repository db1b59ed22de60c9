"""Several sequences at a time: mlx-lm's batch generator."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mlx.core as mx

from mlxnb.mlxlm import door
from mlxnb.mlxlm.caches import Caches

_NO_LIMIT = 2**31 - 1

Sampler = Callable[[mx.array], mx.array]
Processor = Callable[[mx.array, mx.array], mx.array]
Normalizer = Callable[[mx.array], mx.array]


class RowStep(NamedTuple):
    """One row's part of a batch step: its token, which is in its caches by now.

    ``logprobs`` is ``(vocab,)``, the distribution that the token was drawn from. ``sound``: the
    token's own is a number, which is so unless a logit was NaN or infinite.
    """

    uid: int
    token: int
    logprobs: mx.array
    sound: bool = True


class Batch:
    """Continuous batching over mlx-lm's ``BatchGenerator``: rows join and leave between steps.

    A row is given as its caches, the tokens in them, and one token that is not yet in them. It
    never ends by itself: whoever reads its tokens takes it out. After any exception out of
    ``step`` the state is void (rows that were not at fault get duplicated tokens): drop it.

    Parameters
    ----------
    normalize
        What makes log-probabilities of logits ``(rows, vocab)``.
    """

    def __init__(self, model: Any, normalize: Normalizer, rows: int = 64) -> None:
        self._generator = door.generate.BatchGenerator(
            model,
            completion_batch_size=rows,
            prefill_batch_size=rows,
            stream=mx.default_stream(mx.default_device()),
        )
        decoding = self._generator._generation_batch
        self._drawn = Drawn()
        decoding._step = functools.partial(_step, decoding, normalize, self._drawn)

    def join(
        self,
        caches: Caches,
        tokens: list[int],
        pending: int,
        sampler: Sampler,
        processors: Sequence[Processor],
    ) -> int:
        """Add a row; its KV is copied into the batch at the next step. Returns its uid.

        It gives its first token at the step after that one.
        """
        uids: list[int] = self._generator.insert(
            [[pending]],
            max_tokens=[_NO_LIMIT],
            caches=[caches],
            all_tokens=[list(tokens)],
            samplers=[sampler],
            logits_processors=[list(processors)],
        )
        return uids[0]

    def step(self) -> list[RowStep]:
        """One decode step of all rows."""
        _, generated = self._generator.next()
        sound = self._drawn.sound
        return [RowStep(r.uid, r.token, r.logprobs, sound[r.uid]) for r in generated]

    def is_sound(self, uid: int) -> bool:
        """Whether a row's next token, if it has one, was drawn from numbers."""
        decoding = self._generator._generation_batch
        if uid not in decoding.uids:
            return True
        row = decoding.uids.index(uid)
        return is_number(decoding._next_logprobs[row][decoding._next_tokens[row]])

    def leave(self, uid: int) -> tuple[Caches, list[int], tuple[int, mx.array] | None]:
        """Take a row out: its caches, the tokens in them, and its next token if it has one.

        With that token come the log-probabilities ``(vocab,)`` that it was drawn from.
        """
        pending = self._pending(uid)
        caches, tokens = self.copy(uid)
        self._generator.remove([uid])
        return caches, tokens, pending

    def copy(self, uid: int) -> tuple[Caches, list[int]]:
        """A copy of a row's caches and the tokens in them; the row stays."""
        caches, tokens = self._generator.extract_cache([uid])[uid]
        for cache in caches:  # what is not computed yet would keep the whole batch
            mx.eval(cache.state)
        return caches, list(tokens)

    def sequences(self) -> dict[int, Any]:
        """The block tables of rows on paged caches, by uid; after a step they are others."""
        decoding = self._generator._generation_batch
        rows = decoding.prompt_cache[0].rows() if decoding.uids else []
        return dict(zip(decoding.uids, rows, strict=True))

    def _pending(self, uid: int) -> tuple[int, mx.array] | None:
        generation = self._generator._generation_batch
        if uid not in generation.uids:
            return None
        row = generation.uids.index(uid)
        return int(generation._next_tokens[row].item()), generation._next_logprobs[row]

    @property
    def nbytes(self) -> int:
        """Bytes of all rows' KV."""
        return int(self._generator.prompt_cache_nbytes)

    def close(self) -> None:
        """Give back what the generator set."""
        self._generator.close()


class Drawn:
    """The log-probabilities of the tokens that a batch has drawn: numbers, if its logits were.

    Attributes
    ----------
    sound
        Of the tokens that were fed last, by uid, whether theirs is one.
    """

    def __init__(self) -> None:
        self.sound: dict[int, bool] = {}
        self._uids: list[int] = []
        self._values: mx.array | None = None

    def note(self, uids: list[int], values: mx.array) -> None:
        """Keep those of new tokens ``(rows, 1)``, which are computed with them."""
        self._uids, self._values = list(uids), values

    def read(self, uids: list[int], tokens: list[int], logprobs: list[mx.array]) -> None:
        """Look at those of the tokens that are fed now; a row that has just come is new here."""
        values: Any = self._values.tolist() if self._values is not None else []
        known = {uid: math.isfinite(row[0]) for uid, row in zip(self._uids, values, strict=True)}
        self.sound = {
            uid: known[uid] if uid in known else is_number(own[token])
            for uid, token, own in zip(uids, tokens, logprobs, strict=True)
        }


def is_number(value: mx.array) -> bool:
    """Whether a scalar is neither NaN nor infinite."""
    number: Any = value.item()
    return math.isfinite(number)


def _step(batch: Any, normalize: Normalizer, drawn: Drawn) -> tuple[list[int], list[mx.array]]:
    """``GenerationBatch._step`` with another ``normalize``: mlx-lm's is slow on a CPU.

    Draws and begins to compute each row's next token; returns the tokens that it fed, with their
    log-probabilities.
    """
    inputs = batch._current_tokens = batch._next_tokens
    batch._current_logprobs = batch._next_logprobs
    logits = batch.model(inputs[:, None], cache=batch.prompt_cache)[:, -1, :]
    logits, contexts = _processed(batch, inputs, logits)
    logprobs = normalize(logits)
    batch._next_tokens = _drawn(batch, logprobs)
    batch._next_logprobs = list(logprobs)
    likely = mx.take_along_axis(logprobs, batch._next_tokens[:, None], axis=-1)
    mx.async_eval(batch._next_tokens, batch._next_logprobs, likely, contexts)
    mx.eval(inputs, batch._current_logprobs)
    fed: list[int] = inputs.tolist()
    drawn.read(batch.uids, fed, batch._current_logprobs)
    drawn.note(batch.uids, likely)
    for tokens, token in zip(batch.tokens, fed, strict=True):
        tokens.append(token)
    return fed, batch._current_logprobs


def _processed(batch: Any, inputs: mx.array, logits: mx.array) -> tuple[mx.array, list[mx.array]]:
    """Logits after the rows' processors, and the contexts that those looked at."""
    if not any(batch.logits_processors):
        return logits, []
    rows, contexts = [], []
    for number, processors in enumerate(batch.logits_processors):
        row = logits[number : number + 1]
        if processors:
            context = batch._token_context[number].update_and_fetch(inputs[number : number + 1])
            contexts.append(context)
            for processor in processors:
                row = processor(context, row)
        rows.append(row)
    return mx.concatenate(rows, axis=0), contexts


def _drawn(batch: Any, logprobs: mx.array) -> mx.array:
    """A token for each row; one call where the rows share a sampler."""
    fallback = batch.fallback_sampler
    samplers: list[Sampler] = [fallback if s is None else s for s in batch.samplers]
    if all(sampler is samplers[0] for sampler in samplers):
        together: mx.array = samplers[0](logprobs)
        return together
    rows = [sampler(logprobs[n : n + 1]) for n, sampler in enumerate(samplers)]
    return mx.concatenate(rows, axis=0)
