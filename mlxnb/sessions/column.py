"""A column of answers: one for each row, many at a time, each on its own."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from mlxnb.engine.sampling import Sampling
from mlxnb.errors import Interrupted, InvalidOption, MlxnbError, Unfinished
from mlxnb.records.turn import Source
from mlxnb.sessions.column_frame import Cell, ColumnFrame
from mlxnb.sessions.crew import Crew, Job, Outcome
from mlxnb.sessions.row_bar import Progress, row_bar
from mlxnb.sessions.row_prompts import Template, row_prompts
from mlxnb.sessions.session import Session
from mlxnb.sessions.shape import Shape

if TYPE_CHECKING:
    from mlxnb.sessions.column_frame import Answers
    from mlxnb.sessions.engine import Engine
    from mlxnb.sessions.row_prompts import Rows

IN_FLIGHT = 12
"""Turns at a time: as many as a model runs, some that wait, and places left for others."""


class RowFailed(Exception):
    """A row has no answer, and that ends the run."""


def map_rows(
    engine: Engine,
    rows: Rows,
    prompt: Template,
    system: str | None = None,
    model: str | None = None,
    schema: Any = None,
    on_error: str = "value",
    progress: bool | Progress = True,
    resume: Any = None,
    concurrency: int | None = None,
    source: Source = "python",
    **options: Any,
) -> Answers:
    """See `Engine.map`; ``source`` is for the turns' rows."""
    hands = _checked(on_error, concurrency, options)
    texts = row_prompts(rows, prompt)
    seeds = _seeds(options.pop("seed", None), len(texts))
    with origin(engine, "map", model, system, options) as base:
        frame = ColumnFrame(rows.index, _marks(base, schema, texts, seeds), schema)
        if resume is not None:
            frame.take(resume)
        jobs = {at: _job(base, at, texts[at], schema, seeds[at]) for at in frame.open}
        crew = Crew(engine, jobs, hands, source)
        asked = [job.text for job in jobs.values()]
        warm = partial(_warm, engine, base, asked, source)
        return _run(crew, frame, on_error == "raise", progress, warm)


def _seeds(seed: Any, count: int) -> list[dict[str, int]]:
    """Each row's own option: a seed of its own, where there is one."""
    first = Sampling(seed=seed).seed
    return [{} if first is None else {"seed": (first + at) % 2**64} for at in range(count)]


def _marks(
    base: Session, schema: Any, texts: Sequence[str | None], seeds: Sequence[dict[str, int]]
) -> list[str | None]:
    """A digest of all that decides a row's answer; None for a row that is not asked."""
    decided = [Shape.of(schema, None).schema, repr(base.options)]
    said = (json.dumps([*decided, *each]) for each in zip(texts, seeds, strict=True))
    digests = (blake2b(each.encode(), digest_size=8).hexdigest() for each in said)
    return [text if text is None else mark for text, mark in zip(texts, digests, strict=True)]


def _job(base: Session, at: int, text: str | None, schema: Any, seed: dict[str, int]) -> Job:
    assert text is not None, "a row without a prompt is not asked"
    form = {} if schema is None else {"schema": schema}
    return Job(base, f"{base.name}-{at}", text, {**form, **seed})


def _warm(engine: Engine, base: Session, texts: Sequence[str], source: Source) -> None:
    """Compute what all prompts share, where the first row cannot leave it to the others.

    KV that cannot be rewound is taken over at checkpoints, and a message has none inside.
    """
    models = engine.models()
    kind = models["reuse"][models["name"] == base.model]
    begins = _shared(min(texts), max(texts)) if len(texts) > 1 else ""
    if begins and list(kind) == ["checkpoint"]:
        with suppress(MlxnbError):  # the rows will say what is wrong
            engine.warm(base, source=source, begins=begins)


def _shared(a: str, b: str) -> str:
    """What two texts begin with, and so what all texts between them in their order do."""
    pairs = enumerate(zip(a, b, strict=False))
    return a[: next((at for at, (one, other) in pairs if one != other), min(len(a), len(b)))]


def _run(
    crew: Crew,
    frame: ColumnFrame,
    strict: bool,
    show: bool | Progress,
    begin: Callable[[], None],
) -> Answers:
    """Do what is left, and put the column together, be it in part."""

    def each(outcome: Outcome) -> None:
        bar()
        error = Cell.of(outcome, frame.fields).facts[-1]
        if strict and error is not None:
            raise RowFailed(error)

    def ended() -> Answers:
        frame.cells |= {at: Cell.of(o, frame.fields) for at, o in crew.outcomes.items()}
        return frame.result()

    with row_bar(crew.count, show) as bar:
        try:
            begin()
            crew.run(each)
            return ended()
        except KeyboardInterrupt:
            made = ended()
            raise Interrupted(_done(frame), made) from None
        except Exception as error:
            made, told = ended(), isinstance(error, RowFailed)
            if not (frame.answered or told):
                raise
            reason = str(error) if told else f"{type(error).__name__}: {error}"
            raise Unfinished(f"{reason} ({_done(frame)})", made) from error


def _done(frame: ColumnFrame) -> str:
    return f"{frame.answered} of {frame.asked} rows are answered"


@contextmanager
def origin(
    engine: Engine, stem: str, model: str | None, system: str | None, options: Mapping[str, Any]
) -> Iterator[Session]:
    """A session that others are forked from, while the context lasts."""
    name = f"{stem}-{secrets.token_hex(4)}"
    try:
        yield engine.session(model, system, name, **options)
    finally:
        with suppress(MlxnbError):
            engine.remove_session(name)


def _checked(on_error: str, concurrency: int | None, options: Mapping[str, Any]) -> int:
    """How many turns may be in flight."""
    if on_error not in ("value", "raise"):
        raise InvalidOption(f"on_error is 'value' or 'raise', not {on_error!r}")
    if options.get("n") not in (None, 1):
        raise InvalidOption("a row has one answer: n is 1")
    if concurrency is None:
        return IN_FLIGHT
    whole = isinstance(concurrency, int) and not isinstance(concurrency, bool)
    if not whole or not 1 <= concurrency <= 256:
        raise InvalidOption(f"concurrency is a whole number in [1, 256], not {concurrency!r}")
    return concurrency
