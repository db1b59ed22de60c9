"""`%mlx_tools`, `%mlx_chat` that calls functions, `--schema`, and sessions as files."""

from __future__ import annotations

import builtins
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from pydantic import BaseModel
from scripted import load_scripted, scripted_folder

from mlxnb.notebook.magics import register
from mlxnb.sessions.local import LocalEngine

from .cells import Cells
from .kernels import Kernel, kernel

Script = Callable[..., Cells]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXNB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def engine() -> Any:
    made = LocalEngine(budget=64 * 2**20)
    yield made
    made.close()


@pytest.fixture
def script(bare_shell: InteractiveShell, engine: LocalEngine, tmp_path: Path) -> Script:
    """Cells over a model that gives these answers."""

    def load(*answers: str) -> Cells:
        load_scripted(engine, scripted_folder(tmp_path / "scripted", answers))
        register(bare_shell, lambda: engine, lambda other: other or engine)
        cells = Cells(bare_shell)
        cells.ok("%config MlxMagics.format = 'text'")
        cells.ok(FUNCTIONS)
        return cells

    return load


FUNCTIONS = '''
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b

def stop():
    raise KeyboardInterrupt

def fail():
    raise ValueError("no <b>such</b> thing\\x1b[2J")

wrong = 3
async def waits(): pass
'''


def call(function: str, **arguments: Any) -> str:
    said = json.dumps({"name": function, "arguments": arguments})
    return f"<tool_call>\n{said}\n</tool_call>"


# --- %mlx_tools -------------------------------------------------------------------------------


def test_functions_are_registered_shown_and_removed(script: Script, engine: LocalEngine) -> None:
    cells = script("Hi.")
    assert cells.ok("%mlx_tools").stdout == (
        "session-1: no functions; %mlx_tools FUNCTION registers one\n"
    )
    assert cells.ok("%mlx_tools add fail --no-confirm").stdout == (
        "session-1: 2 functions, at most 8 rounds of calls\nadd(a, b): asks not\nfail(): asks not\n"
    )
    cells.ok("%mlx_tools stop --limit 3")
    assert cells.ok("%mlx_tools --remove add --remove fail").stdout == (
        "session-1: 1 function, at most 3 rounds of calls\nstop(): asks first\n"
    )
    (tool,) = engine.find_session("session-1").options.tool_list or []
    assert tool["function"]["name"] == "stop"


def test_a_named_session_gets_them(script: Script, engine: LocalEngine) -> None:
    cells = script("Hi.")
    cells.ok("%mlx_session new here")
    cells.ok("%mlx_tools add -s other")
    assert engine.find_session("here").options.tools == ()
    assert len(engine.find_session("other").options.tools) == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nowhere", "%mlx_tools: there is no function 'nowhere' in this notebook"),
        ("add wrong", "a tool is a function with a name, not int"),
        ("add waits", "waits is async; a tool is called and waited for"),
        ("--remove add", "no function 'add' is registered (there are: none)"),
        ("add --remove add", "%mlx_tools: add is to be added and removed"),
        ("--limit x", "%mlx_tools: --limit: a number of rounds, not 'x' (help: %mlx_tools?)"),
        ("--limit -1", "%mlx_tools: --limit: a number of rounds, not '-1' (help: %mlx_tools?)"),
    ],
)
def test_mistakes_are_one_line_and_change_nothing(
    script: Script, engine: LocalEngine, line: str, reason: str
) -> None:
    cells = script("Hi.")
    assert cells.run(f"%mlx_tools {line}").mistake == reason
    assert [s.options.tools for s in engine.all_sessions()] in ([], [()])


# --- %mlx_chat --------------------------------------------------------------------------------


def test_chat_calls_until_the_model_answers_and_shows_it(script: Script) -> None:
    cells = script(call("add", a=1, b=2) + call("fail"), "It is 3.")
    cells.ok("%mlx_tools add fail --no-confirm")
    shown = cells.ok("%mlx_chat -o turn 1 + 2?").stdout
    assert shown == (
        '\n[call add {"a": 1, "b": 2}]\n\n[call fail {}]\n'
        "[result of add: 3]\n[error of fail: ValueError: no <b>such</b> thing\ufffd[2J]\n"
        "It is 3.\n"
    )
    assert cells["turn"].text == "It is 3."
    assert cells.ok("%mlx_turns").value["source"].tolist() == ["magic", "magic"]
    assert cells.ok("%mlx_tools -o calls").value is None
    assert cells["calls"]["result"].tolist()[0] == "3"


