"""mlxnb: local language models in Jupyter, and what their KV cache did.

``mlxnb.engine()`` is the process's engine; ``%load_ext mlxnb`` brings the magics. Importing this
module costs next to nothing: MLX, pandas and the rest are imported on first use.
"""

from __future__ import annotations

import importlib
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from mlxnb.notebook.widgets.chat import Chat
    from mlxnb.notebook.widgets.inspector import Inspector
    from mlxnb.records.turn import Turn
    from mlxnb.sessions.engine import Engine
    from mlxnb.sessions.session import Session

__version__ = "0.1.0"

__all__ = [
    "Engine",
    "Session",
    "Turn",
    "chat",
    "engine",
    "errors",
    "inspect",
    "plot",
    "process_engine",
    "use_engine",
]

_WHERE = {
    "Engine": "mlxnb.sessions.engine",
    "Session": "mlxnb.sessions.session",
    "Turn": "mlxnb.records.turn",
}
# %reload_ext executes this module again, in the same namespace: the engine and its models stay
_engine: Engine | None = globals().get("_engine")
_own: Engine | None = globals().get("_own")
_lock = threading.RLock()


def process_engine() -> Engine:
    """The engine of this process, made on first use. The same as ``mlxnb.engine()``."""
    with _lock:
        return use_engine(None) if _engine is None or _engine.closed else _engine


def use_engine(engine: Engine | None) -> Engine:
    """Let ``mlxnb.engine()`` be this one: of a host in another process, or None: of this one."""
    global _engine, _own
    with _lock:
        if engine is None:
            if _own is None or _own.closed:
                from mlxnb.engine.disk import open_disk
                from mlxnb.sessions.local import LocalEngine

                _own = LocalEngine(disk=open_disk())
            engine = _own
        _engine = engine
        return engine


def engine() -> Engine:
    """The engine that this process uses: its own, made on first use and anew after ``close()``.

    After ``%mlx_load`` it may be that of another process, with the same interface. It loads
    models (``load``), holds sessions (``session``) and shows what happened as data frames
    (``turns``, ``prefix_cache``, ``sessions``, ``models``, ``memory``, ``explain``).
    """
    return process_engine()


def chat(
    session: Session | str | None = None,
    model: str | None = None,
    system: str | None = None,
    save: bool = False,
) -> Chat:
    """A chat widget; as a cell's last value it is shown.

    Parameters
    ----------
    session
        A session or a name; where nothing has that name one is made. None: a new one.
    model
        A loaded model; None: the session's, or for a new one the one loaded last.
    system
        The system text of a new session.
    save
        Keep the transcript in the notebook when that is saved, to be read without a kernel.

    Raises
    ------
    InvalidOption
        ``session`` is neither a session nor what can be a name.
    NothingLoaded
        There is no model for a new session.
    SessionExists
        The session of that name has another model or system text.
    """
    from mlxnb.notebook.widgets.chat_open import open_chat

    return open_chat(process_engine(), session, model, system, save, process_engine)


def inspect(turn: Turn | str | None = None, show_text: bool | None = None) -> Inspector:
    """Show a turn from within: its tokens, its time, and the prefix cache.

    Parameters
    ----------
    turn
        The turn, or its id; None: the last one, if there is one.
    show_text
        Whether texts are shown; None: those of the notebook's own turns.

    Raises
    ------
    UnknownTurn
        No such turn is kept.
    """
    from mlxnb.notebook.widgets.inspector import Inspector

    return Inspector(process_engine(), turn, show_text, process_engine)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """What ``%load_ext mlxnb`` calls."""
    from mlxnb.notebook.magics import register

    register(shell, process_engine, use_engine)


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """What the notebook server calls to find its extension."""
    from mlxnb.jupyter.extension import Extension

    return [{"module": "mlxnb", "app": Extension}]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    if name in ("errors", "plot"):
        return importlib.import_module(f"mlxnb.{name}")
    raise AttributeError(f"module 'mlxnb' has no attribute {name!r}")
