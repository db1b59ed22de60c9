"""The inspector in a real JupyterLab: what is painted is what the frames say."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, expect

from mlxnb.records.colours import ORIGINS

from .lab import TESTS, Lab, Notebook

SETUP = """
import json, mlxnb
engine = mlxnb.engine()
engine.load("demo", progress=False)
SYSTEM = ("You work at the front desk of the River Museum. Answer visitors in one short sentence. "
          "The museum opens at ten in the morning and is closed on Mondays. A ticket costs eight "
          "euros. The old steam engine is on the ground floor.")
def ask(name, text, **options):
    session = engine.session(system=SYSTEM, name=name)
    return session.send(text, max_tokens=12, temperature=0, **options)
ask("anna", "How much is a ticket?")
ask("ben", "When do you open?")
seen = ask("eva", "Where is the old steam engine?", logprobs=4)
turn = ask("cleo", "Where is <img src=x onerror='window.hacked = 1'>?", logprobs=4)
"""
WIDGET = ".mlxnb-inspector"
NO_KERNEL = "() => !jupyterapp.shell.currentWidget.context.sessionContext.session?.kernel"


@pytest.fixture(scope="module")
def talked(notebook: Notebook) -> Notebook:
    """A notebook in which three visitors have asked; ``turn`` is the last one's."""
    notebook.run(SETUP)
    return notebook


def told(notebook: Notebook, expression: str) -> Any:
    """The value of an expression in the kernel, which has a JSON form."""
    cell = notebook.run(f"print(json.dumps({expression}))")
    output = cell.locator('[data-mime-type="application/vnd.jupyter.stdout"]')
    return json.loads(output.inner_text())


def shown(notebook: Notebook, source: str = "mlxnb.inspect(turn)") -> Locator:
    """An inspector that a cell shows."""
    widget = notebook.run(source).locator(WIDGET)
    expect(widget).to_be_visible()
    return widget


@pytest.fixture(scope="module")
def widget(talked: Notebook) -> Locator:
    return shown(talked)


def origins(notebook: Notebook) -> dict[str, int]:
    counts = told(notebook, "engine.tokens(turn)['origin'].value_counts().to_dict()")
    return {str(origin): int(count) for origin, count in counts.items()}


def attributes(found: Locator, name: str) -> list[str]:
    values: list[str] = found.evaluate_all("(all, name) => all.map((e) => e.dataset[name])", name)
    return values


# --- tokens -----------------------------------------------------------------------------------


def test_tokens_are_painted_as_the_frame_counts_them(talked: Notebook, widget: Locator) -> None:
    wanted = origins(talked)
    assert len(wanted) == 3
    assert Counter(attributes(widget.locator(".strip [data-at]"), "origin")) == wanted
    pieces = widget.locator(".overview [data-origin]")
    lengths = Counter[str]()
    for origin, tokens in zip(
        attributes(pieces, "origin"), attributes(pieces, "tokens"), strict=True
    ):
        lengths[origin] += int(tokens)
    assert lengths == wanted
    chips = widget.locator(".legend [data-origin]")
    counts = map(int, attributes(chips, "count"))
    assert dict(zip(attributes(chips, "origin"), counts, strict=True)) == wanted


def test_paint_is_of_the_one_table(talked: Notebook, widget: Locator) -> None:
    for origin in origins(talked):
        token = widget.locator(f'.strip [data-origin="{origin}"]').first
        painted = token.evaluate(
            "(e) => [getComputedStyle(e).backgroundColor, getComputedStyle(e).color]"
        )
        table = (ORIGINS[origin].fill, ORIGINS[origin].ink)
        assert [hexadecimal(colour) for colour in painted] == list(table)


def hexadecimal(colour: str) -> str:
    """``rgb(1, 2, 3)`` as ``#010203``."""
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", colour)[:3])


def test_texts_are_the_frames_and_do_nothing(talked: Notebook, widget: Locator) -> None:
    texts = told(talked, "engine.tokens(turn)['text'].tolist()")
    found = widget.locator(".strip [data-at]").evaluate_all(
        "(all) => all.map((e) => e.textContent)"
    )
    assert [text.replace("↵\n", "\n") for text in found] == [text or "∅" for text in texts]
    assert "<img src=x onerror=" in "".join(texts)
    assert widget.locator("img").count() == 0
    assert talked.page.evaluate("window.hacked === undefined")


