"""An engine with tiny models in it, requests for it, and plain mlx-lm to compare with."""

from __future__ import annotations

import datetime as dt
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from models.tiny import config_of, random_model

from mlxnb.engine.core import Core
from mlxnb.engine.events import Done, Event, Prefill
from mlxnb.engine.request import Request
from mlxnb.engine.sampling import Sampling
from mlxnb.models.info import ModelInfo
from mlxnb.models.load import LoadedModel
from mlxnb.records.turn import FinishReason, TurnRecord
from mlxnb.text.answer import AnswerMachine, Piece

VOCAB = 128
END = VOCAB
"""The end token of these models, which they never choose: answers are as long as they may be."""


class Tokens:
    """As much of a tokenizer as the engine needs; token n is the character of that number."""

    def __init__(self, ends: frozenset[int] = frozenset({END})) -> None:
        self.eos_token_ids = ends

    def __len__(self) -> int:
        return VOCAB

    @staticmethod
    def decode(tokens: list[int]) -> str:
        return "".join(map(chr, tokens))


class Letters:
    """A streaming detokenizer that shows each token at once."""

    def __init__(self) -> None:
        self.last_segment = ""

    def add_token(self, token: int) -> None:
        self.last_segment = chr(token)

    def finalize(self) -> None:
        self.last_segment = ""


class Watched:
    """Stands in for a model: counts what goes in, and lets a test act in the midst of a step.

    ``before`` is called on the engine's thread with the ids ``(rows, tokens)``, before the model.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.calls: list[list[list[int]]] = []
        self.threads: set[threading.Thread] = set()
        self.before: Callable[[list[list[int]]], None] = lambda ids: None

    def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
        ids: Any = inputs.tolist()
        self.threads.add(threading.current_thread())
        self.before(ids)
        self.calls.append(ids)
        logits: mx.array = self.model(inputs, cache=cache)
        return logits

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    @property
    def fed(self) -> int:
        """Tokens that went in; there is no padding in what it is given."""
        return sum(len(row) for rows in self.calls for row in rows)

    @property
    def widths(self) -> list[int]:
        """Rows of each call."""
        return [len(rows) for rows in self.calls]


class Engine:
    """A core with what these tests ask of it."""

    def __init__(self, **options: Any) -> None:
        self.ended: list[tuple[Request, FinishReason]] = []
        self.on_end: Callable[[Request, FinishReason], None] = self._note
        self.core = Core(lambda request, reason: self.on_end(request, reason), **options)
        self.models: dict[str, Watched] = {}

    def _note(self, request: Request, reason: FinishReason) -> None:
        self.ended.append((request, reason))

    def close(self) -> None:
        self.core.stop()

    def install(
        self,
        name: str = "tiny",
        model: Callable[[], Any] | None = None,
        ends: frozenset[int] = frozenset({END}),
        fingerprint: str | None = None,
    ) -> Watched:
        """Build a model on the engine's thread and take it in; by default a tiny llama."""
        make = model or tiny

        def build() -> LoadedModel:
            watched = Watched(make())
            info = ModelInfo(name, family="test", bytes=0, fingerprint=fingerprint)
            return LoadedModel(watched, {"vocab_size": VOCAB}, Tokens(ends), info)

        loaded = self.core.owner.call(build)
        self.core.install(name, loaded)
        self.models[name] = loaded.model
        loaded.model.calls.clear()
        return self.models[name]

    def request(
        self,
        prompt: list[int],
        max_tokens: int = 8,
        model: str = "tiny",
        machine: dict[str, Any] | None = None,
        detokenizer: Any = None,
        options: dict[str, Any] | None = None,
        **request: Any,
    ) -> Request:
        """A request; ``options`` are for sampling, the rest is for `Request`."""
        sampling = Sampling(max_tokens=max_tokens, **(options or {})).settled()
        return Request(
            model=model,
            prompt=list(prompt),
            sampling=sampling,
            record=TurnRecord("t", None, model, "python", "test", dt.datetime.now(dt.UTC)),
            machine=answer_machine(stops=sampling.stop or (), **(machine or {})),
            detokenizer=detokenizer or Letters(),
            end_tokens=self.core.runtime(model).end_tokens,
            **request,
        )

    def start(self, request: Request, limited: bool = True) -> Request:
        """Plan and queue it."""
        self.core.plan(request)
        request.clock.queued = time.perf_counter()
        self.core.submit(request, limited)
        return request

    def run(self, *requests: Request) -> None:
        """Start requests together and wait for the end of all, which must be good."""
        with self.held():
            for request in requests:
                self.start(request, limited=False)
        for request in requests:
            done = wait(request)
            if done.error is not None:
                raise done.error

    def answer(self, prompt: list[int], max_tokens: int = 8, **more: Any) -> list[int]:
        """The tokens that a request of its own gets."""
        request = self.request(prompt, max_tokens, **more)
        self.run(request)
        return request.generated

    def alone(self, prompt: list[int], count: int, model: str = "tiny") -> list[int]:
        """Greedy tokens of a plain loop over mlx-lm's caches."""
        plain = self.models[model].model

        def loop() -> list[int]:
            caches, token, out = make_prompt_cache(plain), mx.array([prompt]), []
            for _ in range(count):
                out.append(int(mx.argmax(plain(token, cache=caches)[0, -1]).item()))
                token = mx.array([[out[-1]]])
            return out

        return self.core.owner.call(loop)

    @contextmanager
    def held(self) -> Iterator[None]:
        """The engine's thread does nothing inside of the block."""
        going, free = threading.Event(), threading.Event()
        holder = threading.Thread(
            target=self.core.owner.call, args=(lambda: going.set() or free.wait(60),)
        )
        holder.start()
        assert going.wait(60)
        try:
            yield
        finally:
            free.set()
            holder.join()

    def settled(self) -> None:
        """Nothing is in use between requests, all adds up, and the budget is held."""
        store = self.core.store
        assert store.faults == 0
        assert store.nbytes <= store.budget
        for live in store.lives():
            assert not (live.running or live.pins or live.claimed)
        assert not any(block.refs for block in store.index)


