"""The interface of an engine, as users and all three doors see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from mlxnb.models.info import ModelInfo
    from mlxnb.records.explain import Explanation
    from mlxnb.records.turn import Source, Turn
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

    @abstractmethod
    def remove_session(self, name: str, forget: bool = False) -> None:
        """Forget a session; its KV may be reused by others until it is evicted.

        Parameters
        ----------
        forget
            Delete its KV too, in memory and on disk, as far as nobody else shares it.

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
    def prefix_cache(self, show_text: bool | None = None) -> pd.DataFrame:
        """What the prefix cache holds, a row a block or hot cache.

        Parameters
        ----------
        show_text
            Whether ``preview`` shows the beginnings of texts; None: where all turns are the
            notebook's own, since a saved notebook would keep what clients said.
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
        self, what: str | Session, model: str | None = None, source: Source = "python"
    ) -> Turn:
        """Compute the KV of a system text, or of a session's history, ahead of use.

        Raises
        ------
        ContextOverflow, NothingLoaded, TemplateFailed
            As for any turn.
        """

    @abstractmethod
    def pin(self, block_id: str, pinned: bool = True) -> None:
        """Keep a block of the prefix cache (with all before it), or let it go again.

        Raises
        ------
        UnknownBlock
            Nothing has that id.
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
