"""One prompt to several models, sessions or settings, one after another, and a row for each."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlxnb.engine.sampling import Sampling
from mlxnb.errors import Interrupted, InvalidOption, MlxnbError, Unfinished
from mlxnb.records.frames import typed_frame
from mlxnb.records.tokens import common_prefix, pack
from mlxnb.records.turn import Source
from mlxnb.sessions.column import origin
from mlxnb.sessions.crew import Crew, Job, Outcome
from mlxnb.sessions.options import check_text
from mlxnb.sessions.session import Session

if TYPE_CHECKING:
    import pandas as pd

    from mlxnb.sessions.engine import Engine

COLUMNS = {
    "label": "string",
    "model": "string",
    "session": "string",
    "settings": "string",
    "answer": "string",
    "output_tokens": "Int64",
    "ttft_s": "Float64",
    "total_s": "Float64",
    "cached_tokens": "Int64",
    "agreement": "Float64",
    "same": "boolean",
    "finish_reason": "string",
    "error": "string",
    "turn_id": "string",
}


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: who answers, and how. ``session``: whose past it has."""

    origin: Session
    session: str | None
    settings: Mapping[str, Any]

    @property
    def how(self) -> str:
        """The settings, on a line."""
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())

    def label(self, told: bool) -> str:
        """A name for it; ``told``: who answers is part of it."""
        who = self.session or Path(self.origin.model).name
        return ", ".join(part for part in (who if told or not self.how else "", self.how) if part)


def compare(
    engine: Engine,
    prompt: str,
    models: Sequence[str] | None = None,
    sessions: Sequence[str | Session] | None = None,
    settings: Sequence[Mapping[str, Any]] | None = None,
    system: str | None = None,
    source: Source = "python",
    **sampling: Any,
) -> pd.DataFrame:
    """See `Engine.compare`; ``source`` is for the turns' rows."""
    check_text("prompt", prompt)
    shared = _settings(sampling)
    wanted = [_settings(each) for each in _several("settings", settings)] or [{}]
    names, held = _several("models", models), _several("sessions", sessions)
    if held and not names and system is not None:
        raise InvalidOption("system goes with models; a session has its own")
    pasts = [_here(engine, each) for each in held]
    with ExitStack() as made:
        fresh = [
            made.enter_context(origin(engine, "compare", name, system, shared))
            for name in (names if names or pasts else [None])
        ]
        origins: list[tuple[Session, str | None]] = [(session, None) for session in fresh]
        origins += [(session, session.name) for session in pasts]
        sides = [Side(one, past, how) for (one, past) in origins for how in wanted]
        return _run(engine, prompt, sides, shared, source)


def _run(
    engine: Engine, prompt: str, sides: Sequence[Side], shared: Mapping[str, Any], source: Source
) -> pd.DataFrame:
    stem = f"compare-{secrets.token_hex(4)}"
    jobs = {
        number: Job(side.origin, f"{stem}-{number}", prompt, {**shared, **side.settings})
        for number, side in enumerate(sides)
    }
    crew = Crew(engine, jobs, 1, source)
    try:
        crew.run(lambda outcome: None)
    except KeyboardInterrupt:
        raise Interrupted(_done(crew, sides), _frame(sides, crew.outcomes)) from None
    except MlxnbError as error:
        if not crew.outcomes:
            raise
        reason = f"{type(error).__name__}: {error} ({_done(crew, sides)})"
        raise Unfinished(reason, _frame(sides, crew.outcomes)) from error
    return _frame(sides, crew.outcomes)


def _done(crew: Crew, sides: Sequence[Side]) -> str:
    return f"{sum(o.good for o in crew.outcomes.values())} of {len(sides)} have answered"


def _here(engine: Engine, session: Any) -> Session:
    """A session of this engine, from its name or itself."""
    if not isinstance(session, Session):
        return engine.find_session(session)
    if engine.find_session(session.name) is not session:
        raise InvalidOption(f"the session {session.name!r} belongs to another engine")
    return session


def _several(name: str, given: Any) -> list[Any]:
    """A list, of one where one was given."""
    if given is None:
        return []
    one = isinstance(given, str | Path | Session | Mapping)
    if not one and not isinstance(given, Sequence):
        raise InvalidOption(f"{name} is a list, not {type(given).__name__}")
    return [given] if one else list(given)


def _settings(given: Any) -> dict[str, Any]:
    """Options of sampling that were given, checked."""
    if not isinstance(given, Mapping):
        raise InvalidOption(f"settings is a list of dicts, not of {type(given).__name__}")
    options = asdict(Sampling.of(given))
    if options["n"] not in (None, 1):
        raise InvalidOption("a side has one answer: n is 1")
    return {name: options[name] for name in given if options[name] is not None}


# --- the frame --------------------------------------------------------------------------------


def _frame(sides: Sequence[Side], outcomes: Mapping[int, Outcome]) -> pd.DataFrame:
    told = len({side.origin.name for side in sides}) > 1
    first = outcomes.get(0)
    rows = (
        _row(side, side.label(told), outcomes.get(number, Outcome(None)), sides[0], first)
        for number, side in enumerate(sides)
    )
    return typed_frame(COLUMNS, rows)


def _row(side: Side, label: str, outcome: Outcome, one: Side, first: Outcome | None) -> list[Any]:
    turn, who = outcome.turn, [label, side.origin.model, side.session, side.how]
    if turn is None:
        return [*who, *[None] * 8, outcome.error, None]
    timing = turn.timing
    counts = turn.output_tokens, timing.ttft_s, timing.total_s, turn.cached_tokens
    alike: tuple[float | None, bool | None] = None, None
    if outcome.good and first is not None and first.good:
        alike = _alike(outcome, first, side.origin.model == one.origin.model)
    answer = turn.text if outcome.good else None
    return [*who, answer, *counts, *alike, turn.finish_reason, outcome.error, turn.id]


def _alike(outcome: Outcome, first: Outcome, tokens: bool) -> tuple[float, bool]:
    """Which share of an answer is as the first one begins, and whether it is the same text.

    By tokens where both are of one model; others' tokens say nothing, and words do.
    """
    assert outcome.turn is not None and first.turn is not None, "good outcomes have turns"
    a, b = outcome.turn, first.turn
    if tokens:
        shared, longest = common_prefix(pack(a.tokens), pack(b.tokens)), [a.tokens, b.tokens]
        return _share(shared, max(map(len, longest))), a.text == b.text
    words, others = a.text.split(), b.text.split()
    pairs = itertools.takewhile(lambda p: p[0] == p[1], zip(words, others, strict=False))
    return _share(len(list(pairs)), max(len(words), len(others))), a.text == b.text


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
