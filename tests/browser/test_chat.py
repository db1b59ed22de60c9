"""The chat widget in a real JupyterLab: what the page shows, and what is in the file."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from mlxnb.notebook.widgets import chat as chat_module
from mlxnb.notebook.widgets.chat_blocks import Blocks

from .lab import TESTS, Lab, Notebook

BEGIN = f"""
import sys; sys.path.insert(0, {str(TESTS)!r})
import pathlib, tempfile, time, mlxnb
from scripted import *
%load_ext mlxnb
engine = mlxnb.engine()
def session(name, *answers, **options):
    folder = pathlib.Path(tempfile.mkdtemp()) / name
    config = {{"max_position_embeddings": 30_000}}
    model = load_scripted(engine, scripted_folder(folder, answers, **config))
    return engine.session(model, name=name, **options)
def gate(name, calls=0):
    return Gate(model_of(engine, engine.find_session(name).model), calls)
"""


class Chat:
    """A chat in a cell's output."""

    def __init__(self, cell: Locator) -> None:
        self.cell = cell
        self.root = cell.locator(".mlxnb-chat")
        self.box = self.root.get_by_role("textbox", name="Message", exact=True)
        self.log = self.root.get_by_role("log")
        self.status = self.root.get_by_role("status")
        self.turns = self.root.locator("article")
        self.answers = self.root.locator(".mlxnb-answer")
        self.meters = self.root.locator(".mlxnb-meter")
        expect(self.root.get_by_label("Session")).not_to_have_value("")

    def send(self, text: str) -> None:
        self.box.fill(text)
        self.box.press("Enter")

    def say(self, text: str) -> Locator:
        """Send and wait for the end; the turn's element."""
        count = self.turns.count()
        self.send(text)
        turn = self.turns.nth(count)
        expect(turn.locator(".mlxnb-meter")).to_contain_text("generated")
        return turn

    def press(self, name: str, within: Locator | None = None) -> None:
        (within or self.root).get_by_role("button", name=name, exact=True).click()

    @property
    def session(self) -> str:
        return str(self.root.get_by_label("Session").input_value())


@pytest.fixture(scope="module")
def book(notebook: Notebook) -> Notebook:
    notebook.run(BEGIN)
    return notebook


@pytest.fixture
def chat(book: Notebook) -> Callable[..., Chat]:
    """Shows a chat on a new session whose model gives these answers; its name is unique."""

    def show(*answers: str, name: str | None = None, options: str = "") -> Chat:
        name = name or f"s{uuid.uuid4().hex[:6]}"
        book.run(f"session({name!r}, *{answers!r})")
        return Chat(book.run(f"mlxnb.chat({name!r}{options})"))

    return show


def out(cell: Locator) -> str:
    return cell.locator(".jp-OutputArea-output").first.inner_text().strip()


# --- turns -----------------------------------------------------------------------------------


def test_an_answer_streams_and_ends_with_a_meter_of_the_turns_row(
    book: Notebook, chat: Callable[..., Chat]
) -> None:
    shown = chat("Hello *there*.\n\n```python\nx = 1\n```\nEnd.")
    book.run(f"held = gate({shown.session!r}, calls=12)")
    shown.send("hi")
    expect(shown.answers).to_have_text(re.compile("^Hello"))
    expect(shown.turns).to_have_attribute("aria-busy", "true")
    expect(shown.meters).to_have_text("")
    expect(shown.box).to_have_value("")
    book.run("held.open()")
    expect(shown.meters).to_contain_text("generated")
    expect(shown.answers.locator("em")).to_have_text("there")
    expect(shown.answers.locator("pre code")).to_have_text("x = 1\n")
    expect(shown.answers.locator("p").last).to_have_text("End.")
    row = out(
        book.run(
            "row = engine.turns().iloc[-1]\n"
            "print(f'cached {row.cached_tokens} | computed {row.prefill_tokens} | '\n"
            "      f'generated {row.output_tokens} · first token {row.ttft_s:.2f} s', row.source)"
        )
    )
    assert row == f"{shown.meters.inner_text().strip()} widget"


def test_a_long_prefill_shows_how_far_it_is_and_escape_stops_it(
    book: Notebook, chat: Callable[..., Chat]
) -> None:
    shown = chat("Hello.")
    book.run(f"held = gate({shown.session!r}, calls=2)")
    shown.send("word " * 300)
    progress = shown.root.get_by_role("progressbar")
    expect(shown.root.locator(".mlxnb-prefill")).to_have_text(
        re.compile(r"prefill [1-9]\d* of 1,5\d\d tokens, 0 cached")
    )
    done, total = (float(progress.evaluate(f"bar => bar.{name}")) for name in ("value", "max"))
    assert 0 < done < total
    shown.box.press("Escape")
    expect(shown.status).to_have_text("Stopping …")
    book.run("held.open()")
    expect(shown.meters).to_contain_text("stopped")
    expect(shown.answers).to_have_text("")
    assert shown.turns.get_attribute("class") == "mlxnb-exchange mlxnb-lost"
    assert out(book.run("row = engine.turns().iloc[-1]; print(row.finish_reason)")) == "cancelled"


