"""A service over scripted models, and clients of it."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scripted import QWEN, scripted_folder

from mlxnb.engine.events import Done, Event, Piece
from mlxnb.models.resolve import resolve
from mlxnb.models.source import ModelSource
from mlxnb.records.turn import Turn
from mlxnb.sessions.ask import Ask
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.messages import Message, answer_message
from mlxnb.sessions.serving.answer import Answer
from mlxnb.sessions.serving.catalog import Catalog
from mlxnb.sessions.serving.limits import Limits
from mlxnb.sessions.serving.service import Service
from mlxnb.sessions.serving.store import Store

MIB = 2**20
HOST = "abcdefgh"

# As QWEN, with earlier thinking where it stood.
KEEPING = QWEN.replace(
    "{{- '<|im_start|>assistant\n' + message.content }}",
    "{{- '<|im_start|>assistant\n' }}{% if message.reasoning_content %}"
    "{{- '<think>\n' + message.reasoning_content.strip() + '\n</think>\n\n' }}{% endif %}"
    "{{- message.content }}",
)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def scripted_source(
    folder: Path, answers: Sequence[str | list[int]], name: str = "talker", **options: Any
) -> ModelSource:
    """A scripted model under a short name, whose code may be run."""
    path = scripted_folder(folder, answers, **options)
    return dataclasses.replace(resolve(path, trust_model_code=True), name=name)


class Following:
    """Takes an answer's events down."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.events: list[Event] = []
        self._done = threading.Event()
        answer.follow(self._take)

    def _take(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Done):
            self._done.set()

    def wait(self) -> Turn:
        """The turn, when it has ended."""
        assert self._done.wait(60), "an answer never ended"
        assert self.answer.turn is not None
        return self.answer.turn

    @property
    def text(self) -> str:
        pieces = (e for e in self.events if isinstance(e, Piece) and e.kind == "text")
        return "".join(piece.text for piece in pieces)


class World:
    """A service, which can be begun anew over the same store."""

    def __init__(
        self, engine: LocalEngine, store: Path | None, limits: Limits | None = None
    ) -> None:
        self.engine, self.path = engine, store
        self.sources: list[ModelSource] = []
        self.aliases: dict[str, str] = {}
        self.limits = limits or Limits()
        self.service = self._begin()

    def _begin(self) -> Service:
        catalog = Catalog(self.sources, aliases=self.aliases, machine=False)
        store = Store(self.path) if self.path is not None else None
        return Service(self.engine, catalog=catalog, store=store, host=HOST, limits=self.limits)

    def restart(self, engine: LocalEngine | None = None) -> None:
        """Another service over the same store."""
        self.service.close()
        self.engine = engine or self.engine
        self.service = self._begin()

    def add(self, source: ModelSource, load: bool = True) -> str:
        """Take a model in; its name."""
        self.sources.append(source)
        self.restart()
        if load:
            self.engine.load_source(source, progress=False)
        return source.name

    # --- clients ------------------------------------------------------------------------------

    def begin(self, *messages: Message | str, **options: Any) -> Following:
        said = tuple(user(m) if isinstance(m, str) else m for m in messages)
        asked = {"model": "talker", "source": "responses", **options}
        return Following(self.service.begin(Ask(messages=said, **asked)))

    def ask(self, *messages: Message | str, **options: Any) -> Answer:
        """Ask, wait, and file what came of it as a door does."""
        following = self.begin(*messages, **options)
        following.wait()
        self.file(following.answer)
        return following.answer

    def file(self, answer: Answer) -> None:
        assert answer.turn is not None
        output = [{"type": "message", "content": answer.turn.text}]
        response = {"id": answer.response_id, "output": output}
        items = [{"said": m["content"]} for m in answer.ask.messages]
        self.service.file(answer, response=response, input_items=items)

    def stored_chain(self, *said: str, **options: Any) -> list[Answer]:
        """Answers of which each continues the one before by its id."""
        answers: list[Answer] = []
        for text in said:
            previous = answers[-1].response_id if answers else None
            answers.append(self.ask(text, store=True, previous=previous, **options))
        return answers

    def stateless(
        self, *said: str, sent: Callable[[Turn], Message] = answer_message, **options: Any
    ) -> list[Answer]:
        """Answers to a client that sends the whole conversation each time."""
        history: list[Message] = []
        answers: list[Answer] = []
        for text in said:
            history.append(user(text))
            answers.append(self.ask(*history, source="messages", **options))
            turn = answers[-1].turn
            assert turn is not None
            history.append(sent(turn))
        return answers


def sequence(answer: Answer) -> list[int]:
    """The tokens of a prompt and its answer whose KV may be there afterwards."""
    assert answer.turn is not None
    return [*answer.request.prompt, *answer.turn.tokens]
