"""The magics of ``%load_ext mlxnb``.

Imported when the extension is loaded: the engine, MLX and pandas come with the first magic that
needs them.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import (
    Magics,
    line_cell_magic,
    line_magic,
    magics_class,
    no_var_expand,
)
from traitlets import Bool, Enum, Float, Int, Unicode

from mlxnb.errors import UnknownSession
from mlxnb.notebook import commands, verbatim
from mlxnb.notebook.completion import Completion
from mlxnb.notebook.current import CurrentSession
from mlxnb.notebook.first_cell import FirstCell, running_cell
from mlxnb.notebook.mistakes import documented
from mlxnb.notebook.options import Command
from mlxnb.notebook.session_magic import SessionMagic

if TYPE_CHECKING:
    from mlxnb.host.remote.engine import RemoteEngine
    from mlxnb.models.info import ModelInfo
    from mlxnb.notebook.views import View
    from mlxnb.sessions.engine import Engine


Use = Callable[["Engine | None"], "Engine"]
"""Makes an engine the process's, None: its own one, and returns it."""


@magics_class
class MlxMagics(Magics):
    """Magics over one engine; ``%config MlxMagics`` shows and sets the defaults.

    Parameters
    ----------
    engine
        Gives the engine; called when a magic first needs it.
    use
        Lets ``engine`` give another one.
    """

    format = Enum(
        ("auto", *commands.FORMATS),
        default_value="auto",
        help="How %mlx_chat shows an answer. auto: markdown in a notebook, text in a terminal.",
    ).tag(config=True)
    max_tokens = Int(
        None, allow_none=True, help="Tokens to generate, at most, where the line does not say."
    ).tag(config=True)
    temp = Float(
        None,
        allow_none=True,
        help="Temperature where the line does not say; None: the model's own.",
    ).tag(config=True)
    model = Unicode(
        None, allow_none=True, help="The model of new sessions; None: the one loaded last."
    ).tag(config=True)
    host = Enum(
        ("auto", "kernel", "shared"),
        default_value="auto",
        help="Where %mlx_load loads. auto: where the model is loaded already, else in the notebook "
        "server's shared host, else here; kernel: here; shared: in the shared host or not at all.",
    ).tag(config=True)
    progress = Bool(True, help="Show progress of loading and of long prefills.").tag(config=True)

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell, engine: Callable[[], Engine], use: Use) -> None:
        super().__init__(shell)
        self.engine, self._use = engine, use
        self._attached: RemoteEngine | None = None  # that of another process, where one is in use
        self.current = CurrentSession(engine)
        self._sessions = SessionMagic(engine, self.current, self._fill)

    # --- models -------------------------------------------------------------------------------

    @line_magic
    @documented(commands.LOAD)
    def mlx_load(self, line: str) -> None:  # noqa: D102
        given = commands.LOAD.parse(line)
        progress = self.progress and not given.no_progress
        info = self._load(given, progress)
        self._store(given.output, info)
        context = f"{info.context_length:,}" if info.context_length else "unknown"
        print(
            f"{info.name}: {info.family}, {_count(info.parameters)} parameters, context {context}"
        )
        if info.reuse == "none":
            print("its KV cannot be reused: each turn computes its whole prompt")

    def _load(self, given: SimpleNamespace, progress: bool) -> ModelInfo:
        """Load where the model is to be; that engine is then the one in use."""
        from mlxnb.models.resolve import canonical_name
        from mlxnb.notebook.placing import place

        here = given.here or given.adapter is not None or given.kv_bits is not None
        found = place(canonical_name(given.name), str(self.host), here, self._attached)
        engine = self._use(None) if found is None else found
        try:
            info = engine.load(
                given.name, adapter=given.adapter, progress=progress, kv_bits=given.kv_bits
            )
        except BaseException:
            if self._attached is not None:
                self._use(self._attached)
            raise
        self._attached = found
        self._use(found)
        return info

    @line_magic
    @documented(commands.UNLOAD)
    def mlx_unload(self, line: str) -> None:  # noqa: D102
        given = commands.UNLOAD.parse(line)
        self.engine().unload(given.name)
        print(f"{given.name}: unloaded")

    @line_magic
    @documented(commands.MODELS)
    def mlx_models(self, line: str) -> Any:  # noqa: D102
        return self._result(commands.MODELS.parse(line), self.engine().models())

    # --- turns --------------------------------------------------------------------------------

    @no_var_expand
    @line_cell_magic
    @documented(commands.CHAT)
    def mlx_chat(self, line: str, cell: str | None = None) -> None:  # noqa: D102
        from mlxnb.notebook.tools_magic import shape, take_turns

        given, text = self._prompt(line, cell)
        _check_name(given.output)
        system = self._fill(given.system, given.var) if given.system is not None else None
        text = self._fill(text, given.var)
        shaped = shape(given, self.shell.user_ns)
        session = self.current.for_turn(given.session, system, given.model, self.model)
        before = session.last
        make, options = self._views(given), self._sampling(given) | shaped
        try:
            take_turns(session, text, make, options)
        finally:
            if session.last is not before:
                self._store(given.output, session.last)

    def _prompt(
        self, line: str, cell: str | None, command: Command = commands.CHAT
    ) -> tuple[SimpleNamespace, str]:
        """The options and the text of a line, or of a cell."""
        if cell is None:
            given = command.parse_text(line)
            text = given.text
        else:
            given, text = command.parse(line), cell.removesuffix("\n")
        if not text.strip():
            command.fail("there is no text")
        return given, text

    def _fill(self, text: str, names: list[str]) -> str:
        """``{NAME}`` replaced by the variable's value, for these names; nothing else changes."""
        for name in names:
            if name not in self.shell.user_ns:
                raise UsageError(f"--var {name}: there is no such variable")
        return verbatim.filled(text, {name: str(self.shell.user_ns[name]) for name in names})

    def _sampling(self, given: SimpleNamespace) -> dict[str, Any]:
        options = {
            "temperature": self.temp if given.temp is None else given.temp,
            "max_tokens": self.max_tokens if given.max_tokens is None else given.max_tokens,
            "top_p": given.top_p,
            "top_k": given.top_k,
            "min_p": given.min_p,
            "seed": given.seed,
            "stop": given.stop or None,
            "n": getattr(given, "choices", None),
        }
        return {name: value for name, value in options.items() if value is not None}

    def _views(self, given: SimpleNamespace) -> Callable[[], View]:
        """Makes what shows one turn; an answer that has a schema is code, all of it."""
        from mlxnb.notebook.views import CodeView, MarkdownView, TextView

        wanted = given.format or self.format
        formatter = self.shell.display_formatter
        rich = formatter is not None and "text/html" in formatter.active_types
        if wanted == "code" and given.schema is None:
            return CodeView
        if not rich or wanted in ("text", "code"):
            return TextView
        language = "" if given.schema is None else "json"
        return lambda: MarkdownView(self.progress, language)

    @no_var_expand
    @line_cell_magic
    @documented(commands.MAP)
    def mlx_map(self, line: str, cell: str = "") -> Any:  # noqa: D102
        from mlxnb.notebook.map_magic import map_cell

        given, template = commands.MAP.parse(line), cell.removesuffix("\n")
        if not template.strip():
            commands.MAP.fail("there is no prompt: it stands below, in a cell of %%mlx_map")
        _check_name(given.output)
        options = {
            "system": None if given.system is None else self._fill(given.system, given.var),
            "model": given.model or self.model,
            "progress": self.progress,
            **self._sampling(given),
        }
        values = self.shell.user_ns
        return map_cell(self.engine(), values, given, template, self._store, **options)

    @no_var_expand
    @line_cell_magic
    @documented(commands.COMPARE)
    def mlx_compare(self, line: str, cell: str | None = None) -> Any:  # noqa: D102
        from mlxnb.notebook.compare_magic import compare_line

        given, text = self._prompt(line, cell, commands.COMPARE)
        _check_name(given.output)
        system = None if given.system is None else self._fill(given.system, given.var)
        most = self.max_tokens if given.max_tokens is None else given.max_tokens
        shared = {"temperature": self.temp, "max_tokens": most}
        text = self._fill(text, given.var)
        made = compare_line(self.engine(), given, text, system, self._store, **shared)
        return self._result(given, made)

    @line_magic
    @documented(commands.TOOLS)
    def mlx_tools(self, line: str) -> None:  # noqa: D102
        from mlxnb.notebook.tools_magic import set_up

        given = commands.TOOLS.parse(line)
        _check_name(given.output)
        session = self.current.for_turn(given.session, None, None, self.model)
        said = set_up(session, given, self.shell.user_ns)
        if given.output is not None:
            self._store(given.output, session.calls())
        print(said)

    @line_magic
    @documented(commands.WIDGET)
    def mlx_widget(self, line: str) -> Any:  # noqa: D102
        from mlxnb.notebook.widgets.chat import Chat
        from mlxnb.sessions.registry import check_name

        given = commands.WIDGET.parse(line)
        if given.session is not None:
            check_name(given.session)
        session = self.current.for_turn(given.session, None, given.model, self.model)
        return Chat(self.engine(), session, given.save, self.engine)

    # --- sessions -----------------------------------------------------------------------------

    @no_var_expand
    @line_magic
    @documented(commands.SESSION_HELP)
    def mlx_session(self, line: str) -> None:  # noqa: D102
        said, session, name = self._sessions.run(line)
        self._store(name, session)
        print(said)

    @line_magic
    @documented(commands.SESSIONS)
    def mlx_sessions(self, line: str) -> Any:  # noqa: D102
        return self._result(commands.SESSIONS.parse(line), self.engine().sessions())

    @line_magic
    @documented(commands.WARM)
    def mlx_warm(self, line: str) -> None:  # noqa: D102
        given = commands.WARM.parse(line)
        engine = self.engine()
        try:
            turn = engine.warm(engine.find_session(given.what), source="magic")
        except UnknownSession:
            turn = engine.warm(_text_of(Path(given.what)), given.model or self.model, "magic")
        self._store(given.output, turn)
        print(f"warm: {turn.prompt_tokens:,} tokens, {turn.cached_tokens:,} were cached")

    # --- looking ------------------------------------------------------------------------------

    @line_magic
    @documented(commands.TURNS)
    def mlx_turns(self, line: str) -> Any:  # noqa: D102
        given = commands.TURNS.parse(line)
        return self._result(given, self.engine().turns(wide=given.wide))

    @line_magic
    @documented(commands.PREFIX)
    def mlx_prefix(self, line: str) -> Any:  # noqa: D102
        given = commands.PREFIX.parse(line)
        for block, pinned in [*((b, True) for b in given.pin), *((b, False) for b in given.unpin)]:
            self.engine().pin(block, pinned)
        return self._result(given, self.engine().prefix_cache(given.text or None))

    @line_magic
    @documented(commands.EXPLAIN)
    def mlx_explain(self, line: str) -> Any:  # noqa: D102
        given = commands.EXPLAIN.parse(line)
        return self._result(given, self.engine().explain(self._turn(given), given.text or None))

    @line_magic
    @documented(commands.INSPECT)
    def mlx_inspect(self, line: str) -> Any:  # noqa: D102
        from mlxnb.notebook.widgets.inspector import Inspector

        given = commands.INSPECT.parse(line)
        made = Inspector(self.engine(), self._turn(given), given.text or None, self.engine)
        return self._result(given, made)

    def _turn(self, given: SimpleNamespace) -> Any:
        """A turn's id, or the Turn that the variable of that name holds; None: the last one."""
        held = self.shell.user_ns.get(given.turn) if given.turn else None
        return held if hasattr(held, "finish_reason") else given.turn

    @line_magic
    @documented(commands.SERVE)
    def mlx_serve(self, line: str) -> Any:  # noqa: D102
        from mlxnb.notebook import serving

        given = commands.SERVE.parse(line)
        if given.status:
            return self._result(given, serving.status(self.engine()))
        if given.stop:
            print(serving.stop(self.engine()))
            return None
        said, handle = serving.serve(self.engine(), given.port)
        self._store(given.output, handle)
        print(said)
        return None

    # --- results ------------------------------------------------------------------------------

    def _result(self, given: SimpleNamespace, value: Any) -> Any:
        """Stored where a name was given, and otherwise shown as the cell's result."""
        if given.output is None:
            return value
        self._store(given.output, value)
        return None

    def _store(self, name: str | None, value: Any) -> None:
        if name is not None:
            _check_name(name)
            self.shell.user_ns[name] = value


