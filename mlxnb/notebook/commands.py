"""What each magic takes. Help, completion and docs/magics.md are made from this."""

from __future__ import annotations

from mlxnb.notebook.options import Argument, Command, Option

OUTPUT = Option(("-o", "--output"), "store the result in this variable", "NAME")
SESSION = Option(
    ("-s", "--session"), "the session; default: the current one", "NAME", complete="session"
)
MODEL = Option(
    ("-m", "--model"), "a loaded model; default: the last loaded", "NAME", complete="model"
)
SYSTEM = Option(("--system",), "the system text, in quotes", "TEXT")
VAR = Option(
    ("--var",),
    "replace {NAME} in the texts by this variable's value",
    "NAME",
    repeat=True,
    many=True,
)
TEXT = Option(("--text",), "show texts of clients' turns too; a saved notebook keeps them")
FORMATS = ("markdown", "text", "code")


def unescaped(text: str) -> str:
    r"""``\n``, ``\t`` and ``\\`` as newline, tab and backslash."""
    marks = {"n": "\n", "t": "\t", "\\": "\\"}
    head, *parts = text.split("\\")
    found, at = head, 0
    while at < len(parts):
        part = parts[at]
        if not part and at + 1 < len(parts):
            found += "\\" + parts[at + 1]
            at += 2
        else:
            found += marks[part[0]] + part[1:] if part[:1] in marks and part else "\\" + part
            at += 1
    return found


def limit(text: str) -> int:
    """A number of rounds; ``ValueError`` where it is none."""
    if not text.isdecimal():
        raise ValueError(f"a number of rounds, not {text!r}")
    return int(text)


SAMPLING = (
    Option(("-t", "--temp"), "temperature; 0 is greedy", "TEMP", float),
    Option(("--max-tokens",), "tokens to generate, at most", "N", int),
    Option(("--top-p",), "nucleus sampling", "P", float),
    Option(("--top-k",), "only the K likeliest tokens", "K", int),
    Option(("--min-p",), "only tokens this likely beside the likeliest", "P", float),
    Option(("--seed",), "the same seed draws the same tokens", "N", int),
    Option(
        ("--stop",),
        r"end before this text; \n, \t and \\ stand for newline, tab and backslash",
        "S",
        unescaped,
        repeat=True,
    ),
)

