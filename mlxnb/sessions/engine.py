"""The interface of an engine, as users and all three doors see it."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlxnb.sessions import exported as files

if TYPE_CHECKING:
    import pandas as pd

    from mlxnb.models.info import ModelInfo
    from mlxnb.records.explain import Explanation
    from mlxnb.records.turn import Source, Turn
    from mlxnb.sessions.column_frame import Answers
    from mlxnb.sessions.exported import Exported
    from mlxnb.sessions.row_prompts import Rows, Template
    from mlxnb.sessions.session import Session

Progress = Callable[[int, int], None]


class Engine(ABC):
    """Loads models, holds sessions, and shows what every turn did as data frames."""

    @abstractmethod
    def load(
        self,
        name: str | Path,
        adapter: str | Path | None = None,
        progress: bool = True,
        kv_bits: int | None = None,
    ) -> ModelInfo:
        """Load a model: ``demo``, a folder, a ``.gguf`` file or a Hub id; at once if it is loaded.

        Parameters
        ----------
        name
            A local folder's path is also its name.
        adapter
            A folder of mlx-lm adapters.
        progress
            Show progress bars.
        kv_bits
            Keep keys and values in 2, 4 or 8 bits from the first token on: a quarter of the
            memory, answers that differ a little, and one request at a time. A model that is
            loaded otherwise is loaded anew.

        Raises
        ------
        InvalidOption, ModelNotFound, ModelBroken, UnsupportedModel, NotEnoughMemory
            Nothing has changed then.
        NetworkUnavailable
            It has to be fetched and cannot be.
        """

    @abstractmethod
    def unload(self, name: str) -> None:
        """Give a model's memory back, its KV included.

        Raises
        ------
        NothingLoaded
            No such model is loaded.
        """

    @abstractmethod
    def session(
        self,
        model: str | None = None,
        system: str | None = None,
        name: str | None = None,
        tools: list[Any] | None = None,
        **options: Any,
    ) -> Session:
        """A conversation; the one of that name if there is one and the options agree.

        Options that are not given agree with anything.

        Parameters
        ----------
        model
            A loaded model; None: the one loaded last.
        system
            The system text; None: the template's own, if it has one.
        name
            None: one is made up.
        tools
            Tool definitions as the OpenAI API has them.
        **options
            Sampling (see `Session.send`), ``history="exact" | "template"``, ``reuse``,
            ``cache_salt``, ``thinking``.

        Raises
        ------
        SessionExists
            A session of that name has other options.
        NothingLoaded
            The model is not loaded.
        InvalidOption
            An option is unknown or out of range.
        """

    @abstractmethod
    def find_session(self, name: str) -> Session:
        """The session of that name.

        Raises
        ------
        UnknownSession
            There is none.
        """

    def import_session(
        self, path: str | Path, name: str | None = None, model: str | None = None
    ) -> Session:
        """Go on from a file that `Session.export` has written.

        Where the model's content is the same the next prompt begins with the same tokens;
        otherwise it is rendered anew from what was said, and a warning says so.

        Parameters
        ----------
        name
            None: the one that it had.
        model
            A loaded model; None: the one that it had.

        Raises
        ------
        InvalidOption
            The file cannot be read, or is not such a file.
        NothingLoaded
            The model is not loaded.
        SessionExists
            The name is taken.
        """
        exported = files.read(Path(path).expanduser().absolute())
        return self._told(*self.take_in_session(exported, name, model))

    def restore_session(self, name: str | None = None) -> Session:
        """Go on with a session that was kept (`Session.keep`), and keep it further.

        Parameters
        ----------
        name
            None: the one that was saved last.

        Raises
        ------
        UnknownSession
            None is kept under that name, and none is here; lists those that are.
        NothingLoaded
            Its model is not loaded.
        """
        return self._told(*self.take_kept_session(name))

    def _told(self, session: Session, note: str | None) -> Session:
        if note is not None:
            warnings.warn(note, stacklevel=3)
        return session

    @abstractmethod
    def take_in_session(
        self, exported: Exported, name: str | None, model: str | None
    ) -> tuple[Session, str | None]:
        """See ``import_session``; the session, and what its user is to be told."""

    @abstractmethod
    def take_kept_session(self, name: str | None) -> tuple[Session, str | None]:
        """See ``restore_session``; the session, and what its user is to be told."""

    @abstractmethod
    def remove_session(self, name: str, forget: bool = False) -> None:
        """Forget a session; its KV may be reused by others until it is evicted.

        Parameters
        ----------
        forget
            Delete its KV too, in memory and on disk, as far as nobody else shares it, the tokens
            of its turns, whose rows stay, and its file, where it is kept: also that of a session
            which is not here.

        Raises
        ------
        UnknownSession
            There is none.
        SessionBusy
            It is answering.
        """

    @abstractmethod
    def turns(self, wide: bool = False) -> pd.DataFrame:
        """All turns, a row each, in order of start."""

    @abstractmethod
    def prefix_cache(self, show_text: bool | None = None, wide: bool = False) -> pd.DataFrame:
        """What the prefix cache holds, a row a block or hot cache.

        Parameters
        ----------
        wide
            Append ``evict_order``, 1 for what would go next and NA for what cannot go now, and
            ``owner``, the session that goes on with a hot cache.
        show_text
            Whether ``preview`` shows the beginnings of texts; None: where all turns are the
            notebook's own, since a saved notebook would keep what clients said.
        """

    @abstractmethod
    def tokens(self, turn: Turn | str | None = None, show_text: bool | None = None) -> pd.DataFrame:
        """The tokens of a turn's (None: the last one's) prompt and output, a row each.

        Columns: ``position``, ``token_id``, ``text``, ``role`` (system, user, assistant, tool,
        template or output), ``message``, ``origin`` (where its KV came from: ``hot`` cache,
        ``memory``, ``disk``, or ``computed``; ``generated``), ``diverged`` (the first that differs
        from the most similar earlier turn).

        Parameters
        ----------
        show_text
            Whether token ids and texts are shown; None: those of the notebook's own turns.

        Raises
        ------
        UnknownTurn
            No such turn is kept, or its tokens are not.
        """

    @abstractmethod
    def timeline(self, turn: Turn | str | None = None) -> pd.DataFrame:
        """What a turn (None: the last) did when: a row a phase, prefill chunk and generated token.

        Columns: ``phase`` (pre_inference, resolve, load_wait, queue, prefill, decode),
        ``start_s`` and ``end_s`` (seconds since it arrived), ``tokens``.

        Raises
        ------
        UnknownTurn
            No such turn is kept.
        """

    @abstractmethod
    def sessions(self) -> pd.DataFrame:
        """The sessions, a row each."""

    @abstractmethod
    def models(self) -> pd.DataFrame:
        """The models that are here, a row each."""

    @abstractmethod
    def memory(self) -> pd.DataFrame:
        """What the engine holds, what it may hold, and what the system has left: one row, bytes."""

    @abstractmethod
    def explain(self, turn: Turn | str | None = None, show_text: bool | None = None) -> Explanation:
        """What a turn (None: the last) reused, and why not more.

        Parameters
        ----------
        show_text
            Whether it shows texts; None: those of the notebook's own turns.

        Raises
        ------
        UnknownTurn
            No such turn is kept.
        """

    @abstractmethod
    def warm(
        self,
        what: str | Session,
        model: str | None = None,
        source: Source = "python",
        begins: str = "",
    ) -> Turn:
        """Compute the KV of a system text, or of a session's history, ahead of use.

        Parameters
        ----------
        begins
            What the message after it is known to begin with.

        Raises
        ------
        ContextOverflow, NothingLoaded, TemplateFailed
            As for any turn.
        """

    def map(
        self,
        rows: Rows,
        prompt: Template,
        system: str | None = None,
        model: str | None = None,
        schema: Any = None,
        on_error: str = "value",
        progress: bool | Progress = True,
        resume: Any = None,
        concurrency: int | None = None,
        **options: Any,
    ) -> Answers:
        """One answer for each row, many at a time; what the prompts share is computed once.

        Parameters
        ----------
        rows
            A Series or a DataFrame. A row that lacks a value that its prompt needs is not asked.
        prompt
            A text in which ``{}`` stands for a Series's value and ``{column}`` for a column's, or
            what makes a text of a value or a row; see `mlxnb.sessions.row_prompts.row_prompts`.
        schema
            A pydantic model or a JSON schema of an object, which all answers conform to.
        on_error
            ``"value"``: a row that fails has NA; ``"raise"``: it ends the run.
        progress
            Show a bar where somebody watches; or called with rows done and rows in all.
        resume
            An earlier result, in full or in part: rows that it answers, asked the same by the same
            label of the index, are not asked again.
        concurrency
            Turns in flight, at most. Others get places too while the engine's queue is full.
        **options
            Sampling, and a session's options. With a ``seed`` row number i has seed + i.

        Returns
        -------
        pandas.Series or pandas.DataFrame
            Texts named ``answer``, or a column for each property of the schema, with the index of
            ``rows``. ``.attrs["turns"]`` has the turns: ``turn_id, cached_tokens, prefill_tokens,
            output_tokens, finish_reason, error, prompt_hash``.

        Raises
        ------
        InvalidOption, NothingLoaded, SessionExists
            Nothing was begun.
        Interrupted
            A KeyboardInterrupt whose ``partial`` is the result as far as it came.
        Unfinished
            It cannot go on; ``partial`` likewise.
        """
        from mlxnb.sessions.column import map_rows

        given = system, model, schema, on_error, progress, resume, concurrency
        return map_rows(self, rows, prompt, *given, **options)

    def compare(
        self,
        prompt: str,
        models: Sequence[str] | None = None,
        sessions: Sequence[str | Session] | None = None,
        settings: Sequence[Mapping[str, Any]] | None = None,
        system: str | None = None,
        **sampling: Any,
    ) -> pd.DataFrame:
        """One prompt to several sides, one after another: a row each.

        Parameters
        ----------
        models
            Loaded models, each without a past; none, and no sessions: the one loaded last.
        sessions
            Sessions or their names; forks of them answer, and they stay as they are.
        settings
            Options of sampling, a dict each, for each of these.
        system
            The system text of the models.
        **sampling
            Options of sampling for all sides, where ``settings`` says nothing.

        Returns
        -------
        pandas.DataFrame
            ``label, model, session, settings, answer, output_tokens, ttft_s, total_s,
            cached_tokens, agreement, same, finish_reason, error, turn_id``. ``agreement`` is how
            much of the longer answer, 0 to 1, it shares with the first one from the beginning: of
            their tokens, or of their words where they are of different models.

        Raises
        ------
        InvalidOption, NothingLoaded, UnknownSession
            Nothing was begun.
        Interrupted, Unfinished
            As `map`.
        """
        from mlxnb.sessions.comparison import compare

        return compare(self, prompt, models, sessions, settings, system, **sampling)

    @abstractmethod
    def pin(self, block_id: str, pinned: bool = True) -> None:
        """Keep a block of the prefix cache (with all before it), or let it go again.

        Raises
        ------
        UnknownBlock
            Nothing has that id.
        """

    @abstractmethod
    def evict(self, block_id: str) -> None:
        """Let a block of the prefix cache go with all behind it, or a hot cache, or a checkpoint.

        Raises
        ------
        UnknownBlock
            Nothing has that id.
        InvalidOption
            It is in use, or pinned.
        """

    @property
    @abstractmethod
    def budget(self) -> int:
        """Bytes that the prefix cache may take; can be set."""

    @budget.setter
    @abstractmethod
    def budget(self, value: int) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """End the engine: running turns fail, models go. What has been can still be looked at."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether ``close`` was called; what needs an engine raises ``EngineClosed`` then."""