def _check_name(name: str | None) -> None:
    if name is not None and (not name.isidentifier() or keyword.iskeyword(name)):
        raise UsageError(f"-o: {name!r} is not a name of a variable")


def _text_of(path: Path) -> str:
    try:
        return path.expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"no session and no readable text file {str(path)!r}: {error}") from None


def _count(number: int | None) -> str:
    """A number of parameters as people say it: 135M, 1.5B."""
    if number is None:
        return "unknown"
    value, unit = (number / 1e9, "B") if number >= 1e9 else (number / 1e6, "M")
    return f"{value:.1f}{unit}"


def register(shell: InteractiveShell, engine: Callable[[], Engine], use: Use) -> None:
    """Add the magics to a shell, in place of those of an earlier load, whose session goes on.

    Parameters
    ----------
    engine
        Gives the engine that they work on.
    use
        Lets ``engine`` give another one.
    """
    made = MlxMagics(shell, engine, use)
    earlier_ones = [c for c in shell.configurables if isinstance(c, MlxMagics) and c is not made]
    for earlier in earlier_ones:
        made.current.name, made._attached = earlier.current.name, earlier._attached
        shell.configurables.remove(earlier)
    if not verbatim.installed(shell):
        FirstCell(shell, running_cell(shell)).install()
    verbatim.install(shell)
    Completion(engine).install(shell)
    shell.register_magics(made)
