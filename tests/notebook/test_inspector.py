"""What the inspector tells its front end is what the engine's frames say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from host.remote.attached import Attached

import mlxnb
from mlxnb.errors import MlxnbError, UnknownTurn
from mlxnb.notebook.widgets import inspection
from mlxnb.notebook.widgets.inspector import ENDED, Inspector
from mlxnb.records.colours import ORIGINS
from mlxnb.records.turn import Turn
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.session import Session

from .cells import Cells

SYSTEM = "You are the guide of a small museum by the river, and you answer in one short sentence."


@pytest.fixture
def anna(engine: LocalEngine) -> Session:
    """A session with two turns."""
    session = engine.session(system=SYSTEM, name="anna")
    session.send("Hello", max_tokens=4)
    session.send("And now?", max_tokens=4, logprobs=3)
    return session


@pytest.fixture
def inspector(engine: LocalEngine, anna: Session) -> Iterator[Inspector]:
    made = Inspector(engine, anna.last)
    yield made
    made.close()


def tell(inspector: Inspector, **asked: Any) -> str:
    """Send what a button sends; what is said then."""
    inspector._handle_custom_msg(asked, [])
    return str(inspector.state["said"])


def painted(strip: dict[str, Any]) -> list[str]:
    """The origin of each token."""
    return [origin for origin, start, end in strip["runs"] for _ in range(start, end)]


# --- tokens -----------------------------------------------------------------------------------


def test_each_token_has_its_origin_and_the_counts_are_the_frames(
    engine: LocalEngine, inspector: Inspector
) -> None:
    frame, strip = engine.tokens(inspector.state["turn"]), inspector.state["strip"]
    assert painted(strip) == frame["origin"].tolist()
    assert strip["counts"] == dict(Counter(frame["origin"]))
    assert len(strip["counts"]) == 3
    assert strip["prompt"] == inspector._given.prompt_tokens


def test_each_token_has_its_id_text_role_and_message(
    engine: LocalEngine, inspector: Inspector
) -> None:
    frame, strip = engine.tokens(inspector.state["turn"]), inspector.state["strip"]
    assert strip["ids"] == frame["token_id"].tolist()
    assert strip["texts"] == frame["text"].tolist()
    places = [
        (role, message) for role, message, start, end in strip["spans"] for _ in range(start, end)
    ]
    assert [role for role, _ in places] == frame["role"].tolist()
    known = frame["message"].astype(object).where(frame["message"].notna(), None)
    assert [message for _, message in places] == known.tolist()


def test_the_first_difference_is_marked(engine: LocalEngine, anna: Session) -> None:
    other = engine.session(system=SYSTEM).send("Howdy", max_tokens=2)
    frame, strip = engine.tokens(other), Inspector(engine, other).state["strip"]
    assert frame["position"][frame["diverged"]].tolist() == [strip["diverged"]]


def test_a_turn_without_a_difference_marks_none(engine: LocalEngine, inspector: Inspector) -> None:
    assert not engine.tokens(inspector.state["turn"])["diverged"].any()
    assert inspector.state["strip"]["diverged"] is None


def test_texts_and_ids_of_clients_turns_are_not_told(engine: LocalEngine) -> None:
    session = engine.session(name="client")
    turn = session.reply("secret words", "responses", max_tokens=3, logprobs=2).result()
    hidden, shown = Inspector(engine, turn), Inspector(engine, turn, show_text=True)
    assert hidden.state["strip"]["ids"] is hidden.state["strip"]["texts"] is None
    assert hidden.state["alternatives"] == {}
    assert painted(hidden.state["strip"]) == painted(shown.state["strip"])
    assert "secret" not in str(hidden.state) and "secret" not in hidden._repr_html_()
    assert "secret words" in "".join(shown.state["strip"]["texts"])
    assert len(shown.state["alternatives"]) == 3


def test_tokens_that_are_not_kept_are_missed_without_harm(
    engine: LocalEngine, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dropped(turn: str, show_text: bool | None = None) -> None:
        raise UnknownTurn(f"the tokens of turn {turn!r} are not kept any more")

    monkeypatch.setattr(engine, "tokens", dropped)
    assert "not kept any more" in tell(inspector, do="refresh")
    assert inspector.state["strip"] is None
    assert inspector.state["timeline"]


# --- alternatives -----------------------------------------------------------------------------


def test_alternatives_are_the_turns_log_probabilities(inspector: Inspector) -> None:
    frame, told = inspector._given.logprobs, inspector.state["alternatives"]
    assert list(told) == ["0", "1", "2", "3"]
    for place, others in told.items():
        own = frame[frame["position"] == int(place)].sort_values("rank")
        assert others == own[["token", "logprob", "rank", "taken"]].to_numpy().tolist()


def test_a_sessions_last_turn_has_them_by_its_id_too(engine: LocalEngine, anna: Session) -> None:
    assert anna.last is not None
    assert len(Inspector(engine, anna.last.id).state["alternatives"]) == 4
    assert len(Inspector(engine).state["alternatives"]) == 4


# --- time -------------------------------------------------------------------------------------


def test_the_timeline_is_the_frame(engine: LocalEngine, inspector: Inspector) -> None:
    frame = engine.timeline(inspector.state["turn"])
    assert inspector.state["timeline"] == frame.to_numpy().tolist()
    assert sum(row[3] for row in inspector.state["timeline"] if row[0] == "decode") == 4


# --- the prefix cache -------------------------------------------------------------------------


@pytest.fixture
def shared(engine: LocalEngine, anna: Session) -> Inspector:
    """An inspector of a cache whose blocks two sessions have shared."""
    for name in ("ben", "cleo"):
        engine.session(system=SYSTEM, name=name).send(f"I am {name}", max_tokens=2)
    return Inspector(engine)


def test_all_rows_and_bytes_of_the_cache_are_in_its_pieces(
    engine: LocalEngine, shared: Inspector
) -> None:
    frame, pieces = engine.prefix_cache(wide=True), shared.state["tree"]
    assert sum(piece["rows"] for piece in pieces) == len(frame) == shared.state["cache"]["rows"]
    assert sum(piece["bytes"] for piece in pieces) == frame["bytes"].sum()
    assert frame["bytes"].sum() == shared.state["cache"]["memory"] > 0
    assert shared.state["cache"]["disk"] == 0
    assert {"hot", "kv"} <= {piece["kind"] for piece in pieces}
    owners = frame["owner"][frame["owner"] != ""].tolist()
    assert [piece["owner"] for piece in pieces if piece["owner"]] == owners


def test_pieces_stand_before_those_behind_them(shared: Inspector) -> None:
    for one, after in pairwise(shared.state["tree"]):
        assert after["depth"] <= one["depth"] + 1


def test_more_pieces_than_are_shown_are_counted(
    engine: LocalEngine, shared: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = shared.state["cache"]["pieces"]
    monkeypatch.setattr(inspection, "RUNS", 1)
    shared.refresh()
    assert len(shared.state["tree"]) == 1 < shared.state["cache"]["pieces"] == every


def test_a_button_pins_and_unpins(engine: LocalEngine, shared: Inspector) -> None:
    piece = next(p for p in shared.state["tree"] if p["kind"] == "kv")
    for pinned in (True, False):
        assert tell(shared, do="pin", block=piece["last"], pinned=pinned) == ""
        frame = engine.prefix_cache()
        assert frame["pinned"][frame["block_id"] == piece["last"]].tolist() == [pinned]
        told = next(p for p in shared.state["tree"] if p["last"] == piece["last"])
        assert told["pinned"] is pinned


def test_a_button_evicts(engine: LocalEngine, shared: Inspector) -> None:
    piece = next(p for p in shared.state["tree"] if p["kind"] == "kv")
    assert tell(shared, do="evict", block=piece["first"]) == ""
    assert piece["first"] not in engine.prefix_cache()["block_id"].tolist()
    assert piece["first"] not in [p["first"] for p in shared.state["tree"]]


def test_a_row_that_is_gone_is_said_and_goes(engine: LocalEngine, shared: Inspector) -> None:
    piece = next(p for p in shared.state["tree"] if p["kind"] == "kv")
    engine.evict(piece["first"])
    assert piece["first"][:8] in tell(shared, do="evict", block=piece["first"])
    assert piece["first"] not in [p["first"] for p in shared.state["tree"]]


def test_memory_and_disk_are_counted_apart(
    engine: LocalEngine, shared: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = engine.prefix_cache(wide=True)
    frame.loc[frame.index[-1], ["tier", "bytes"]] = ["disk", 7_000]
    monkeypatch.setattr(engine, "prefix_cache", lambda *_, **__: frame)
    shared.refresh()
    memory = int(frame["bytes"].sum()) - 7_000
    assert shared.state["cache"].items() >= {"memory": memory, "disk": 7_000}.items()
    said = f"{len(frame):,} rows, {memory:,} bytes in memory, 7,000 bytes on disk"
    assert said in Seen(shared._repr_html_()).text


def test_what_cannot_be_done_is_said_and_nothing_is_lost(
    engine: LocalEngine, shared: Inspector
) -> None:
    before = shared.state
    said = tell(shared, do="evict", block="nothing")
    assert "nothing" in said and "\n" not in said
    assert {**shared.state, "said": ""} == {**before, "said": ""}


@pytest.mark.parametrize(
    "asked",
    [{}, {"do": "unload"}, {"do": "pin", "block": 3, "pinned": True}, {"do": "look", "turn": None}],
)
def test_a_front_end_cannot_ask_for_anything_else(shared: Inspector, asked: dict[str, Any]) -> None:
    assert tell(shared, **asked) == "the inspector's front end asked for what it cannot do"


# --- which turn -------------------------------------------------------------------------------


def test_the_last_turns_can_be_chosen(engine: LocalEngine, inspector: Inspector) -> None:
    ids = engine.turns()["turn_id"].tolist()
    assert [name for name, _ in inspector.state["turns"]] == ids[::-1][: inspection.TURNS]
    assert tell(inspector, do="look", turn=ids[-2]) == ""
    assert inspector.state["turn"] == ids[-2]
    assert painted(inspector.state["strip"]) == engine.tokens(ids[-2])["origin"].tolist()


def test_a_turn_that_is_gone_leaves_what_is_shown(inspector: Inspector) -> None:
    shown = inspector.state["turn"]
    assert "t9999" in tell(inspector, do="look", turn="t9999")
    assert inspector.state["turn"] == shown and inspector.state["strip"] is not None


def test_refreshing_keeps_the_turn_and_what_is_known_of_it(
    engine: LocalEngine, inspector: Inspector
) -> None:
    before = inspector.state
    engine.session(name="later").send("Hi", max_tokens=2)
    tell(inspector, do="refresh")
    for name in ("turn", "strip", "alternatives"):
        assert inspector.state[name] == before[name]
    assert inspector.state["turns"][1:] == before["turns"][: inspection.TURNS - 1]


def test_an_engine_without_turns_shows_its_cache() -> None:
    engine = LocalEngine(budget=2**20)
    try:
        made = Inspector(engine)
        assert made.state["said"] == "no turns yet" and made.state["tree"] == []
        assert "no turns yet" in made._repr_html_()
        assert tell(made, do="refresh") == "no turns yet"
    finally:
        engine.close()


def test_an_unknown_turn_is_an_error(engine: LocalEngine, anna: Session) -> None:
    with pytest.raises(UnknownTurn, match="'x7'"):
        Inspector(engine, "x7")


def test_a_closed_engine_is_said(inspector: Inspector, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(wide: bool = False) -> None:
        raise MlxnbError("this engine\nwas closed")

    monkeypatch.setattr(inspector._engine, "turns", closed)
    assert tell(inspector, do="refresh") == "this engine was closed"


def test_inspect_is_of_the_engine_in_use(
    engine: LocalEngine, anna: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlxnb, "process_engine", lambda: engine)
    assert mlxnb.inspect().state["turn"] == anna.last.id
    assert repr(mlxnb.inspect(anna.last)) == f"Inspector(turn={anna.last.id!r})"


# --- over a host ------------------------------------------------------------------------------


@pytest.fixture
def remote(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attached]:
    """An engine behind a socket, with the tiny model."""
    monkeypatch.setenv("MLXNB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("MLXNB_CACHE", str(folder.parent / "cache"))
    made = Attached()
    made.load(folder, progress=False)
    yield made
    made.end()


def test_a_hosts_engine_is_inspected_alike(remote: Attached) -> None:
    turns = [
        remote.session(system=SYSTEM, name=name).send(f"I am {name}", max_tokens=3, logprobs=2)
        for name in ("anna", "ben")
    ]
    made = Inspector(remote, turns[1])
    frame = remote.tokens(turns[1])
    assert painted(made.state["strip"]) == frame["origin"].tolist()
    assert made.state["strip"]["texts"] == remote.local.tokens(turns[1].id)["text"].tolist()
    assert len(made.state["alternatives"]) == 3
    piece = next(p for p in made.state["tree"] if p["kind"] == "kv")
    assert tell(made, do="pin", block=piece["last"], pinned=True) == ""
    assert "pinned" in tell(made, do="evict", block=piece["first"])
    assert tell(made, do="pin", block=piece["last"], pinned=False) == ""
    assert tell(made, do="evict", block=piece["first"]) == ""
    assert piece["first"] not in remote.local.prefix_cache()["block_id"].tolist()


def test_it_goes_on_with_the_engine_in_use_when_its_own_has_ended(
    remote: Attached, folder: Path, engine: LocalEngine, anna: Session
) -> None:
    turn = remote.session(system=SYSTEM).send("hello", max_tokens=3)
    used: list[Any] = [remote]
    made = Inspector(remote, turn, now=lambda: used[-1])
    used.append(engine)
    assert tell(made, do="refresh") == "" and made.state["turn"] == turn.id
    engine_of_before = made._engine
    remote.end()
    assert tell(made, do="refresh") == ENDED
    assert (made.state["turn"], made._engine) == (anna.last.id, engine)
    assert engine_of_before is remote
    assert tell(made, do="refresh") == ""


# --- without widgets --------------------------------------------------------------------------


class Seen(HTMLParser):
    """The tags, attributes and texts of a page; an element that is not closed is an error."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.names: set[str] = set()
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_model_that_is_not_loaded_any_more_is_said(remote: Attached) -> None:
    turn = remote.session(system=SYSTEM).send("hello", max_tokens=3)
    made = Inspector(remote, turn)
    assert made.state["said"] == ""
    remote.unload(turn.model)
    assert tell(made, do="refresh") == (
        f"{turn.model} is not loaded: ids stand for the texts of its tokens"
    )
    assert made.state["strip"]["texts"][0].startswith("[")