def test_an_edited_message_goes_on_in_a_fork(book: Notebook, chat: Callable[..., Chat]) -> None:
    shown = chat("One.", "Two.")
    name = shown.session
    shown.say("a")
    second = shown.say("b")
    shown.press("Edit", second)
    editor = shown.root.get_by_role("textbox", name="Edited message")
    expect(editor).to_be_focused()
    editor.fill("B")
    editor.press("Enter")
    expect(shown.turns.locator(".mlxnb-said")).to_have_text(["a", "B"])
    expect(shown.meters.last).to_contain_text("generated")
    assert shown.session != name
    said = f"[m['content'] for m in engine.find_session({name!r}).history]"
    assert out(book.run(f"print({said})")) == "['a', 'One.', 'b', 'Two.']"
    shown.root.get_by_label("Session").select_option(name)
    expect(shown.turns.locator(".mlxnb-said")).to_have_text(["a", "b"])


def test_an_answer_is_made_again_with_other_sampling(chat: Callable[..., Chat]) -> None:
    shown = chat("One two three.")
    name = shown.session
    turn = shown.say("a")
    shown.root.get_by_text("Sampling").click()
    shown.root.get_by_label("max tokens").fill("3")
    shown.press("Regenerate", turn)
    expect(shown.meters).to_contain_text("generated 3")
    expect(shown.meters).to_contain_text("cut at max_tokens")
    expect(shown.answers).to_have_text("One")
    assert shown.session != name


FLAG = """
import threading
def opens(gate, flag):
    def wait():
        while not flag.exists(): time.sleep(0.02)
        gate.open()
    threading.Thread(target=wait, daemon=True).start()
flag = pathlib.Path(tempfile.mkdtemp()) / "go"
print(flag)
"""


def test_two_chats_and_a_cell_stay_in_step(book: Notebook, chat: Callable[..., Chat]) -> None:
    third = "Three and four and five and six and seven."
    one = chat("One.", "Two.", third)
    other = Chat(book.run(f"%mlx_widget -s {one.session}"))
    one.say("a")
    expect(other.answers).to_have_text(["One."])
    other.say("b")
    expect(one.answers).to_have_text(["One.", "Two."])
    flag = Path(out(book.run(FLAG)))
    book.run(f"held = gate({one.session!r}, calls=8); opens(held, flag)")
    cell = book.start(f"%mlx_chat -f text -s {one.session} c")
    for each in (one, other):
        expect(each.answers.last).to_have_text(re.compile("^Three"))
        expect(each.status).to_have_text("Answering …")
        expect(each.meters.last).to_have_text("")
    expect(cell.locator(".jp-InputPrompt")).to_have_text("[*]:")
    flag.touch()
    for each in (one, other):
        expect(each.turns.locator(".mlxnb-said")).to_have_text(["a", "b", "c"])
        expect(each.answers).to_have_text(["One.", "Two.", third])
        expect(each.meters.last).to_contain_text("generated")


def test_a_refused_message_stays_in_the_box(chat: Callable[..., Chat]) -> None:
    shown = chat("One.")
    shown.root.get_by_text("Sampling").click()
    shown.root.get_by_label("temperature").fill("-1")
    shown.send("keep this")
    expect(shown.status).to_contain_text("temperature")
    expect(shown.box).to_have_value("keep this")
    expect(shown.turns).to_have_count(0)


def test_a_refused_edit_is_in_the_box_and_the_session_as_it_was(
    chat: Callable[..., Chat],
) -> None:
    shown = chat("One.")
    name = shown.session
    turn = shown.say("a")
    shown.root.get_by_text("Sampling").click()
    shown.root.get_by_label("top p").fill("7")
    shown.press("Edit", turn)
    editor = shown.root.get_by_role("textbox", name="Edited message")
    editor.fill("keep this")
    editor.press("Enter")
    expect(shown.status).to_contain_text("top_p")
    expect(shown.box).to_have_value("keep this")
    expect(shown.box).to_be_focused()
    expect(shown.turns.locator(".mlxnb-said")).to_have_text(["a"])
    assert shown.session == name


def test_thoughts_and_calls_are_folded(book: Notebook) -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>'
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    answers = (f"<think>\nhm\n</think>\n\n{call}", "Four.")
    book.run(f"s = session('calls', *{answers!r}, tools=[{tool!r}])")
    shown = Chat(book.run("mlxnb.chat(s)"))
    turn = shown.say("add")
    for name, text in (("Reasoning", "hm"), ("call add", '{\n  "a": 2\n}')):
        folded = turn.locator("details", has_text=name)
        expect(folded).not_to_have_attribute("open", "")
        folded.locator("summary").click()
        expect(folded.locator(":not(summary)").first).to_have_text(text)
    book.run("s.send_tool_result(s.last.tool_calls[0].id, 4)")
    expect(shown.answers.last).to_have_text("Four.")
    expect(shown.turns.last.locator("details", has_text="result of add")).to_contain_text("4")