def test_chat_in_a_notebook_shows_results_in_boxes_without_html_of_theirs(script: Script) -> None:
    cells = script(call("fail"), "Oh *no*.")
    cells.ok("%config MlxMagics.format = 'markdown'")
    formatter = cells.shell.display_formatter
    assert formatter is not None
    formatter.active_types = [*formatter.active_types, "text/html"]
    cells.ok("%mlx_tools fail --no-confirm")
    pages = [bundle["text/html"] for bundle in cells.ok("%mlx_chat go").shown]
    boxes = [page for page in pages if "error of fail" in page]
    assert len(boxes) == 1
    assert "no &lt;b&gt;such&lt;/b&gt; thing\ufffd[2J" in boxes[0]
    assert "<pre>call fail {}</pre>" in pages[0]
    assert "<em>no</em>" in pages[-1]
    assert pages.index(boxes[0]) > 0


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_a_call_that_was_forced_is_shown_once_and_whole(script: Script, form: str) -> None:
    cells = script(call("add", a=1, b=2), "It is 3.")
    formatter = cells.shell.display_formatter
    assert formatter is not None
    formatter.active_types = [*formatter.active_types, "text/html"]
    cells.ok("%mlx_tools add --no-confirm")
    ran = cells.ok(f"%mlx_chat -f {form} --tool-choice add 1 + 2?")
    if form == "text":
        assert ran.stdout == '\n[call add {"a": 1, "b": 2}]\n[result of add: 3]\nIt is 3.\n'
    else:
        first = next(b["text/html"] for b in reversed(ran.shown) if "call add" in b["text/html"])
        assert first.count("<pre>call") == 1
        assert "<p>" not in first


@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize("registered", [True, False])
def test_what_is_left_of_a_forced_call_is_not_shown(
    script: Script, engine: LocalEngine, form: str, registered: bool
) -> None:
    cells = script(call("add", a=1, b=2) + call("add", a=3, b=4), "It is 3.")
    formatter = cells.shell.display_formatter
    assert formatter is not None
    formatter.active_types = [*formatter.active_types, "text/html"]
    cells.ok("%mlx_tools add --no-confirm")
    if not registered:
        engine.find_session("session-1").toolbox.remove("add")
    most = len(call("add", a=1, b=2))
    ran = cells.ok(f"%mlx_chat -f {form} --max-tokens {most} --tool-choice required 1 + 2?")
    pages = [bundle["text/html"] for bundle in ran.shown if "text/html" in bundle]
    assert engine.turns()["finish_reason"][0] == "length"
    assert "tool_call&gt;" not in "".join(pages) and "tool_call>" not in ran.stdout
    assert '{"name' not in ran.stdout
    assert ("It is 3." in "".join([ran.stdout, *pages])) == registered