def test_html_has_the_same_counts(inspector: Inspector) -> None:
    page = Seen(inspector._repr_html_()).text
    for origin, count in inspector.state["strip"]["counts"].items():
        assert f"{origin} {count:,}" in page
    assert f"{inspector.state['cache']['memory']:,} bytes in memory" in page
    assert "on disk" not in page


def test_bars_fill_their_line(inspector: Inspector) -> None:
    """What grows by less than 1 in all would leave a part of it empty."""
    page = inspector._repr_html_()
    shares = [int(share) for share in re.findall(r"flex:(\d+) 0 0", page)]
    strip, timeline = inspector.state["strip"], inspector.state["timeline"]
    assert shares[: len(strip["runs"])] == [end - start for _, start, end in strip["runs"]]
    seconds = sum(end - start for _, start, end, _ in timeline)
    assert sum(shares[len(strip["runs"]) :]) == pytest.approx(seconds * 1e6, abs=6)


def test_html_does_nothing_and_texts_stay_texts(engine: LocalEngine) -> None:
    hostile = "<img src=x onerror=alert(1)></details><script>x()</script>&lt;"
    turn = engine.session(system=hostile).send(hostile, max_tokens=2)
    page = Seen(Inspector(engine, turn)._repr_html_())
    assert page.tags <= {*["div", "span", "table", "tr", "th", "td", "details", "summary"]}
    assert page.names <= {"style", "title"}
    assert hostile in page.text