ADDER = """
import threading
on_main = []
def adder(name, rounds, wait=0, **options):
    call = '<tool_call>\\n{"name": "add", "arguments": {"a": 2}}\\n</tool_call>'
    made = session(name, *[call] * rounds, "Done.")
    @made.tool(**options)
    def add(a: int) -> int:
        print("in add", flush=True)
        on_main.append(threading.current_thread() is threading.main_thread())
        time.sleep(wait)
        return 2 * a
    return made
"""


FOUR_KEYS = """() => {
    for (let times = 0; times < 4; times++) {
        const key = new KeyboardEvent("keydown", { key: "n", bubbles: true, cancelable: true });
        document.activeElement.dispatchEvent(key);
    }
    return document.activeElement.getAttribute("role");
}"""
"""The same key four times at once; the role of what has the focus then."""
YES_AT_ONCE = """chat => new Promise(resolve => {
    new MutationObserver((_, observer) => {
        const question = [...chat.querySelectorAll(".mlxnb-question")].at(-1);
        if (!question.textContent.includes("Call add") || question.hidden) return;
        observer.disconnect();
        question.dispatchEvent(new KeyboardEvent("keydown", { key: "y", bubbles: true }));
        question.querySelector("button").click();
        resolve(question.textContent);
    }).observe(chat, { childList: true, subtree: true });
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "n", bubbles: true }));
})"""
"""Answers a question with no, and the next one with yes as soon as it is there."""


@pytest.fixture(scope="module")
def adding(book: Notebook) -> Notebook:
    book.run(ADDER)
    return book


def test_calls_are_asked_about_and_made_on_the_main_thread(adding: Notebook) -> None:
    adding.run("s = adder('asks', 4); del on_main[:]")
    shown = Chat(adding.run("mlxnb.chat(s)"))
    question = shown.root.locator(".mlxnb-question:visible")
    shown.send("add")
    expect(question).to_have_text(re.compile(re.escape('Call add {"a": 2}?')))
    expect(shown.status).to_have_text("May add be called? y, n or a (always).")
    expect(question).to_be_focused()
    cells = adding.cells
    adding.page.keyboard.type("bzxddm")  # JupyterLab's keys are off
    assert adding.cells == cells
    expect(question).to_be_focused()
    expect(question.get_by_role("button", name="Always")).to_be_enabled()
    # one answer; the others, before the next question is there, are meant for nothing
    assert adding.page.evaluate(FOUR_KEYS) == "log"
    expect(shown.turns).to_have_count(2)
    expect(shown.box).to_have_value("")
    expect(question).to_be_visible()
    shown.press("Yes", question)
    expect(shown.turns).to_have_count(3)
    expect(question).to_be_focused()
    expect(question.get_by_role("button", name="Always")).to_be_enabled()
    adding.page.keyboard.press("a")
    expect(shown.answers.last).to_have_text("Done.")
    expect(shown.status).to_have_text("The answer is complete.")
    expect(shown.box).to_be_focused()
    results = shown.root.locator(".mlxnb-call", has_text="result of add").locator("pre")
    expect(results).to_have_text(["[tool error] the user refused this call", "4", "4", "4"])
    printed = shown.root.locator(".mlxnb-output pre")
    expect(printed).to_have_text(["in add\n"] * 3)
    assert out(adding.run("print(on_main, s.calls().confirmed.tolist())")) == (
        "[True, True, True] [False, True, True, <NA>]"
    )


def test_a_question_takes_no_answer_that_was_meant_for_the_one_before(adding: Notebook) -> None:
    adding.run("s = adder('twice', 2); del on_main[:]")
    shown = Chat(adding.run("mlxnb.chat(s)"))
    question = shown.root.locator(".mlxnb-question:visible")
    shown.send("add")
    expect(question.get_by_role("button", name="Yes")).to_be_enabled()
    shown.root.evaluate(YES_AT_ONCE)
    expect(shown.turns).to_have_count(2)
    expect(question.get_by_role("button", name="Yes")).to_be_enabled()
    shown.press("No", question)
    expect(shown.answers.last).to_have_text("Done.")
    assert out(adding.run("print(on_main, s.calls().confirmed.tolist())")) == "[] [False, False]"


def test_a_question_is_there_when_the_page_is_loaded_again(
    open_notebook: Callable[..., Notebook],
) -> None:
    book = open_notebook()
    book.run(BEGIN)
    book.run(ADDER)
    book.run("import matplotlib.pyplot as plt")
    book.run(
        "s = adder('reload', 1)\n"
        "@s.tool\n"
        "def add(a: int) -> int:\n"
        "    print('drawn'); plt.plot([1, 2]); return 2 * a"
    )
    shown = Chat(book.run("mlxnb.chat(s)"))
    shown.send("add")
    expect(shown.root.locator(".mlxnb-question:visible")).to_be_visible()
    book.saved()
    book.open()
    shown = Chat(book.page.locator(".jp-Cell:has(.mlxnb-chat)").last)
    expect(shown.status).to_have_text("May add be called? y, n or a (always).")
    shown.press("Yes")
    expect(shown.answers.last).to_have_text("Done.")
    output = shown.root.locator(".mlxnb-output")
    expect(output.locator("pre")).to_have_text(re.compile("drawn"))
    width = "image => image.complete && image.naturalWidth"
    assert output.locator("img").evaluate(width) > 100