def test_the_first_difference_is_marked(talked: Notebook, widget: Locator) -> None:
    frame = "engine.tokens(turn)"
    at = told(talked, f"{frame}['position'][{frame}['diverged']].tolist()")
    assert attributes(widget.locator(".strip .diverged"), "at") == [str(at[0])]
    expect(widget.locator(".legend button")).to_contain_text(f"at {at[0]}")
    assert widget.locator(".overview .parting").count() == 1


def test_keys_walk_over_the_tokens_and_say_what_they_are(talked: Notebook, widget: Locator) -> None:
    strip, chosen = widget.locator(".strip"), widget.locator('[aria-selected="true"]')
    ids = told(talked, "engine.tokens(turn)['token_id'].tolist()")
    strip.focus()
    for key, at in (("Home", 0), ("ArrowRight", 1), ("End", len(ids) - 1), ("ArrowLeft", -2)):
        talked.page.keyboard.press(key)
        at %= len(ids)
        assert attributes(chosen, "at") == [str(at)]
        expect(widget.locator(".detail")).to_contain_text(f"token {at} · id {ids[at]} · ")
        assert strip.get_attribute("aria-activedescendant") == chosen.get_attribute("id")
    cells = talked.page.locator(".jp-CodeCell").count()
    for _ in range(2):
        talked.page.keyboard.press("d")
    expect(widget.locator(".detail")).to_contain_text("the first that differs")
    assert talked.page.locator(".jp-CodeCell").count() == cells


def test_a_pointer_over_a_token_tells_of_it(talked: Notebook, widget: Locator) -> None:
    token = widget.locator('.strip [data-at="3"]')
    token.hover()
    expect(token).to_have_attribute("title", re.compile("^token 3 · id .* · system of message 0"))


def test_a_generated_token_shows_what_else_it_could_have_been(
    talked: Notebook, widget: Locator
) -> None:
    rows = told(
        talked,
        "turn.logprobs.query('position == 2').sort_values('rank')"
        "[['token', 'logprob', 'taken']].to_numpy().tolist()",
    )
    assert len(rows) == 4
    widget.locator('.strip [data-origin="generated"]').nth(2).click()
    lines = widget.locator(".alternatives tr[data-rank]")
    expect(lines).to_have_count(4)
    for line, (token, logprob, taken) in zip(lines.all(), rows, strict=True):
        cells = line.locator("td").all_inner_texts()
        assert cells[0].startswith(json.dumps(token, ensure_ascii=False))
        assert cells[0].endswith("(taken)") is taken
        assert cells[2] == f"{logprob:.3f}"


@pytest.mark.parametrize("theme", ["JupyterLab Dark", "JupyterLab Light"])
def test_texts_are_read_on_light_and_dark_pages(
    talked: Notebook, pictures: Path, theme: str
) -> None:
    talked.command("apputils:change-theme", theme=theme)
    expect(talked.page.locator("#jupyterlab-splash")).to_have_count(0)
    talked.page.set_viewport_size({"width": 1280, "height": 1400})
    widget = shown(talked, "mlxnb.inspect(seen)")
    page = widget.evaluate("(e) => getComputedStyle(document.body).backgroundColor")
    ink = widget.evaluate("(e) => getComputedStyle(e).color")
    light = sum(map(int, re.findall(r"\d+", ink)[:3])) > 3 * 128
    assert light is (theme == "JupyterLab Dark"), (ink, page)
    widget.locator('.strip [data-origin="generated"]').nth(2).click()
    if not light:
        widget.screenshot(path=pictures / "inspector.png")
    talked.page.set_viewport_size({"width": 1280, "height": 1000})


def test_ten_thousand_tokens_are_counted_and_few_are_on_the_page(talked: Notebook) -> None:
    talked.run(
        f"import sys, tempfile; sys.path.insert(0, {str(TESTS)!r})\n"
        "from pathlib import Path\n"
        "from models.tiny import byte_level, config_of, save_folder\n"
        "vocabulary = byte_level('smollm')\n"
        "config = config_of('llama', vocabulary.get_vocab_size(), max_position_embeddings=50_000)\n"
        "tiny = save_folder(Path(tempfile.mkdtemp()) / 'tiny', config, vocabulary)\n"
        "engine.load(tiny, progress=False)\n"
        "chat = engine.session(str(tiny), name='long')\n"
        "chat.send('word ' * 2_000, max_tokens=2)\n"
        "long = chat.send('and again', max_tokens=2)"
    )
    widget = shown(talked, "mlxnb.inspect(long)")
    wanted = told(talked, "engine.tokens(long)['origin'].value_counts().to_dict()")
    total = sum(wanted.values())
    assert total > 10_000
    chips = widget.locator(".legend [data-origin]")
    counts = map(int, attributes(chips, "count"))
    assert dict(zip(attributes(chips, "origin"), counts, strict=True)) == wanted
    expect(widget.locator('.strip [data-at="0"]')).to_be_visible()
    assert widget.locator(".strip [data-at]").count() < 4_000
    widget.locator(".strip").focus()
    talked.page.keyboard.press("End")
    expect(widget.locator(f'.strip [data-at="{total - 1}"]')).to_be_visible()


