"""The service of a host: requests of its doors in, answers out. Knows nothing of HTTP."""

from __future__ import annotations

import logging
import secrets

from mlxnb.sessions.ask import Ask
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.messages import Message, answer_message
from mlxnb.sessions.serving.answer import Answer
from mlxnb.sessions.serving.catalog import Catalog
from mlxnb.sessions.serving.conversation import Conversation
from mlxnb.sessions.serving.intake import Intake, shown_tools
from mlxnb.sessions.serving.limits import Limits
from mlxnb.sessions.serving.meters import Meters
from mlxnb.sessions.serving.models import ModelCard, Models
from mlxnb.sessions.serving.replay import Replay, scope_of
from mlxnb.sessions.serving.salts import salt_of
from mlxnb.sessions.serving.watch import Watch
from mlxnb.sessions.texts import Texts

log = logging.getLogger(__name__)

CHECK_S = 0.5
"""Seconds between two looks at the engine's health."""
IDLE_S = 1.0
"""Seconds between two looks for idle models."""


class Service:
    """Answers requests of doors over an engine of this process. Any thread may call.

    Parameters
    ----------
    engine
        Closed by whoever made it.
    catalog
        The models that may be asked for.
    host
        The eight letters that the ids of responses carry.

    Attributes
    ----------
    meters
        What it has done so far.
    """

    def __init__(
        self,
        engine: LocalEngine,
        *,
        catalog: Catalog,
        host: str,
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> None:
        self.engine, self.meters = engine, Meters()
        self._host = host
        self._models = Models(engine, catalog, limits, self.meters)
        self._replay = Replay(limits.replay_bytes)
        self._intake = Intake(
            engine,
            self._models,
            limits,
            self.meters,
            conversation=self._conversation,
            new_id=lambda: f"resp_{host}_{secrets.token_hex(12)}",
            on_end=self._ended,
        )
        self._watch = Watch({engine.core.check: CHECK_S, self._models.unload_idle: IDLE_S})

    # --- answers ------------------------------------------------------------------------------

    def begin(self, ask: Ask) -> Answer:
        """Begin to answer: what is known now is on the answer, the rest comes as events.

        The model's tokenizer and template are read where it is not loaded, its weights are not:
        what is wrong with a request costs no load.

        Raises
        ------
        ModelNotFound, ContextOverflow, TemplateFailed, InvalidOption, QueueFull
            Nothing was touched.
        ModelUnloaded
            The model was replaced, more than once.
        """
        return self._intake.begin(ask)

    def count(self, ask: Ask) -> int:
        """Tokens of the prompt that a request would have. Nothing is queued."""
        return len(self._intake.prompt(ask).rendered.tokens)

    def _conversation(self, ask: Ask, texts: Texts, salt: str) -> Conversation:
        own = Conversation.of_messages(ask)
        said = own.messages[:-1] if ask.continues_answer else own.messages
        track = self._replay.find(scope_of(texts.key, salt, shown_tools(ask)), said)
        return own.over(track)

    def _ended(self, answer: Answer) -> None:
        """An answer has ended; runs on the engine's thread, before its client is told."""
        self.meters.ended(answer.record, answer.error)
        if answer.committed and not answer.request.machine.suppressed_markup:
            self._remember(answer)

    def _remember(self, answer: Answer) -> None:
        turn, ask = answer.turn, answer.ask
        assert turn is not None, "an answer has ended"
        messages = list(answer.conversation.messages)
        said: Message = answer_message(turn)
        if ask.continues_answer:
            said = {**said, "content": messages.pop()["content"] + said["content"]}
        scope = scope_of(answer.texts.key, salt_of(ask.caller, ask.cache_salt), shown_tools(ask))
        self._replay.add(scope, messages, said, answer.prompt.track(answer.request, turn))

    # --- models -------------------------------------------------------------------------------

    def models(self) -> list[ModelCard]:
        """The models that can be asked for."""
        return self._models.cards()

    def model(self, asked: str) -> ModelCard:
        """One of them.

        Raises
        ------
        ModelNotFound
            There is none of that name.
        """
        return self._models.card(asked)

    def close(self) -> None:
        """Stop what runs by itself; the engine stays."""
        self._watch.close()
