"""The service of a host: requests of its doors in, answers out. Knows nothing of HTTP."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from mlxnb.errors import ModelChanged
from mlxnb.records.tokens import pack
from mlxnb.sessions.ask import Ask
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.order import tool_list
from mlxnb.sessions.serving.activity import Activity
from mlxnb.sessions.serving.answer import Answer
from mlxnb.sessions.serving.catalog import Catalog
from mlxnb.sessions.serving.chain import FIELD, Chain
from mlxnb.sessions.serving.comparison import Comparisons, Miss
from mlxnb.sessions.serving.conversation import Conversation
from mlxnb.sessions.serving.filing import Filing
from mlxnb.sessions.serving.health import Health, counters_of, health_of
from mlxnb.sessions.serving.instructions import fitted
from mlxnb.sessions.serving.intake import Intake, shown_tools
from mlxnb.sessions.serving.limits import Limits
from mlxnb.sessions.serving.models import ModelCard, Models
from mlxnb.sessions.serving.replay import Replay, digests_of, scope_of
from mlxnb.sessions.serving.row import Row
from mlxnb.sessions.serving.store import Store
from mlxnb.sessions.serving.watch import Watch
from mlxnb.sessions.texts import Texts

CHECK_S = 0.5
"""Seconds between two looks at the engine's health."""
IDLE_S = 1.0
"""Seconds between two looks for idle models."""
SWEEP_S = 300.0
"""Seconds between two sweeps of expired rows."""


class Service:
    """Answers requests of doors over an engine of this process. Any thread may call.

    Parameters
    ----------
    engine
        Closed by whoever made it.
    catalog
        The models that may be asked for.
    store
        Where responses are kept; closed with this. None: storing is turned off.
    host
        The eight letters that the ids of responses carry.
    """

    def __init__(
        self,
        engine: LocalEngine,
        *,
        catalog: Catalog,
        store: Store | None,
        host: str,
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> None:
        self.engine, self._activity = engine, Activity()
        self._models = Models(engine, catalog, limits, self._activity)
        self._filing = Filing(store, limits)
        self._replay = Replay(limits.replay_bytes)
        self._comparisons = Comparisons(engine.ledger)
        self._intake = Intake(
            engine,
            self._models,
            limits,
            self._activity,
            conversation=self._conversation,
            new_id=lambda: f"resp_{host}_{secrets.token_hex(12)}",
            on_end=self._ended,
        )
        self._watch = Watch(
            {
                engine.core.check: CHECK_S,
                self._models.unload_idle: IDLE_S,
                self._filing.sweep: SWEEP_S,
            }
        )

    # --- answers ------------------------------------------------------------------------------

    def begin(self, ask: Ask) -> Answer:
        """Begin to answer: what is known now is on the answer, the rest comes as events.

        The model's tokenizer and template are read where it is not loaded, its weights are not:
        what is wrong with a request costs no load.

        Raises
        ------
        ModelNotFound, ContextOverflow, TemplateFailed, InvalidOption, BadSchema, QueueFull
            Nothing was touched.
        UnknownResponse, ChainTooLong, StorageTimeout, StorageFailed
            The response that it continues; see ``chain``.
        ModelChanged
            That was made by other content than the model's.
        ModelUnloaded
            The model was replaced meanwhile, more than once.
        """
        answer = self._intake.begin(ask)
        self._filing.expect(answer)
        self._comparisons.note(answer)
        return answer

    def count(self, ask: Ask) -> int:
        """Tokens of the prompt that a request would have; nothing is queued.

        Raises as ``begin`` does.
        """
        return len(self._intake.prompt(ask).rendered.tokens)

    def diagnose(self, answer: Answer, comparison_id: str | None, caller: str) -> Miss | None:
        """What an answer missed of an earlier one's prefix; None: nothing, or none is named.

        An id of another caller or salt is not found.
        """
        if comparison_id is None:
            return None
        return self._comparisons.miss(answer, comparison_id, caller)

    def _conversation(self, ask: Ask, texts: Texts, salt: str) -> Conversation:
        """What a request goes on from; what follows a response is never sought by content."""
        scope = scope_of(texts.key, salt, shown_tools(ask))
        template, tools = texts.template(ask.thinking), tool_list(shown_tools(ask))
        if ask.previous is None:
            own = fitted(Conversation.of_messages(ask), template, tools).digested(scope, ask)
            return own.over(self._replay.find(own.digests))
        chain = self.chain(ask.previous, ask.caller)
        if chain.key != texts.key:
            raise ModelChanged(
                f"the response {ask.previous!r} was made by {chain.model} as it was then, and "
                f"{texts.name} has other content; send the conversation as input instead",
                param=FIELD,
            )
        return fitted(Conversation.of_chain(ask, chain, salt), template, tools).digested(scope, ask)

    def _ended(self, answer: Answer) -> None:
        """An answer has ended; runs on the engine's thread, before its client is told."""
        self._activity.ended(answer.model)
        if answer.track is not None and answer.said is not None:
            (digest,) = digests_of(answer.conversation.digests[-1], [answer.said])
            self._replay.add(digest, answer.track)
        if not (answer.committed and answer.ask.store):
            answer.settled.set()

    # --- what is stored -----------------------------------------------------------------------

    def file(
        self,
        answer: Answer,
        *,
        response: Mapping[str, Any],
        input_items: Sequence[Mapping[str, Any]],
    ) -> None:
        """File a response before its end is sent; see `Filing.file`."""
        self._filing.file(answer, response, input_items)

    def unfile(self, answer: Answer) -> None:
        """Take a response back whose end could not be delivered."""
        self._filing.unfile(answer)

    def chain(self, response_id: str, caller: str) -> Chain:
        """A response and all that it continues; see `Filing.chain`."""
        return self._filing.chain(response_id, caller)

    def stored(self, response_id: str, caller: str) -> Row:
        """A stored response; see `Filing.stored`."""
        return self._filing.stored(response_id, caller)

    def delete(self, response_id: str, caller: str) -> None:
        """Delete a response, and the KV of what it alone holds; see `Filing.delete`."""
        chain = self._filing.known_chain(response_id, caller)
        self._filing.delete(response_id, caller)
        if chain is not None and chain.track is not None:
            before = chain.track.before
            kept = before.length if before is not None else 0
            tokens = pack(chain.track.line().tokens)
            self.engine.core.forget(chain.key, chain.salt, tokens, kept)

    def cancel(self, response_id: str, caller: str) -> bool:
        """Stop an answer; False: it has ended already. See `Filing.cancel`."""
        return self._filing.cancel(response_id, caller)

    # --- models and state ---------------------------------------------------------------------

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

    def health(self) -> Health:
        """How it is now."""
        return health_of(self.engine.core, self._models, self._filing)

    def counters(self) -> dict[str, float]:
        """What it does and holds now, and what loads have cost, by name."""
        return counters_of(self.engine.core, self._models, self._activity)

    def loaded(self) -> list[str]:
        """Names of the models in memory."""
        return [runtime.info.name for runtime in self.engine.core.runtimes()]

    def close(self) -> None:
        """Write what is to be written, and stop what runs by itself; the engine stays."""
        self._watch.close()
        self._filing.close()
