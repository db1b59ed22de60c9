"""Which responses can be continued and looked up, and by whom."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any
from weakref import WeakValueDictionary

from mlxnb.errors import InvalidOption, MlxnbError, StorageTimeout, UnknownResponse
from mlxnb.sessions.ask import Ask
from mlxnb.sessions.messages import Message
from mlxnb.sessions.serving.answer import Answer
from mlxnb.sessions.serving.chain import FIELD, MAX_LINKS, Chain, of_rows
from mlxnb.sessions.serving.limits import Limits
from mlxnb.sessions.serving.row import Row
from mlxnb.sessions.serving.salts import owner_of
from mlxnb.sessions.serving.store import Store
from mlxnb.sessions.serving.tokens import packed
from mlxnb.sessions.serving.warm import Warm

log = logging.getLogger(__name__)

PATIENCE_S = 2.0
"""Seconds that a client waits for its row to be written, and a continuation for that row."""


class Filing:
    """Files responses that are committed, live and in the store, and finds them again.

    Parameters
    ----------
    store
        None: nothing is filed, and nothing can be continued by its id.
    """

    def __init__(self, store: Store | None, limits: Limits) -> None:
        self.failed = False
        self._store = store
        self._warm = Warm(limits.warm, limits.warm_bytes, limits.warm_s)
        self._answers: WeakValueDictionary[str, Answer] = WeakValueDictionary()
        self._writing: dict[str, Future[None]] = {}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="mlxnb-store")

    # --- coming in ----------------------------------------------------------------------------

    def expect(self, answer: Answer) -> None:
        """An answer has begun, and may be filed."""
        self._answers[answer.response_id] = answer

    def file(
        self,
        answer: Answer,
        response: Mapping[str, Any],
        input_items: Sequence[Mapping[str, Any]],
    ) -> None:
        """File a response if it is committed and wanted; waits `PATIENCE_S` at most.

        A store that fails costs the row, never the answer.
        """
        try:
            wanted = answer.ask.store and not answer.request.cancelled
            if self._store is not None and wanted and answer.committed:
                self._keep_live(answer, response)
                self._write(self._store, _row(self._store, answer, response, input_items))
        finally:
            answer.settled.set()

    def _keep_live(self, answer: Answer, response: Mapping[str, Any]) -> None:
        """Text that tool markup was taken from (W37) is not what was generated: no session."""
        if answer.track is None:
            return
        assert answer.said is not None, "a committed answer has said something"
        texts, conversation = answer.texts, answer.conversation
        before = conversation.chain.messages if conversation.chain is not None else ()
        chain = Chain(
            messages=(*before, *_new(answer.ask), answer.said),
            system=conversation.system,
            outputs=tuple(response.get("output") or ()),
            model=texts.name,
            key=texts.key,
            salt=answer.request.salt,
            track=answer.track,
            links=1 + (conversation.chain.links if conversation.chain is not None else 0),
            warm=True,
        )
        self._warm.put(answer.response_id, owner_of(answer.ask.caller), chain)

    def _write(self, store: Store, row: Row) -> None:
        future = self._writing[row.id] = self._writer.submit(self._put, store, row)
        future.add_done_callback(lambda done: self._writing.pop(row.id, None))
        if not wait([future], timeout=PATIENCE_S).done:
            log.warning("the response %s is still being stored after %d s", row.id, PATIENCE_S)

    def _put(self, store: Store, row: Row) -> None:
        """Write a row, on the writer's thread."""
        try:
            store.put(row)
            self.failed = False
        except Exception as error:
            self.failed = True
            told = error if isinstance(error, MlxnbError) else type(error).__name__
            log.warning("the response %s was not stored: %s", row.id, told)

    def unfile(self, answer: Answer) -> None:
        """Take a response back whose end could not be delivered."""
        self.delete(answer.response_id, answer.ask.caller, missing_ok=True)

    # --- going out ----------------------------------------------------------------------------

    def chain(self, response_id: str, caller: str) -> Chain:
        """A response and all that it continues.

        Raises
        ------
        InvalidOption
            Nothing is stored here.
        UnknownResponse
            It, or one that it continues, is not there for this caller.
        ChainTooLong
            It is made of too many responses.
        StorageTimeout, StorageFailed
            It is being written, or the store cannot be read.
        """
        store = self._available()
        live = self._warm.get(response_id, owner_of(caller))
        if live is not None:
            return live.checked()
        rows = store.chain(response_id, owner_of(caller), MAX_LINKS)
        if not rows and self._came(response_id, caller):
            live = self._warm.get(response_id, owner_of(caller))
            if live is not None:
                return live.checked()
            rows = store.chain(response_id, owner_of(caller), MAX_LINKS)
        if not rows:
            raise _unknown(response_id, FIELD)
        return of_rows(rows)

    def _came(self, response_id: str, caller: str) -> bool:
        """Wait for a response that is still on its way; False: it is none of this caller's."""
        answer = self._answers.get(response_id)
        if answer is None or answer.ask.caller != caller or not answer.ask.store:
            return False
        writing = self._writing.get(response_id)
        settled = answer.settled.wait(PATIENCE_S)
        if not settled or (writing is not None and not writing.done()):
            raise StorageTimeout(f"the response {response_id!r} is not stored yet; try again")
        return True

    def stored(self, response_id: str, caller: str) -> Row:
        """A stored response.

        Raises
        ------
        InvalidOption, UnknownResponse, StorageTimeout, StorageFailed
            As ``chain``.
        """
        row = self._available().get(response_id, owner_of(caller))
        if row is None and self._came(response_id, caller):
            row = self._available().get(response_id, owner_of(caller))
        if row is None:
            raise _unknown(response_id, "response_id")
        return row

    def known_chain(self, response_id: str, caller: str) -> Chain | None:
        """A response and all that it continues; None: that cannot be had."""
        try:
            return self.chain(response_id, caller)
        except MlxnbError:
            return None

    def delete(self, response_id: str, caller: str, missing_ok: bool = False) -> None:
        """Delete a response with all that is kept of it; what continues it is lost with it.

        Raises
        ------
        InvalidOption, UnknownResponse, StorageTimeout, StorageFailed
            As ``chain``.
        """
        store, owner = self._store, owner_of(caller)
        if store is None and missing_ok:
            return
        live = self._warm.drop(response_id, owner)
        writing = self._writing.get(response_id)
        if writing is not None:
            writing.cancel()
        deleting = self._writer.submit(self._available().delete, response_id, owner)
        try:
            there = deleting.result(timeout=PATIENCE_S)
        except TimeoutError:
            raise StorageTimeout(f"the response {response_id!r} is being deleted") from None
        if not (there or live or missing_ok):
            raise _unknown(response_id, "response_id")

    def cancel(self, response_id: str, caller: str) -> bool:
        """Stop an answer that is on its way; False: it has ended already.

        Raises
        ------
        UnknownResponse
            There is none of that id for this caller.
        """
        answer = self._answers.get(response_id)
        if answer is None or answer.ask.caller != caller:
            self.stored(response_id, caller)
            return False
        running = answer.turn is None
        if running:
            answer.cancel()
        return running

    def _available(self) -> Store:
        if self._store is None:
            raise InvalidOption(
                "responses are not stored here (storing is turned off); send the conversation as "
                "input instead",
                param=FIELD,
            )
        return self._store

    def sweep(self) -> None:
        """Delete what has expired."""
        if self._store is not None:
            self._store.sweep()

    def close(self) -> None:
        """Write what is to be written, and close the store."""
        self._writer.shutdown(wait=True)
        if self._store is not None:
            self._store.close()