LOAD = Command(
    "mlx_load",
    "Load a model: `demo`, a folder, a .gguf file or a Hub id.",
    (
        Option(("--adapter",), "a folder of mlx-lm adapters", "PATH", complete="file"),
        Option(("--kv-bits",), "keep keys and values in 2, 4 or 8 bits each", "N", int),
        Option(("--here",), "into this kernel, whatever other process has it"),
        Option(("--no-progress",), "show no progress bar"),
        OUTPUT,
    ),
    (Argument("NAME", "name or path; quotes hold spaces", complete="load"),),
    notes="""\
-o stores the ModelInfo. A model that is loaded already is not read again.

A model that another process of yours has loaded is used there: one set of weights, one prefix
cache. Otherwise, in a notebook whose server has mlxnb's extension, it goes into that server's
shared host, which outlives the kernel; elsewhere, with --here, --adapter and --kv-bits into this
kernel.
`%config MlxMagics.host = "kernel"` or `"shared"` decides for all.""",
)
UNLOAD = Command(
    "mlx_unload",
    "Give a model's memory back, its part of the prefix cache included.",
    arguments=(Argument("NAME", "a loaded model", complete="model"),),
)
CHAT = Command(
    "mlx_chat",
    "Say something to the model and show the answer as it comes.",
    (
        SESSION,
        SYSTEM,
        MODEL,
        *SAMPLING,
        Option(
            ("-n", "--choices"), "so many answers, from one computation of the prompt", "N", int
        ),
        Option(("--schema",), "a variable with a JSON schema or a pydantic model", "NAME"),
        Option(("--tool-choice",), "auto, none, required, or the tool to call", "CHOICE"),
        OUTPUT,
        Option(("-f", "--format"), "how the answer is shown", "FORMAT", choices=FORMATS),
        VAR,
    ),
    text="TEXT",
    notes="""\
%mlx_chat takes the rest of the line as TEXT; %%mlx_chat takes the lines below. TEXT is verbatim:
braces, $, %, ?, !, quotes and backslashes stay as they are. Write -- before a TEXT that begins
with a dash and a letter. --var is the only interpolation; in %mlx_chat it takes one name and may
be repeated, in %%mlx_chat it takes all names up to the next option.

Without -s the current session goes on; it is made by the first turn. --system or -m that differ
from its own start a new one. -o stores the Turn, a partial one after an interrupt.

markdown is rendered in a box of its own: no HTML of the model's is used, images are shown as
links and never loaded. text streams the plain answer, without reasoning and facts. code prints the
first fenced block. The default is markdown in a notebook and text in a terminal.

With --schema the answer is JSON that conforms to it, and .parsed of the Turn is the value.
Functions that were registered with %mlx_tools are called, until the model answers.""",
)
TOOLS = Command(
    "mlx_tools",
    "Let the model call functions of the notebook, and show which it may call.",
    (
        SESSION,
        Option(("--no-confirm",), "call these without asking"),
        Option(("--remove",), "let it call this one no longer", "NAME", repeat=True),
        Option(("--limit",), "rounds of calls in one answer, at most; at first 8", "N", limit),
        OUTPUT,
    ),
    (Argument("FUNCTION", "functions of the notebook", required=False, many=True),),
    notes="""\
What the model is told of a function comes of its signature, type hints and docstring. %mlx_chat and
session.run call what it asks for, in this kernel, and ask before each call: y, n, or a for always.
An error goes back to the model. The tools stand at the beginning of the prompt, so that a session
that has turns computes all of it once more. -o stores the calls so far, a DataFrame.""",
)
MAP = Command(
    "mlx_map",
    "Answer the prompt below for each row of a Series or DataFrame, many at a time.",
    (
        MODEL,
        SYSTEM,
        Option(
            ("--var",),
            "replace {NAME} in the system text by this variable's value",
            "NAME",
            repeat=True,
        ),
        Option(("--schema",), "a variable with a JSON schema or a pydantic model", "NAME"),
        *SAMPLING,
        Option(("--resume",), "leave out rows that the variable of -o has answers for"),
        OUTPUT,
    ),
    (Argument("ROWS", "a variable with a Series or DataFrame, or NAME.COLUMN"),),
    below="PROMPT",
    notes="""\
PROMPT is verbatim but for {} (a Series's value) and {COLUMN} (a DataFrame's); {{COLUMN}} is
{COLUMN} itself, and braces around anything else stay. What comes in is not searched again. What the
prompts share is computed once. A row that lacks a value is not asked.

The result is a Series of texts with the index of ROWS, or with --schema a DataFrame with a column
for each property; its .attrs["turns"] has the rows' turns. A row that fails has NA there, and its
error. -o stores the result and says how many rows are answered. An interrupt stores what is done;
the same cell with --resume goes on from there, and asks rows anew whose prompt has changed. With
--seed row number i draws with N + i.""",
)
COMPARE = Command(
    "mlx_compare",
    "One prompt to several models, sessions or settings: a row each.",
    (
        Option(("-m", "--model"), "a loaded model", "NAME", repeat=True, complete="model"),
        Option(
            ("-s", "--session"),
            "a session; a fork of it answers",
            "NAME",
            repeat=True,
            complete="session",
        ),
        SYSTEM,
        Option(("-t", "--temp"), "temperature; 0 is greedy", "TEMP", float, repeat=True),
        Option(("--seed",), "the same seed draws the same tokens", "N", int, repeat=True),
        Option(("--max-tokens",), "tokens to generate, at most", "N", int),
        VAR,
        OUTPUT,
    ),
    text="TEXT",
    notes="""\
%mlx_compare takes the rest of the line as TEXT; %%mlx_compare takes the lines below. TEXT is
verbatim, as in %mlx_chat. Every model and session answers with every temperature and seed, one
after another; neither: the model loaded last. The sessions stay as they are.

The result is a DataFrame. agreement is how much of the longer answer, 0 to 1, a row shares with the
first one from the beginning: of their tokens, or of their words where they are of different models.
-o stores it and shows nothing.""",
)
WIDGET = Command(
    "mlx_widget",
    "Show a chat with a session as a widget.",
    (SESSION, MODEL, Option(("--save",), "keep the transcript in the saved notebook")),
    notes="""\
Without -s it shows the current session; what is said here and in %mlx_chat cells is one
conversation. With --save a reopened notebook shows the transcript without a kernel; otherwise the
file has none of it.""",
)
SESSIONS = Command("mlx_sessions", "The sessions, a row each.", (OUTPUT,))
TURNS = Command(
    "mlx_turns",
    "All turns, a row each: what was reused, what was computed, how long each phase took.",
    (Option(("--wide",), "more columns"), OUTPUT),
    notes="-o stores the DataFrame and shows nothing.",
)
PREFIX = Command(
    "mlx_prefix",
    "What the prefix cache holds, a row a block or hot cache.",
    (
        Option(("--pin",), "keep this block and all before it", "ID", repeat=True),
        Option(("--unpin",), "let it go again", "ID", repeat=True),
        TEXT,
        OUTPUT,
    ),
    notes="-o stores the DataFrame and shows nothing.",
)
EXPLAIN = Command(
    "mlx_explain",
    "What a turn reused, and why not more.",
    (TEXT, OUTPUT),
    (
        Argument(
            "TURN",
            "a turn's id, or a variable that holds a Turn; default: the last turn",
            required=False,
        ),
    ),
    notes="-o stores the explanation and shows nothing; its .frame is a DataFrame.",
)
INSPECT = Command(
    "mlx_inspect",
    "A widget of a turn's tokens, where their KV came from, its time, and the prefix cache.",
    EXPLAIN.options,
    EXPLAIN.arguments,
    notes="-o stores the widget and shows nothing.",
)
MODELS = Command("mlx_models", "The models on this machine, a row each.", (OUTPUT,))
WARM = Command(
    "mlx_warm",
    "Compute the KV of a system text or of a session's history ahead of use.",
    (MODEL, OUTPUT),
    (Argument("WHAT", "a session's name, or a file with a system text", complete="warm"),),
    notes="-o stores the Turn.",
)
SERVE = Command(
    "mlx_serve",
    "Answer OpenAI's and Anthropic's clients with this kernel's engine, while cells run too.",
    (
        Option(("--port",), "listen on this loopback port too; 0: any", "P", int),
        Option(("--status",), "a row: requests, queue, in flight"),
        Option(("--stop",), "let running answers end, and take no more"),
        OUTPUT,
    ),
    notes="""\
Clients reach it on the notebook port, where the notebook server has mlxnb's extension, and
otherwise on a port of its own. The lines printed read the key from its file: no key is shown.
-o stores the handle with .url and .openai_url, or with --status the DataFrame.""",
)