def test_chat_asks_before_each_call(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts: list[str] = []
    monkeypatch.setattr(builtins, "input", lambda prompt: prompts.append(prompt) or "n")
    cells = script(call("add", a=1), "Then not.")
    cells.ok("%mlx_tools add")
    assert "[error of add: the user refused this call]" in cells.ok("%mlx_chat go").stdout
    assert prompts == ['call add {"a": 1}? [y]es / [n]o / [a]lways: ']


def test_chat_without_input_says_so_before_anything_is_said(
    script: Script, engine: LocalEngine
) -> None:
    cells = script(call("add", a=1), "Then not.")
    cells.ok("%mlx_tools add")
    assert cells.run("%mlx_chat go").mistake == (
        "before add is called you are asked, and here you cannot be (no input); "
        "register it with confirm=False, or %mlx_tools --no-confirm"
    )
    assert len(engine.turns()) == 0


def test_an_interrupt_in_a_function_ends_the_cell_and_keeps_the_rest(script: Script) -> None:
    cells = script(call("add", a=1) + call("stop"), "Going on.")
    cells.ok("%mlx_tools add stop --no-confirm")
    ran = cells.run("%mlx_chat -o turn go")
    assert type(ran.error) is KeyboardInterrupt
    assert "[result of add: 2]" in ran.stdout
    assert cells["turn"].finish_reason == "tool_calls"
    assert cells.ok("%mlx_chat well?").stdout == "Going on.\n"


def test_the_limit_is_a_note(script: Script) -> None:
    cells = script(call("add", a=1), call("add", a=2), "Enough.")
    cells.ok("%mlx_tools add --no-confirm --limit 1")
    ran = cells.ok("%mlx_chat go")
    assert "the limit of 1 rounds of tool calls is reached" in ran.stderr
    assert cells.ok("%mlx_chat so?").stdout == "Enough.\n"


def test_the_first_code_is_that_of_the_answer(script: Script) -> None:
    cells = script(call("add", a=1), "```\nx = 2\n```")
    cells.ok("%mlx_tools add --no-confirm")
    ran = cells.ok("%mlx_chat -f code go")
    assert (ran.stdout, ran.stderr) == ("[result of add: 2]\nx = 2\n", "")


def test_calls_of_tools_that_are_no_functions_show_their_ids(
    script: Script, engine: LocalEngine
) -> None:
    cells = script(call("elsewhere"), "Fine.")
    engine.session(name="s", tools=[{"type": "function", "function": {"name": "elsewhere"}}])
    cells.ok("%mlx_tools add -s s --no-confirm")
    shown = cells.ok("%mlx_chat -s s -o turn go").stdout
    assert shown == f"\n[call {cells['turn'].tool_calls[0].id}: elsewhere {{}}]\n"


# --- in a real kernel -------------------------------------------------------------------------

TOLD = """\
%load_ext mlxnb
import mlxnb
from mlxnb.models.resolve import resolve
mlxnb.engine().load_source(resolve({folder!r}, trust_model_code=True), progress=False)
%config MlxMagics.format = 'text'
"""


def ask(notebook: Kernel, source: str, answer: Callable[[], None]) -> tuple[str, Any]:
    """Run a cell in a frontend that takes input: what it printed, and its reply."""
    printed: list[str] = []

    def take(message: Any) -> None:
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    reply = notebook._client.execute_interactive(
        source,
        allow_stdin=True,
        timeout=60,
        stdin_hook=lambda message: answer(),
        output_hook=take,
    )
    return "".join(printed), reply["content"]


def test_a_kernel_asks_its_frontend_where_that_takes_input(tmp_path: Path) -> None:
    two = call("add", a=1, b=2)
    folder = scripted_folder(tmp_path / "scripted", [two, "Three.", two, "Not.", "So."])
    with tempfile.TemporaryDirectory(prefix="mlxnb-") as scratch, kernel(Path(scratch)) as made:
        made.ok(TOLD.format(folder=str(folder)) + FUNCTIONS)
        made.ok("%mlx_tools add")
        refused = made.run("%mlx_chat go").reply
        assert refused is not None
        assert refused["ename"] == "UsageError"
        assert "before add is called you are asked, and here you cannot be" in refused["evalue"]
        printed, reply = ask(made, "%mlx_chat go", lambda: made._client.input("y"))
        assert reply["status"] == "ok"
        assert "[result of add: 3]\nThree.\n" in printed
        _, reply = ask(made, "%mlx_chat go", made.interrupt)
        assert reply["ename"] == "KeyboardInterrupt"
        assert ask(made, "%mlx_chat well?", made.interrupt)[0] == "Not.\n"
        made.ok("c = mlxnb.engine().find_session('session-1').calls()")
        facts = made.ok("c['confirmed'].tolist(), c['error'].tolist()").of("execute_result")[0]
        assert facts.content["data"]["text/plain"] == (
            "([True, <NA>], [<NA>, 'interrupted by the user before it was done'])"
        )


# --- --schema ---------------------------------------------------------------------------------


class Sum(BaseModel):
    total: int


@pytest.mark.parametrize("schema", [Sum, Sum.model_json_schema()])
def test_an_answer_has_the_schema_and_its_value(script: Script, schema: Any) -> None:
    cells = script('{"total": 3}')
    cells["Schema"] = schema
    shown = cells.ok("%%mlx_chat --schema Schema -o turn\n1 + 2?").stdout
    assert shown == '{"total": 3}\n'
    value = cells["turn"].parsed
    assert value == (Sum(total=3) if schema is Sum else {"total": 3})


def test_an_answer_that_was_cut_has_no_value_and_says_so(script: Script) -> None:
    cells = script('{"total": 3}')
    cells["Schema"] = Sum
    ran = cells.ok("%mlx_chat --schema Schema --max-tokens 3 -o turn 1 + 2?")
    assert cells["turn"].parsed is None
    assert ran.stderr.startswith("no value of the schema: ")


def test_a_value_is_shown_as_code(script: Script) -> None:
    cells = script('{"total": 3}')
    cells["Schema"] = Sum
    formatter = cells.shell.display_formatter
    assert formatter is not None
    formatter.active_types = [*formatter.active_types, "text/html"]
    page = cells.ok("%mlx_chat -f markdown --schema Schema x").shown[-1]["text/html"]
    assert "<pre><code" in page
    assert "&quot;total&quot;: 3" in page or '"total": 3' in page


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Nothing", "--schema Nothing: there is no such variable"),
        ("wrong", "--schema wrong: a pydantic model or a JSON schema, not int"),
        ("bad", "schema.type: 'x' is not valid under any of the given schemas"),
    ],
)
def test_a_schema_that_is_none_is_one_line(script: Script, name: str, reason: str) -> None:
    cells = script("{}")
    cells["bad"] = {"type": "x"}
    assert cells.run(f"%mlx_chat --schema {name} go").mistake == reason