def _row(
    store: Store,
    answer: Answer,
    response: Mapping[str, Any],
    input_items: Sequence[Mapping[str, Any]],
) -> Row:
    """The row of an answer: what its request added, and nothing of what came before."""
    assert answer.said is not None, "a committed answer has said something"
    ask, chain = answer.ask, answer.conversation.chain
    now = time.time()
    retention = store.retention_s if ask.retention_s is None else ask.retention_s
    before = chain.track if chain is not None else None
    return Row(
        id=answer.response_id,
        previous=ask.previous,
        owner=owner_of(ask.caller),
        salt=answer.request.salt,
        model=answer.texts.name,
        key=answer.texts.key,
        system=answer.conversation.system,
        created=now,
        expires=now + retention,
        response=dict(response),
        input_items=list(input_items),
        messages=[*_new(ask), answer.said],
        tokens=packed(answer.track, before),
    )


def _new(ask: Ask) -> tuple[Message, ...]:
    """What a request brings to its conversation, the beginning of an answer left out."""
    return ask.messages[:-1] if ask.continues_answer else ask.messages


def _unknown(response_id: str, field: str) -> UnknownResponse:
    return UnknownResponse(
        f"there is no response {response_id!r}: it was never stored, was deleted or has expired",
        param=field,
    )
