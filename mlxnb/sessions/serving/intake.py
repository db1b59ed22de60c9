"""Requests on their way in: named, rendered, counted, planned, and queued or made to wait."""

from __future__ import annotations

import time
from collections.abc import Callable

from mlxnb.engine.sampling import Sampling
from mlxnb.engine.solo import CLEAR_EVERY
from mlxnb.errors import InvalidOption, ModelUnloaded
from mlxnb.models.source import ModelSource
from mlxnb.sessions.ask import Ask
from mlxnb.sessions.forms import form_of
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.order import Order
from mlxnb.sessions.serving.activity import Activity
from mlxnb.sessions.serving.answer import Answer
from mlxnb.sessions.serving.conversation import Conversation
from mlxnb.sessions.serving.limits import Limits
from mlxnb.sessions.serving.models import Models
from mlxnb.sessions.serving.prompt import Prompt, make_prompt
from mlxnb.sessions.serving.salts import Keys, salt_of
from mlxnb.sessions.texts import UNBOUNDED, Texts

SWAPS = 3
"""Times that a request is prepared anew because its model was replaced meanwhile."""


class Intake:
    """Takes requests in.

    Parameters
    ----------
    conversation
        What a request goes on from, for a model.
    new_id
        Makes the ids of responses.
    on_end
        Called with each answer that has ended, before its client is told.
    """

    def __init__(
        self,
        engine: LocalEngine,
        models: Models,
        limits: Limits,
        activity: Activity,
        conversation: Callable[[Ask, Texts, str], Conversation],
        new_id: Callable[[], str],
        on_end: Callable[[Answer], None],
    ) -> None:
        self._runner, self._models = engine.runner, models
        self._limits, self._activity, self._keys = limits, activity, Keys()
        self._conversation, self._new_id, self._on_end = conversation, new_id, on_end

    # --- what costs nothing -------------------------------------------------------------------

    def prompt(self, ask: Ask) -> Prompt:
        """The prompt that a request would have.

        Raises
        ------
        ModelNotFound, ModelBroken, TemplateFailed
        """
        texts, _ = self._models.texts(self._models.find(ask.model))
        return self._rendered(ask, texts)[1]

    def _rendered(self, ask: Ask, texts: Texts) -> tuple[Conversation, Prompt]:
        salt = salt_of(ask.caller, ask.cache_salt)
        conversation = self._conversation(ask, texts, salt)
        prompt = make_prompt(
            texts,
            conversation.messages,
            conversation.track,
            shown_tools(ask),
            ask.thinking,
            ask.continues_answer,
        )
        return conversation, prompt

    # --- a request begins ---------------------------------------------------------------------

    def begin(self, ask: Ask) -> Answer:
        """Check, render, count and queue a request, or let it wait for its model."""
        self._runner.core.ready()
        name = self._models.find(ask.model)
        for attempt in range(1, SWAPS + 1):
            texts, source = self._models.texts(name)
            answer = self._answer(ask, texts)
            try:
                if self._started(answer, source):
                    return answer
            except ModelUnloaded:
                if attempt == SWAPS:
                    raise
        raise ModelUnloaded(f"{name} is loaded and unloaded faster than it can be used")

    def _answer(self, ask: Ask, texts: Texts) -> Answer:
        conversation, prompt = self._rendered(ask, texts)
        salt, response_id = salt_of(ask.caller, ask.cache_salt), self._new_id()
        order = Order(
            prompt=prompt.rendered,
            sampling=self._sampling(ask, texts, prompt),
            source=ask.source,
            arrived=ask.arrived,
            session=response_id if ask.store else None,
            owner=None if ask.previous is not None else self._keys.name(ask.key, salt),
            salt=salt,
            caller=ask.caller,
            history=prompt.history,
            tools=shown_tools(ask),
            form=form_of(ask.tools, ask.tool_choice, ask.schema, ask.thinking_budget),
            thinking=ask.thinking,
            begun=tuple(prompt.begun),
        )
        request = self._runner.request(texts, order)
        for token in prompt.begun:  # text that goes on keeps the space it begins with
            request.detokenizer.add_token(token)
        request.detokenizer.last_segment  # noqa: B018 - reads what the client has said itself
        return Answer(
            ask,
            response_id,
            texts,
            conversation,
            prompt,
            request,
            on_end=self._on_end,
            abandon=self._runner.abandon,
        )

    def _sampling(self, ask: Ask, texts: Texts, prompt: Prompt) -> Sampling:
        """Sampling with nothing open; without a wish an answer may fill the context window."""
        if ask.sampling.n not in (None, 1):
            raise InvalidOption("n: one answer a request is given", param="n")
        asked = ask.sampling.max_tokens or texts.wishes.max_tokens or UNBOUNDED
        longest = min(asked, self._limits.output(texts.name) or UNBOUNDED)
        own = Sampling(max_tokens=longest).over(ask.sampling)
        return texts.settled(own, len(prompt.rendered.tokens))

    def _started(self, answer: Answer, source: ModelSource | None) -> bool:
        """Queue it, or let it wait for a load; False: the model has come meanwhile."""
        with self._models.lock, answer.gate:
            if source is None:
                self._queue(answer, fresh=True)
            else:
                waiter = Waiter(answer, self)
                waiter.owner = self._models.loads.join(source, waiter)
                if waiter.owner is None:
                    return False
                self._runner.open(answer.request, answer)
            self._activity.began(answer.model)
            return True

    def _queue(self, answer: Answer, fresh: bool) -> None:
        """Plan and queue it. ``fresh``: nobody has been told anything of it yet.

        Else it has waited, within the limit, and what was told of its cache stands.
        """
        request = answer.request
        runtime = self._models.runtime(answer.model)
        if runtime is None or runtime.key != answer.texts.key:
            raise ModelUnloaded(f"{answer.model} was replaced before this request could run on it")
        self._runner.core.plan(request)
        assert request.lane is not None, "a planned request has its lane"
        request.lane.waiting.limit = self._limits.waiting
        tuning = {"prefill_chunk_tokens": runtime.rate.chunk, "cache_clear_interval": CLEAR_EVERY}
        answer.plan(request.planned if fresh else 0, tuning)
        self._runner.queue(request, answer, limited=fresh)
        answer.queued = True

    def resume(self, waiter: Waiter, error: Exception | None) -> None:
        """Queue a request whose model has been loaded, or fail it."""
        answer = waiter.answer
        clock, waited = answer.request.clock, time.perf_counter() - waiter.began
        clock.load_owner = bool(waiter.owner)
        clock.resolve_s, clock.load_wait_s = (waited, 0.0) if waiter.owner else (0.0, waited)
        with self._models.lock, answer.gate:
            if answer.request.cancelled:
                return
            try:
                if error is not None:
                    raise error
                self._queue(answer, fresh=False)
            except Exception as failure:
                answer.fail(failure)


class Waiter:
    """A request that waits for its model to be loaded."""

    def __init__(self, answer: Answer, intake: Intake) -> None:
        self.answer, self._intake = answer, intake
        self.owner: bool | None = None
        self.began = time.perf_counter()

    @property
    def gone(self) -> bool:
        """Whether nobody wants the answer any more."""
        return self.answer.request.cancelled

    def loaded(self, error: Exception | None) -> None:
        """The load has ended."""
        self._intake.resume(self, error)


def shown_tools(ask: Ask) -> tuple[str, ...]:
    """The tools that the model is shown: none where it may call none."""
    return () if ask.tool_choice.mode == "none" else ask.tools