@pytest.mark.parametrize("confirm", [True, False])
def test_a_cells_calls_are_shown_and_stopped(adding: Notebook, confirm: bool) -> None:
    name = f"cell {confirm}"
    adding.run(f"s = adder({name!r}, 1, wait=1000, confirm={confirm})")
    shown = Chat(adding.run("mlxnb.chat(s)"))
    cell = adding.start(f"%mlx_chat -f text -s '{name}' add")
    question = shown.root.locator(".mlxnb-question:visible")
    says = 'The cell asks whether add {"a": 2} may be called.' if confirm else "add is running …"
    expect(question).to_have_text(says)
    expect(shown.status).to_have_text(says)
    if confirm:
        expect(cell.locator(".jp-Stdin-input")).to_be_visible()
    shown.send("meanwhile")
    expect(shown.status).to_contain_text("is answering; wait, or stop it")
    shown.box.fill("")
    shown.press("Stop")
    expect(question).to_have_count(0)
    stopped = "stopped at its calls; the model reads that with what you say next"
    expect(cell.locator(".jp-OutputArea")).to_contain_text(f"KeyboardInterrupt: {stopped}")
    expect(shown.status).to_have_text(stopped)
    shown.say("go on")
    expect(shown.answers.last).to_have_text("Done.")


def test_what_is_being_written_keeps_the_focus_when_a_call_is_asked_about(
    adding: Notebook,
) -> None:
    adding.run("s = adder('asks while writing', 1)\nheld = gate(s.name, calls=3)")
    shown = Chat(adding.run("mlxnb.chat(s)"))
    shown.send("add")
    expect(shown.box).to_have_value("")
    shown.box.fill("and th")
    adding.run("held.open()")
    expect(shown.root.locator(".mlxnb-question:visible")).to_be_visible()
    shown.box.focus()
    adding.page.keyboard.type("a")
    expect(shown.box).to_have_value("and tha")
    shown.press("No")
    expect(shown.answers.last).to_have_text("Done.")


def test_a_call_waits_for_the_cell_that_runs(adding: Notebook) -> None:
    adding.run("s = adder('waits', 1, confirm=False); del on_main[:]")
    shown = Chat(adding.run("mlxnb.chat(s)"))
    flag = Path(out(adding.run("flag = pathlib.Path(tempfile.mkdtemp()) / 'go'; print(flag)")))
    adding.start("while not flag.exists(): time.sleep(0.05)")
    shown.send("add")
    question = shown.root.locator(".mlxnb-question:visible")
    expect(question).to_have_text("add is called when what runs in the kernel has ended.")
    flag.touch()
    expect(shown.answers.last).to_have_text("Done.")
    assert out(adding.run("print(on_main)")) == "[True]"


def test_a_call_that_waits_is_stopped_at_once(adding: Notebook) -> None:
    adding.run("s = adder('waits no more', 1, confirm=False); del on_main[:]")
    shown = Chat(adding.run("mlxnb.chat(s)"))
    flag = Path(out(adding.run("flag = pathlib.Path(tempfile.mkdtemp()) / 'go'; print(flag)")))
    cell = adding.start("while not flag.exists(): time.sleep(0.05)")
    shown.send("add")
    expect(shown.status).to_have_text("add is called when what runs in the kernel has ended.")
    shown.press("Stop")
    expect(shown.status).to_contain_text("stopped at its calls")
    expect(cell.locator(".jp-InputPrompt")).to_have_text("[*]:")
    flag.touch()
    assert out(adding.run("print(on_main)")) == "[]"


def test_escape_interrupts_a_function(adding: Notebook) -> None:
    adding.run("s = adder('long', 1, wait=1000, confirm=False)")
    shown = Chat(adding.run("mlxnb.chat(s)"))
    shown.send("add")
    question = shown.root.locator(".mlxnb-question:visible")
    expect(question).to_have_text(re.compile("add is running ….*in add", re.DOTALL))
    shown.box.press("Escape")
    expect(question).to_have_count(0)
    expect(shown.status).to_contain_text("stopped at its calls")
    assert out(adding.run("print(s.calls().error.tolist(), s.turns)")) == (
        "['interrupted by the user before it was done'] 1"
    )
    shown.say("go on")
    expect(shown.answers.last).to_have_text("Done.")


def test_another_model_and_a_new_session(book: Notebook, chat: Callable[..., Chat]) -> None:
    other, shown = chat("Other."), chat("One.")
    name = shown.session
    model = other.root.get_by_label("Model").input_value()
    shown.say("a")
    shown.root.get_by_label("Model").select_option(model)
    expect(shown.turns).to_have_count(0)
    assert shown.session != name
    shown.say("b")
    expect(shown.answers).to_have_text("Other.")
    shown.press("New")
    expect(shown.turns).to_have_count(0)
    expect(shown.root.get_by_label("Model")).to_have_value(model)