# --- files ------------------------------------------------------------------------------------


def test_a_session_is_exported_and_imported(script: Script, tmp_path: Path) -> None:
    cells = script("One.", "Two.", "Three.")
    cells.ok("%mlx_chat a")
    path, page = tmp_path / "a b.json", tmp_path / "x.md"
    assert cells.ok(f"%mlx_session export session-1 '{path}'").stdout == (
        f"session-1: 1 turn in {path}\n"
    )
    cells.ok(f"%mlx_session export session-1 {page}")
    assert page.read_text("utf-8").startswith("# session-1\n")
    said = cells.ok(f"%mlx_session import '{path}' other -o s").stdout
    assert said == f"other: 1 turn, on {cells['s'].model}\n"
    assert cells.ok("%mlx_chat b").stdout == "Two.\n"
    assert cells["s"].turns == 2
    mistake = cells.run(f"%mlx_session import '{path}'").mistake
    assert mistake == "a session 'session-1' exists already"


def test_a_kept_session_is_there_in_the_next_kernel(script: Script, engine: LocalEngine) -> None:
    cells = script("One.", "Two.", "Three.")
    cells.ok("%mlx_chat a")
    assert cells.ok("%mlx_session keep").stdout == (
        "session-1: kept; %mlx_session restore session-1 goes on\n"
    )
    engine.remove_session("session-1")
    cells.ok("%mlx_session restore")
    assert cells.ok("%mlx_chat b").stdout == "Two.\n"
    cells.ok("%mlx_session rm --forget session-1")
    assert cells.run("%mlx_session restore session-1").mistake == (
        "no session 'session-1' is kept (kept: none)"
    )


def test_tokens_of_another_model_are_named(
    script: Script, engine: LocalEngine, tmp_path: Path
) -> None:
    cells = script("One.", "Two.")
    cells.ok("%mlx_chat a")
    cells.ok(f"%mlx_session export session-1 {tmp_path / 'x.json'}")
    name = load_scripted(engine, scripted_folder(tmp_path / "other", ["A", "B"], rope_theta=2))
    said = cells.ok(f"%mlx_session import {tmp_path / 'x.json'} other -m {name}").stdout
    assert said.splitlines()[0] == f"other: 1 turn, on {name}"
    assert said.splitlines()[1].endswith("its tokens are rendered anew")