# --- %mlx_session ----------------------------------------------------------------------------

_NAME = Argument("NAME", "the session", complete="session")
_CURRENT = Argument(
    "NAME", "the session; default: the current one", required=False, complete="session"
)
_NEW = Argument("NAME", "its name; default: one is made up", required=False)


def _verb(name: str, summary: str, *parts: Option | Argument) -> Command:
    options = tuple(p for p in parts if isinstance(p, Option))
    arguments = tuple(p for p in parts if isinstance(p, Argument))
    return Command(f"mlx_session {name}", summary, options, arguments)


VERBS = {
    "new": _verb(
        "new",
        "Begin a session and make it the current one.",
        SYSTEM,
        MODEL,
        Option(
            ("--history",),
            "exact: as generated; template: rendered anew each turn",
            "KIND",
            choices=("exact", "template"),
        ),
        Option(("--no-reuse",), "neither look the prefix cache up nor fill it"),
        Option(("--salt",), "share cached prefixes only with sessions of this salt", "SALT"),
        VAR,
        OUTPUT,
        _NEW,
    ),
    "use": _verb("use", "Make a session the current one.", OUTPUT, _NAME),
    "fork": _verb(
        "fork",
        "Begin a session with the same past and make it the current one.",
        SESSION,
        OUTPUT,
        _NEW,
    ),
    "rewind": _verb(
        "rewind",
        "Take back the last turns.",
        SESSION,
        OUTPUT,
        Argument("N", "how many; default: 1", required=False),
    ),
    "reset": _verb("reset", "Forget what was said; the system text stays.", SESSION, OUTPUT),
    "export": _verb(
        "export",
        "Write a session into a file: .md for people, else JSON to go on from.",
        _NAME,
        Argument("FILE", "is replaced if it is there", complete="file"),
    ),
    "import": _verb(
        "import",
        "Go on from an exported session, and make it the current one.",
        MODEL,
        OUTPUT,
        Argument("FILE", "what export has written", complete="file"),
        Argument("NAME", "its name; default: the one it had", required=False),
    ),
    "keep": _verb(
        "keep",
        "Save a session after each turn, for restore in another kernel.",
        _CURRENT,
    ),
    "restore": _verb(
        "restore",
        "Go on with a session that was kept, and make it the current one.",
        OUTPUT,
        Argument("NAME", "the session; default: the one saved last", required=False),
    ),
    "rm": _verb(
        "rm",
        "Remove a session.",
        Option(("--forget",), "delete its KV too, in memory and on disk, and its kept file"),
        _NAME,
    ),
    "show": _verb(
        "show",
        "Print what was said.",
        OUTPUT,
        _CURRENT,
    ),
}
SESSION_HELP = Command(
    "mlx_session",
    "Begin, choose, fork, rewind, reset, keep, export, remove and show sessions.",
    arguments=(
        Argument("VERB", "what to do; default: show", required=False, choices=tuple(VERBS)),
    ),
    notes="-o stores the Session.\n\n" + "\n".join(verb.help for verb in VERBS.values()).rstrip(),
)

COMMANDS = {
    command.name: command
    for command in (
        LOAD,
        UNLOAD,
        MODELS,
        CHAT,
        MAP,
        COMPARE,
        TOOLS,
        SESSION_HELP,
        SESSIONS,
        WARM,
        TURNS,
        PREFIX,
        EXPLAIN,
        INSPECT,
        WIDGET,
        SERVE,
    )
}
"""All magics, in the order of their pages."""