# --- code ------------------------------------------------------------------------------------


def test_code_is_copied_and_runs_in_a_new_cell(book: Notebook, chat: Callable[..., Chat]) -> None:
    code = 'for n in range(2):\n    print(f"n{n}")\n\nmade_by_chat = [1, (2, "3")]'
    shown = chat(f"Run\n\n```python\n{code}\n```\n")
    turn = shown.say("a")
    shown.press("Copy", turn.locator("figure"))
    expect(shown.status).to_have_text("Copied.")
    assert book.page.evaluate("navigator.clipboard.readText()") == code
    count = book.cells
    shown.press("Run in new cell", turn)
    expect(shown.status).to_have_text("Running in a new cell below.")
    below = shown.cell.locator("xpath=following-sibling::*[contains(@class, 'jp-Cell')][1]")
    expect(below.locator(".jp-OutputArea-output")).to_have_text("n0\nn1\n")
    assert book.cells == count + 1
    assert out(book.run("print(made_by_chat)")) == "[1, (2, '3')]"


# --- keys, themes ----------------------------------------------------------------------------


def test_keys(book: Notebook, chat: Callable[..., Chat]) -> None:
    shown = chat("One.", "Two.")
    count = book.cells
    shown.box.press_sequentially("two")
    shown.box.press("Shift+Enter")
    shown.box.press_sequentially("lines")
    shown.box.press("Enter")
    expect(shown.turns.locator(".mlxnb-said")).to_have_text(re.compile("^two\nlines$"))
    expect(shown.meters).to_contain_text("generated")
    expect(shown.box).to_be_focused()
    shown.box.press("Enter")  # of an empty box
    shown.box.press("Tab")
    expect(shown.root.get_by_role("button", name="Send")).to_be_focused()
    book.page.keyboard.press("b")  # in a notebook's command mode it makes a cell
    shown.press("Edit")
    book.page.keyboard.press("Escape")
    expect(shown.box).to_be_focused()
    expect(shown.turns).to_have_count(1)
    assert book.cells == count


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(element: Locator) -> float:
    """Of an element's text with what is behind it."""
    text, page = element.evaluate(
        """element => {
            const opaque = (e) => getComputedStyle(e).backgroundColor;
            let behind = element;
            while (/rgba\\(.*, 0\\)/.test(opaque(behind))) behind = behind.parentElement;
            return [getComputedStyle(element).color, opaque(behind)];
        }"""
    )
    lighter, darker = sorted((luminance(text), luminance(page)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_text_can_be_read_in_both_themes(book: Notebook, pictures: Path) -> None:
    book.run("engine.load('demo', progress=False)")
    shown = Chat(book.run("mlxnb.chat('squares', model='demo')"))
    shown.root.get_by_text("Sampling").click()
    shown.root.get_by_label("temperature").fill("0")
    shown.root.get_by_label("max tokens").fill("160")
    shown.root.get_by_text("Sampling").click()
    shown.say("Write a short Python function that adds two numbers, in a code block.")
    shown.say("And one that multiplies them.")
    expect(shown.answers.locator("pre")).not_to_have_count(0)
    pages = {}
    for theme, name in (("JupyterLab Dark", "dark"), ("JupyterLab Light", "light")):
        book.command("apputils:change-theme", theme=theme)
        expect(book.page.locator("body")).to_have_attribute("data-jp-theme-name", theme)
        expect(book.page.locator("#jupyterlab-splash")).to_have_count(0)
        shown.root.screenshot(path=pictures / f"chat-{name}.png")
        assert (pictures / f"chat-{name}.png").stat().st_size > 10_000
        pages[name] = luminance(shown.root.evaluate("e => getComputedStyle(e).backgroundColor"))
        for part in (".mlxnb-said", ".mlxnb-answer p", "code", ".mlxnb-meter", "textarea"):
            assert contrast(shown.root.locator(part).first) >= 4.5, (theme, part)
    assert pages["dark"] < 0.1 < 0.8 < pages["light"]


# --- what must not happen --------------------------------------------------------------------


def test_a_hostile_answer_stays_text_and_loads_nothing(
    book: Notebook, chat: Callable[..., Chat]
) -> None:
    evil = (
        "<script>window.evil = 1</script>\n\n<img src=x onerror='window.evil = 2'>\n\n"
        "![picture](https://evil.example/p.png) [link](javascript:window.evil=3) "
        "<style>body{display:none}</style> $\\href{javascript:window.evil=4}{x}$\n\n"
        "```html\n<img src=x onerror='window.evil=5'>\n```\n\n"
        "- <iframe src='https://evil.example/f'></iframe>\n\n"
        "<svg onload='window.evil=6'></svg> <https://evil.example/auto>"
    )
    shown = chat(evil)
    book.requests.clear()
    turn = shown.say("<img src=x onerror='window.evil=7'>")
    expect(turn.locator(".mlxnb-said")).to_have_text("<img src=x onerror='window.evil=7'>")
    expect(turn.locator(".mlxnb-answer")).to_contain_text("<script>window.evil = 1</script>")
    expect(turn.locator("pre code")).to_have_text("<img src=x onerror='window.evil=5'>\n")
    assert turn.locator("script, img, iframe, style, svg, mjx-container").count() == 0
    links = turn.locator("a").evaluate_all("all => all.map(a => a.href)")
    assert set(links) == {"https://evil.example/p.png", "https://evil.example/auto"}
    assert book.page.evaluate("window.evil") is None
    assert [url for url in book.requests if "127.0.0.1" not in url] == []


def test_the_page_itself_takes_nothing_but_plain_elements(book: Notebook) -> None:
    told = {
        "id": 1,
        "said": "hi",
        "results": [],
        "reasoning": [],
        "calls": [],
        "kept": True,
        "running": False,
        "meter": None,
        "answer": [
            {
                "html": "<p onclick='window.evil=1' class='x'>a<img src='/api/evil' "
                "onerror='window.evil=2'><script>window.evil=3</script>"
                "<a href='javascript:window.evil=4'>b</a><a href='https://x.example'>c</a></p>"
            }
        ],
    }
    book.requests.clear()
    html = book.page.evaluate(DRIVE, [source(), [told], []])["html"]
    assert '<p>a<a target="_blank" rel="noopener noreferrer">b</a>' in html
    assert "evil" not in html and "<img" not in html
    assert book.page.evaluate("window.evil") is None
    assert [url for url in book.requests if "evil" in url] == []


# --- what it says of itself -------------------------------------------------------------------

SAY = """async ([source, state, live, steps]) => {
    const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const { default: widget } = await import(url);
    const handlers = [];
    let asked;
    const model = {
        get: (name) => state[name],
        on: (name, handler) => name === "msg:custom" && handlers.push(handler),
        off: () => {},
        send: ({ id }) => { asked = id; },
        widget_manager: { get_model: async () => ({ comm_live: live }) },
    };
    const el = document.createElement("div");
    document.body.append(el);
    const end = widget.render({ model, el });
    await new Promise((resolve) => setTimeout(resolve));
    const status = () => el.querySelector(".mlxnb-status").textContent;
    const box = el.querySelector("footer textarea");
    const said = [status()];
    for (const told of steps) {
        if (typeof told === "string") {
            box.value = told;
            box.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
        } else {
            if (told.kind === "refused") told.request = asked;
            handlers.forEach((handler) => handler(told));
        }
        said.push(status());
    }
    const html = el.querySelector(".mlxnb-log").innerHTML;
    end();
    el.remove();
    return [said, html];
}"""


def says(
    book: Notebook, *steps: Any, state: dict[str, Any] | None = None, live: bool = True
) -> tuple[list[str], str]:
    """What the page says after each step, and its log: a kernel's message, or a user's text."""
    said, html = book.page.evaluate(SAY, [source(), state or {}, live, [*steps]])
    return said[1:] if steps else said, html


def shown_turn(session: str = "s", **exchange: Any) -> dict[str, Any]:
    return {
        "kind": "transcript",
        "session": session,
        "model": "m",
        "busy": False,
        "exchanges": [{**EXCHANGE, **exchange}] if exchange else [],
    }


def ended_turn(**exchange: Any) -> dict[str, Any]:
    return {"kind": "exchange", "busy": False, "exchange": {**EXCHANGE, **exchange}}


EXCHANGE: dict[str, Any] = {
    **{"id": 1, "said": "hi", "results": [], "reasoning": [], "calls": [], "answer": []},
    **{"kept": True, "running": False, "meter": None},
}
BUSY = {"kind": "busy", "busy": True}


@pytest.mark.parametrize(
    ("meter", "status"),
    [
        ({"end": ""}, "The answer is complete."),
        ({"end": "cut at max_tokens"}, "The answer has ended: cut at max_tokens."),
        ({"end": "stopped; not seen"}, "The answer has ended: stopped; not seen."),
        ({"end": "failed", "problem": "it broke"}, "it broke"),
    ],
)
def test_the_status_agrees_with_the_meter(
    book: Notebook, meter: dict[str, Any], status: str
) -> None:
    assert says(book, ended_turn(meter=meter))[0] == [status]


def test_another_session_begins_without_a_status(book: Notebook) -> None:
    steps = (shown_turn("one"), ended_turn(), shown_turn("one", said="hi"), shown_turn("two"))
    assert says(book, *steps)[0] == ["", *["The answer is complete."] * 2, ""]


def test_why_a_message_was_not_sent_stays_as_long_as_it_is_in_the_box(book: Notebook) -> None:
    refused = {"kind": "refused", "reason": "the session answers"}
    said, _ = says(book, shown_turn(), BUSY, "keep", refused, ended_turn(), BUSY, ended_turn())
    assert said[3:] == ["Not sent: the session answers"] * 4
    said, _ = says(book, shown_turn(), "keep", refused, "again", {"kind": "taken"}, BUSY)
    assert said[-1] == "Answering …"


@pytest.mark.parametrize(
    ("save", "begin"), [(True, "This is what was saved"), (False, "Nothing of this chat is saved")]
)
def test_without_a_kernel_it_says_what_was_saved(book: Notebook, save: bool, begin: str) -> None:
    said, _ = says(book, state={"save": save}, live=False)
    assert said == [f"{begin}: its kernel is gone. Run the cell to go on."]


def test_a_meters_bar_has_the_origins(book: Notebook) -> None:
    counts = {"cached": 30, "computed": 5, "generated": 2}
    bars = {
        "hot memory computed generated": {**counts, "origins": {"hot": 20, "memory": 10}},
        "cached computed generated": counts,
        "": {"end": "failed"},
    }
    for names, meter in bars.items():
        html = says(book, ended_turn(meter=meter))[1]
        found = re.findall(r'class="mlxnb-(\w+)" style="flex-grow: (\d+);"', html)
        assert " ".join(name for name, _ in found) == names
        assert sum(int(tokens) for _, tokens in found) == (37 if names else 0)
        assert ("mlxnb-bar" in html) is bool(names)


# --- a kernel that is busy -------------------------------------------------------------------


def test_it_works_while_a_cell_runs_that_made_the_widget_speak(book: Notebook) -> None:
    book.run("s = session('while busy', 'One.')")
    shown = Chat(book.run("widget = mlxnb.chat(s)\nwidget"))
    flag = Path(out(book.run("flag = pathlib.Path(tempfile.mkdtemp()) / 'go'; print(flag)")))
    cell = book.start(
        "widget.send({'kind': 'busy', 'busy': False})\nwhile not flag.exists(): time.sleep(0.05)"
    )
    expect(cell.locator(".jp-InputPrompt")).to_have_text("[*]:")
    shown.say("a")
    expect(shown.answers).to_have_text("One.")
    expect(cell.locator(".jp-InputPrompt")).to_have_text("[*]:")
    flag.touch()
    expect(cell.locator(".jp-InputPrompt")).not_to_have_text("[*]:")


@pytest.fixture(scope="module")
def queueing(lab: Lab, open_notebook: Callable[..., Notebook]) -> Notebook:
    """A notebook in a page that sends widgets' messages behind cells, as older JupyterLabs do."""
    plugin = "@jupyterlab/apputils-extension:kernels-settings"
    lab.set(plugin, commsOverSubshells="disabled")
    try:
        book = open_notebook()
    finally:
        lab.set(plugin)
    book.run(BEGIN)
    return book


def test_where_messages_queue_behind_a_cell_it_says_so_and_answers_then(
    queueing: Notebook,
) -> None:
    book = queueing
    book.run("s = session('queued', 'One.')")
    shown = Chat(book.run("mlxnb.chat(s)"))
    expect(shown.root.get_by_label("Session")).to_have_value("queued")
    flag = Path(out(book.run("flag = pathlib.Path(tempfile.mkdtemp()) / 'go'; print(flag)")))
    cell = book.start("while not flag.exists(): time.sleep(0.05)")
    expect(cell.locator(".jp-InputPrompt")).to_have_text("[*]:")
    shown.send("a")
    expect(shown.status).to_have_text(
        "The kernel is busy: your message is sent when the cell ends."
    )
    expect(shown.box).to_have_value("a")
    flag.touch()
    expect(shown.answers).to_have_text("One.")
    expect(shown.box).to_have_value("")
    expect(shown.status).to_have_text("The answer is complete.")


# --- the file, and pages that are loaded again ------------------------------------------------


def test_a_page_that_is_loaded_again_has_the_conversation(queueing: Notebook) -> None:
    book = queueing
    book.run("s = session('s', 'One two.', 'Two.')\nheld = gate('s', calls=8)")
    shown = Chat(book.run("mlxnb.chat(s)"))
    shown.send("a")
    expect(shown.answers).to_have_text(re.compile("^One"))
    book.saved()
    book.open()
    shown = Chat(book.page.locator(".jp-Cell:has(.mlxnb-chat)").last)
    expect(shown.answers).to_have_text(re.compile("^One"))
    book.run("held.open()")
    expect(shown.answers).to_have_text("One two.")
    expect(shown.meters).to_contain_text("generated")
    shown.say("b")
    expect(shown.answers).to_have_text(["One two.", "Two."])


def test_a_saved_transcript_is_read_without_the_kernel(queueing: Notebook) -> None:
    book = queueing
    book.run("kept = session('kept', 'Told *you*.')")
    book.run("lost = session('lost', '.drow terceS'[::-1])")
    shown = Chat(book.run("mlxnb.chat(kept, save=True)"))
    unsaved = Chat(book.run("mlxnb.chat(lost)"))
    shown.say("a question")
    unsaved.say("private words")
    unsaved.say("more of them")
    unsaved.box.fill("a draft")
    expect(shown.answers).to_have_text("Told you.")
    copy = book.page.locator(".mlxnb-copy", has_text="Saved transcript, 1 turn")
    expect(copy).to_be_attached()
    expect(copy).to_be_hidden()
    expect(unsaved.answers).to_have_text(["Secret word."] * 2)
    saved = book.saved()
    for words in ("private words", "more of them", "Secret word", "a draft"):
        assert words not in saved
    state = json.loads(saved)["metadata"]["widgets"]
    assert "a question" in json.dumps(state) and "Told <em>you</em>" in json.dumps(state)
    book.command("kernelmenu:shutdown")
    book.open()
    again = book.page.locator(".mlxnb-chat", has_text="a question")
    expect(again.locator(".mlxnb-answer em")).to_have_text(["you"])
    expect(again.get_by_role("status").first).to_contain_text("its kernel is gone")
    expect(again.get_by_role("textbox")).to_have_count(0)
    expect(again.get_by_role("button", name="Regenerate")).to_have_count(0)
    expect(copy).to_be_hidden()
    # JupyterLab shows no widget at all where no kernel can be started
    book.command("kernelmenu:shutdown")
    book.without_kernel()
    expect(copy.get_by_text("a question")).to_be_visible()
    expect(copy.locator("em")).to_have_text("you")
    expect(copy.locator("em")).to_be_visible()
    output = book.page.locator(".jp-OutputArea", has=copy).first
    expect(output.get_by_text("Loading widget")).to_have_count(1)
    expect(output.get_by_text("Loading widget")).to_be_hidden()


# --- long answers ----------------------------------------------------------------------------

DRIVE = """async ([source, exchanges, messages]) => {
    const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const { default: widget } = await import(url);
    const handlers = [];
    const model = {
        get: () => undefined,
        on: (name, handler) => name === "msg:custom" && handlers.push(handler),
        off: () => {},
        send: () => {},
    };
    const el = document.createElement("div");
    el.style = "position: fixed; top: 0; left: 0; width: 800px; z-index: 9999";
    document.body.append(el);
    const end = widget.render({ model, el });
    const hear = (told) => handlers.forEach((handler) => handler(told));
    hear({ kind: "transcript", session: "s", model: "m", busy: true, exchanges });
    const log = el.querySelector(".mlxnb-log");
    const times = messages.map((told) => {
        const begin = performance.now();
        hear(told);
        log.scrollHeight; // lays the page out
        return performance.now() - begin;
    });
    const found = { html: log.innerHTML, text: log.textContent, times };
    end();
    el.remove();
    return found;
}"""


def source() -> str:
    return (Path(chat_module.__file__).parent / "chat.js").read_text("utf-8")


def pieces(count: int) -> list[str]:
    """An answer of so many words, with paragraphs, lists and code."""
    made = []
    for number in range(count):
        end = " "
        if number % 40 == 39:
            end = ("\n\n", "\n\n- ", "\n\n```py\n", "\n```\n")[number // 40 % 4]
        made.append(f"w{number}{end}")
    return made


def test_10000_tokens_cost_the_page_the_same_each(book: Notebook) -> None:
    answer, messages = Blocks(), list[dict[str, Any]]()
    for number, piece in enumerate(pieces(10_000)):
        answer.feed(piece)
        if number % 10 == 9:
            messages.append({"kind": "stream", "id": 1, "answer": answer.news()})
    told = {"id": 1, "said": "a", "results": [], "reasoning": [], "answer": [], "calls": []}
    told |= {"kept": False, "running": True, "meter": None}
    found = book.page.evaluate(DRIVE, [source(), [told], messages])
    words = re.findall(r"w\d+", found["text"])
    assert words == [f"w{n}" for n in range(10_000)]
    fifth = len(messages) // 5
    first, last = (
        sorted(part)[fifth // 2] for part in (found["times"][:fifth], found["times"][-fifth:])
    )
    assert last < 3 * first + 1, (first, last)


TALK = """
from mlxnb.engine.events import Piece
from mlxnb.records.turn import Turn
from mlxnb.sessions.local_session import LocalSession
from mlxnb.sessions.reply import Reply
class Spoken(Reply):
    turn_id = "spoken"
    def cancel(self): pass
    def _events(self):
        words = []
        for n in range(10_000):
            words.append(f"w{n}" + ("\\n\\n" if n % 50 == 49 else " "))
            yield Piece("text", words[-1])
            time.sleep(0.0002)
        self.turn = Turn("spoken", "".join(words), finish_reason="cancelled")
class Talker(LocalSession):
    def reply(self, text, source="python", **sampling):
        return Spoken()
s = session("talker", "x")
s.__class__ = Talker
"""


def test_10000_tokens_of_a_fast_model_arrive_whole_without_a_rate_warning(
    book: Notebook, lab: Lab
) -> None:
    book.run(TALK)
    shown = Chat(book.run("mlxnb.chat(s)"))
    turn = shown.say("a")
    words = re.findall(r"w\d+", turn.locator(".mlxnb-answer").inner_text())
    assert words == [f"w{n}" for n in range(10_000)]
    assert "rate exceeded" not in lab.log and "limit" not in shown.cell.inner_text()