def test_texts_of_clients_are_not_on_the_page(talked: Notebook) -> None:
    talked.run(
        "session = engine.session('demo', name='client')\n"
        "client = session.reply('secret', 'responses', max_tokens=2).result()"
    )
    widget = shown(talked, "mlxnb.inspect(client)")
    assert set(widget.locator(".strip [data-at]").all_text_contents()) == {"·"}
    assert "secret" not in widget.inner_html()


# --- time -------------------------------------------------------------------------------------


def test_the_timeline_has_a_span_a_row(talked: Notebook, widget: Locator) -> None:
    rows = told(talked, "engine.timeline(turn)[['phase', 'tokens']].to_numpy().tolist()")
    spans = widget.locator(".timeline [data-phase]")
    tokens = map(int, attributes(spans, "tokens"))
    assert [*map(list, zip(attributes(spans, "phase"), tokens, strict=True))] == rows


# --- the prefix cache -------------------------------------------------------------------------


def blocks(notebook: Notebook) -> dict[str, bool]:
    """The ids of what is in the cache, and whether they are pinned."""
    frame = "engine.prefix_cache()[['block_id', 'pinned']]"
    return dict(told(notebook, f"{frame}.astype(object).to_numpy().tolist()"))


def test_the_tree_has_all_bytes_of_the_cache(talked: Notebook) -> None:
    widget = shown(talked)
    wanted = told(
        talked, "engine.prefix_cache().groupby('tier')['bytes'].sum().astype(int).to_dict()"
    )
    assert sum(map(int, attributes(widget.locator(".piece"), "bytes"))) == sum(wanted.values())
    for tier, name in (("memory", "in memory"), ("disk", "on disk")):
        if tier in wanted:
            said = f"{wanted[tier]:,} bytes {name}"
            expect(widget.locator("[data-rows]")).to_contain_text(said)


def test_buttons_pin_and_evict(talked: Notebook) -> None:
    widget = shown(talked)
    piece = widget.locator('.piece:has([data-origin="memory"])').first
    block = piece.get_attribute("data-block")
    assert block is not None and block in blocks(talked)
    piece.get_by_role("button", name="Pin").click()
    expect(widget.locator(".piece.pinned")).to_have_count(1)
    assert sum(blocks(talked).values()) == 1
    piece.get_by_role("button", name="Evict").click()
    expect(widget.locator("header .said")).to_contain_text("pinned")
    assert block in blocks(talked)
    widget.get_by_role("button", name="Unpin").click()
    expect(widget.locator(".piece.pinned")).to_have_count(0)
    evict = widget.locator(f'[data-block="{block}"]').get_by_role("button", name="Evict")
    evict.click()
    expect(widget.locator(f'[data-block="{block}"]')).to_have_count(0)
    assert block not in blocks(talked)


def test_keys_walk_over_the_pieces(talked: Notebook) -> None:
    widget = shown(talked)
    pieces = widget.locator(".piece")
    assert pieces.count() > 2
    pieces.first.focus()
    for key, at in (("ArrowDown", 1), ("End", pieces.count() - 1), ("Home", 0)):
        talked.page.keyboard.press(key)
        expect(pieces.nth(at)).to_be_focused()
        assert widget.locator('.piece[tabindex="0"]').count() == 1


def test_another_turn_is_chosen_and_focus_stays(talked: Notebook) -> None:
    widget = shown(talked)
    first = told(talked, "engine.turns()['turn_id'].tolist()")[0]
    chooser = widget.get_by_label("Turn", exact=True)
    chooser.focus()
    chooser.select_option(first)
    expect(widget.locator("dd").first).to_have_text(re.compile(rf"^{first} \("))
    expect(chooser).to_have_value(first)
    expect(chooser).to_be_focused()


