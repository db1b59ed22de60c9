"""How the next token is chosen: sampling options, seeded samplers and logits processors.

Filters are mlx-lm's; the draw is ours, with an explicit key for each (seed, position), so that a
seed gives the same tokens alone and in a batch.
"""

from __future__ import annotations

import dataclasses
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlxnb.errors import InvalidOption

if TYPE_CHECKING:
    import mlx.core as mx

DEFAULT_MAX_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Sampling:
    """Options of one request; None: not said here, the next in line decides.

    The order is request, session, the model's own generation_config if it asks for sampling, and
    last greedy. Penalties look at the whole prompt, its cached part included, and the output.

    Raises
    ------
    InvalidOption
        A value is out of its range; the message names both.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] | None = None
    n: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        elif self.stop is not None:
            object.__setattr__(self, "stop", tuple(self.stop))
        for name, (low, high, kinds) in _RANGES.items():
            _check(name, getattr(self, name), low, high, kinds)
        if not all(isinstance(s, str) for s in self.stop or ()):
            raise InvalidOption("stop is a string or a list of strings")
        _check_bias(self.logit_bias)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Sampling:
        """Options from keywords; an unknown one raises ``InvalidOption`` naming those there are."""
        known = {f.name for f in dataclasses.fields(cls)}
        for name in options:
            if name not in known:
                raise InvalidOption(f"no sampling option {name!r}; there are {sorted(known)}")
        return cls(**options)

    def over(self, other: Sampling) -> Sampling:
        """These options, and ``other``'s where these say nothing."""
        mine = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        theirs = {f.name: getattr(other, f.name) for f in dataclasses.fields(self)}
        return Sampling(**{k: theirs[k] if v is None else v for k, v in mine.items()})

    def settled(self) -> Sampling:
        """Nothing left open: greedy unless a temperature is set, a seed drawn where it matters."""
        defaults = Sampling(
            temperature=0.0, max_tokens=DEFAULT_MAX_TOKENS, seed=secrets.randbits(32), stop=(), n=1
        )
        return self.over(defaults)


_NUMBER = (int, float)
_RANGES: dict[str, tuple[float, float, tuple[type, ...]]] = {
    "temperature": (0.0, 100.0, _NUMBER),
    "top_p": (0.0, 1.0, _NUMBER),
    "top_k": (0, 2**31 - 1, (int,)),
    "min_p": (0.0, 1.0, _NUMBER),
    "repetition_penalty": (0.01, 100.0, _NUMBER),
    "presence_penalty": (-100.0, 100.0, _NUMBER),
    "frequency_penalty": (-100.0, 100.0, _NUMBER),
    "seed": (0, 2**64 - 1, (int,)),
    "max_tokens": (1, 2**31 - 1, (int,)),
    "n": (1, 128, (int,)),
}


def _check(name: str, value: Any, low: float, high: float, kinds: tuple[type, ...]) -> None:
    if value is None:
        return
    kind = "an integer" if kinds == (int,) else "a number"
    if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value):
        raise InvalidOption(f"{name} is {kind} in [{low}, {high}], not {value!r}")
    if not low <= value <= high:
        raise InvalidOption(f"{name} lies in [{low}, {high}], {value!r} does not")


def _check_bias(bias: Any) -> None:
    if bias is None:
        return
    if not isinstance(bias, Mapping) or not all(
        isinstance(k, int) and isinstance(v, _NUMBER) and math.isfinite(v) for k, v in bias.items()
    ):
        raise InvalidOption("logit_bias maps token ids (int) to numbers")


class Sampler:
    """Chooses a token from logprobs ``(1, vocab)``, float; returns ``(1,)`` uint32.

    ``position`` is the number of tokens that the request has drawn; set it back to draw again.
    A fault in a filter is kept in ``fault`` and ends this request alone: the batch goes on.
    """

    def __init__(self, sampling: Sampling, vocab: int) -> None:
        self.position = 0
        self.fault: Exception | None = None
        self._temperature = sampling.temperature or 0.0
        self._seed = sampling.seed or 0
        self._filters = _filters(sampling, vocab)

    def __call__(self, logprobs: mx.array) -> mx.array:
        import mlx.core as mx

        position, self.position = self.position, self.position + 1
        if self._temperature == 0 or self.fault is not None:
            return mx.argmax(logprobs, axis=-1)
        try:
            for keep in self._filters:
                logprobs = keep(logprobs)
            return mx.random.categorical(
                logprobs * (1.0 / self._temperature), key=self._key(position)
            )
        except Exception as error:
            self.fault = error
            return mx.argmax(logprobs, axis=-1)

    def _key(self, position: int) -> mx.array:
        import mlx.core as mx

        mixed = (self._seed ^ (self._seed >> 32)) & 0xFFFFFFFF
        return mx.array([mixed, position], dtype=mx.uint32)


def _filters(sampling: Sampling, vocab: int) -> list[Callable[[mx.array], mx.array]]:
    """mlx-lm's filters in mlx-lm's order; one that would keep everything is left out."""
    from mlx_lm import sample_utils

    top_p, min_p, top_k = sampling.top_p, sampling.min_p, sampling.top_k
    filters: list[Callable[[mx.array], mx.array]] = []
    if top_p is not None and 0 < top_p < 1:
        filters.append(lambda x: sample_utils.apply_top_p(x, top_p))
    if min_p:
        filters.append(lambda x: sample_utils.apply_min_p(x, min_p))
    if top_k and top_k < vocab:
        filters.append(lambda x: sample_utils.apply_top_k(x, top_k))
    return filters


class Processor:
    """A logits processor ``(tokens (n,), logits (1, vocab)) → (1, vocab)`` whose fault stays its own.

    mlx-lm's batch is void after an exception; so it is kept in ``fault`` instead, and the request
    ended after the step.
    """

    def __init__(self, inner: Callable[[mx.array, mx.array], mx.array]) -> None:
        self.fault: Exception | None = None
        self._inner = inner

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        if self.fault is not None:
            return logits
        try:
            return self._inner(tokens, logits)
        except Exception as error:
            self.fault = error
            return logits


def make_processors(sampling: Sampling, context: int) -> list[Processor]:
    """Bias and penalties over a context of up to ``context`` tokens."""
    from mlx_lm.sample_utils import make_logits_processors

    repetition = sampling.repetition_penalty
    inner = make_logits_processors(
        logit_bias=dict(sampling.logit_bias) if sampling.logit_bias else None,
        repetition_penalty=None if repetition == 1 else repetition,
        repetition_context_size=context,
        presence_penalty=sampling.presence_penalty,
        presence_context_size=context,
        frequency_penalty=sampling.frequency_penalty,
        frequency_context_size=context,
    )
    return [Processor(p) for p in inner]