def test_html_of_a_long_prompt_is_short(engine: LocalEngine) -> None:
    turn = engine.session().send("long " * 4_000, max_tokens=1)
    assert turn.prompt_tokens > 10_000
    page = Inspector(engine, turn)._repr_html_()
    assert len(page) < 80_000 and "… and more" in page


def test_the_bundle_has_the_widget_and_html(inspector: Inspector) -> None:
    bundle, _ = inspector._repr_mimebundle_()
    assert bundle["text/plain"] == repr(inspector)
    assert bundle["text/html"] == inspector._repr_html_()
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == inspector.model_id


# --- the magic --------------------------------------------------------------------------------


def test_the_magic_takes_a_turn_or_a_variable(cells: Cells) -> None:
    cells.ok("%mlx_chat -s one -o held Hello")
    cells.ok("%mlx_chat -s one again")
    held: Turn = cells["held"]
    assert cells.ok("%mlx_inspect held").value.state["turn"] == held.id
    assert cells.ok(f"%mlx_inspect {held.id}").value.state["turn"] == held.id
    assert cells.ok("%mlx_inspect").value.state["turn"] != held.id


def test_the_magic_stores_the_widget(cells: Cells) -> None:
    cells.ok("%mlx_chat Hello")
    ran = cells.ok("%mlx_inspect -o kept")
    assert ran.value is None and ran.shown == []
    assert isinstance(cells["kept"], Inspector)


def test_the_magic_says_what_it_does_not_find(cells: Cells) -> None:
    cells.ok("%mlx_chat Hello")
    assert "x7" in cells.run("%mlx_inspect x7").mistake
    assert "unexpected" in cells.run("%mlx_inspect t1 t2").mistake


# --- what it is made of -----------------------------------------------------------------------


def test_the_front_end_makes_no_html_and_asks_nobody() -> None:
    parts = [Inspector._esm, Inspector._css]
    for text in map(str, parts):
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|eval\(|import\s|fetch|https?:", text
        )


def test_the_page_has_the_origins_in_the_tables_order() -> None:
    assert f"const ORIGINS = {json.dumps(list(ORIGINS))};" in str(Inspector._esm)


def test_loading_the_extension_does_not_load_widgets() -> None:
    script = (
        "import sys, IPython.core.interactiveshell as s, mlxnb\n"
        "mlxnb.load_ipython_extension(s.InteractiveShell.instance())\n"
        "print('anywidget' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "False\n", done.stderr