def tiny(seed: int = 0, **changes: Any) -> Any:
    """A random llama with large weights."""
    return random_model(config_of("llama", VOCAB, max_position_embeddings=4096, **changes), seed)


def answer_machine(**options: Any) -> AnswerMachine:
    return AnswerMachine(
        **{
            "think": None,
            "starts_in_reasoning": False,
            "tool_tags": None,
            "parse_tool": None,
            "tools": None,
            "stops": (),
            **options,
        }
    )


def events(request: Request) -> Iterator[Event]:
    """What it tells, up to its end."""
    while True:
        try:
            event = request.events.get(timeout=60)
        except queue.Empty:
            raise AssertionError("the request never ended") from None
        yield event
        if isinstance(event, Done):
            return


def start_together(engine: Engine, requests: list[Request]) -> None:
    """Start requests, none of which is looked at before all of them wait."""
    with engine.held():
        for request in requests:
            engine.start(request, limited=False)


def alternate(engine: Engine, length: int) -> None:
    """Requests of two models in turn: each is answered as it would be alone."""
    requests = [
        engine.request(prompt_of(length, seed=n), 6, model=name)
        for n, name in enumerate(["tiny", "other", "tiny", "other"])
    ]
    start_together(engine, requests)
    for request in requests:
        assert wait(request).error is None
        assert request.generated == engine.alone(request.prompt, 6, model=request.model)


def wait(request: Request) -> Done:
    """Wait for the end."""
    *_, last = events(request)
    assert isinstance(last, Done)
    return last


def pieces(request: Request) -> list[Piece]:
    return [event for event in events(request) if not isinstance(event, Done | Prefill)]


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for something that is bound to happen."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def prompt_of(length: int, seed: int = 1) -> list[int]:
    """Some tokens, none of them an end token."""
    return [1 + (seed * 7919 + n * n * 31 + n * 17) % (VOCAB - 1) for n in range(length)]