def test_refresh_shows_what_came_later(talked: Notebook) -> None:
    widget = shown(talked)
    talked.run("later = ask('dora', 'Are dogs allowed?')")
    later = told(talked, "later.id")
    assert widget.locator(f'option[value="{later}"]').count() == 0
    widget.get_by_role("button", name="Refresh").click()
    expect(widget.locator(f'option[value="{later}"]')).to_have_count(1)


def test_it_works_while_a_cell_runs(talked: Notebook, tmp_path: Path) -> None:
    widget, go = shown(talked), tmp_path / "go"
    turns = widget.locator("option").count()
    cell = talked.start(f"fred = ask('fred', 'Hi')\nprint('asked')\n{wait_for(go)}")
    expect(cell.locator(".jp-OutputArea-output")).to_have_text("asked\n")
    widget.get_by_role("button", name="Refresh").click()
    expect(widget.locator("option")).to_have_count(turns + 1)
    expect(cell.locator(".jp-InputPrompt")).to_have_text("[*]:")
    expect(widget.get_by_role("button", name="Refresh")).to_be_focused()
    go.touch()
    expect(cell.locator(".jp-InputPrompt")).not_to_have_text("[*]:")


def wait_for(flag: Path) -> str:
    """What a cell runs until a file is there."""
    return f"import time, pathlib\nwhile not pathlib.Path({str(flag)!r}).exists(): time.sleep(0.02)"


# --- kernels that are busy or gone ------------------------------------------------------------


@pytest.fixture(scope="module")
def older(lab: Lab, open_notebook: Callable[..., Notebook]) -> Iterator[Notebook]:
    """A page that sends widgets' messages behind cells, and saves widgets with the notebook."""
    plugins = {
        "@jupyterlab/apputils-extension:kernels-settings": {"commsOverSubshells": "disabled"},
        "@jupyter-widgets/jupyterlab-manager:plugin": {"saveState": True},
    }
    for plugin, values in plugins.items():
        lab.set(plugin, **values)
    yield open_notebook()
    for plugin in plugins:
        lab.set(plugin)


def test_a_busy_kernel_is_waited_for_and_the_widget_says_so(
    older: Notebook, tmp_path: Path
) -> None:
    widget, go = shown(older, "import mlxnb\nmlxnb.inspect()"), tmp_path / "go"
    said = widget.locator("header .said")
    expect(said).to_have_text("no turns yet")
    older.start(wait_for(go))
    widget.get_by_role("button", name="Refresh").click()
    expect(said).to_have_text("asked the kernel …")
    go.touch()
    expect(said).to_have_text("no turns yet")
    expect(widget.get_by_role("button", name="Refresh")).to_be_focused()


def test_without_its_kernel_it_says_so_and_keeps_its_order(older: Notebook) -> None:
    book = older
    book.run(SETUP)
    widget = shown(book, "mlxnb.inspect(seen)")
    order = attributes(widget.locator(".legend [data-origin]"), "origin")
    assert order == [name for name in ORIGINS if name in order] and len(order) == 3
    book.saved()
    book.command("kernelmenu:shutdown")
    book.open()
    again = book.page.locator(WIDGET).last
    expect(again.locator("header .said")).to_contain_text("its kernel is gone")
    for name in ("Refresh", "Evict"):
        for button in again.get_by_role("button", name=name).all():
            expect(button).to_be_disabled()
    assert again.get_by_role("button", name="Evict").count() > 0
    assert attributes(again.locator(".legend [data-origin]"), "origin") == order
    again.locator(".strip [data-at]").first.click()
    expect(again.locator(".detail")).to_contain_text("token 0")


def test_a_kernel_that_ends_under_it_is_seen(older: Notebook) -> None:
    book = older
    widget = shown(book, "import mlxnb\nmlxnb.inspect()")
    book.command("kernelmenu:shutdown")
    book.page.wait_for_function(NO_KERNEL)
    refresh = widget.get_by_role("button", name="Refresh")
    if refresh.is_enabled():
        refresh.click()
    expect(widget.locator("header .said")).to_contain_text("its kernel is gone")
    expect(refresh).to_be_disabled()


# --- the page ---------------------------------------------------------------------------------


def test_nothing_is_asked_of_anybody_else(talked: Notebook, widget: Locator) -> None:
    hosts = {urlsplit(url).netloc for url in talked.requests if url.startswith("http")}
    assert hosts == {urlsplit(talked.lab.root).netloc}
