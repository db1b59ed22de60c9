"""What is drawn is what the frames say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib import colors, pyplot
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

import mlxnb
from mlxnb import plot
from mlxnb.errors import InvalidOption
from mlxnb.records.colours import ORIGINS, PHASES
from mlxnb.records.phase_row import PhaseRow
from mlxnb.records.turn import Turn

from . import made

TURNS = made.turns(
    made.turn(1, 100, 0),
    made.turn(2, 130, 110, hot_tokens=110),
    made.turn(3, 90, 64, disk_tokens=16, hot_tokens=0),
)
SPANS = [
    PhaseRow("pre_inference", 0.0, 0.1, 0),
    PhaseRow("prefill", 0.1, 0.5, 512),
    PhaseRow("prefill", 0.5, 0.7, 88),
    PhaseRow("decode", 0.7, 0.8, 1),
    PhaseRow("decode", 0.8, 0.9, 1),
]


def bars(ax: Axes, label: str) -> list[Any]:
    """The rectangles of the layer with that label, in order."""
    found = [c for c in ax.containers if c.get_label() == label]
    return [patch for container in found for patch in container]


def is_fill(patch: Any, fill: str) -> bool:
    return colors.to_hex(patch.get_facecolor()) == fill


def drawn(ax: Axes) -> Axes:
    """Drawn to the end: what cannot be drawn warns then, and warnings are errors."""
    ax.figure.canvas.draw()
    return ax


# --- turns ------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", PHASES)
def test_each_phase_is_as_high_as_its_column(phase: str) -> None:
    ax = drawn(plot.turns(TURNS))
    layer = bars(ax, phase.replace("_", "-"))
    assert [bar.get_height() for bar in layer] == pytest.approx(TURNS[f"{phase}_s"].tolist())
    assert all(is_fill(bar, PHASES[phase].fill) for bar in layer)


def test_phases_stand_upon_one_another() -> None:
    ax = plot.turns(TURNS)
    for low, high in pairwise(bars(ax, phase.replace("_", "-")) for phase in PHASES):
        tops = [bar.get_y() + bar.get_height() for bar in low]
        assert [bar.get_y() for bar in high] == pytest.approx(tops)


def test_turns_are_named_and_axes_have_units() -> None:
    ax = plot.turns(TURNS)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["t1", "t2", "t3"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("turn", "time (s)")


def test_of_many_turns_every_few_are_named_and_all_are_drawn() -> None:
    ax = drawn(plot.turns(made.turns(*(made.turn(n, 10) for n in range(1, 101)))))
    assert len(bars(ax, "prefill")) == 100
    assert len(ax.get_xticks()) <= 24


# --- reuse ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "heights", "fill"),
    [
        ("hot", [0, 110, 0], ORIGINS["hot"].fill),
        ("memory", [0, 0, 48], ORIGINS["memory"].fill),
        ("disk", [0, 0, 16], ORIGINS["disk"].fill),
        ("computed", [100, 20, 26], ORIGINS["computed"].fill),
    ],
)
def test_prompts_are_cut_by_where_their_tokens_came_from(
    label: str, heights: list[int], fill: str
) -> None:
    layer = bars(plot.reuse(TURNS), label)
    assert [bar.get_height() for bar in layer] == heights
    assert all(is_fill(bar, fill) for bar in layer)


def test_a_narrow_frame_is_drawn_too() -> None:
    ax = plot.reuse(TURNS[["turn_id", "cached_tokens", "prefill_tokens", "reuse"]])
    assert [bar.get_height() for bar in bars(ax, "memory")] == [0, 110, 64]


def test_the_reused_share_stands_above_each_bar() -> None:
    ax = plot.reuse(TURNS)
    assert [text.get_text() for text in ax.texts] == ["0%", "85%", "71%"]
    assert [text.xy for text in ax.texts] == [(0, 100), (1, 130), (2, 90)]
    assert ax.get_ylabel() == "prompt (tokens)"


# --- timeline ---------------------------------------------------------------------------------


def spans(ax: Axes) -> list[list[tuple[float, float]]]:
    """For each line of a timeline its spans: start and end in seconds."""
    lines = [c for c in ax.collections if isinstance(c, PolyCollection)]
    return [
        [(path.vertices[:, 0].min(), path.vertices[:, 0].max()) for path in line.get_paths()]
        for line in lines
    ]


def test_a_timeline_has_a_span_a_row() -> None:
    ax = drawn(plot.timeline(made.timeline(PhaseRow("resolve", 0.1, 0.1, 0), *SPANS)))
    found = [instant for line in spans(ax) for span in line for instant in span]
    assert found == pytest.approx([at for row in SPANS for at in (row.start_s, row.end_s)])
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "pre-inference",
        "prefill",
        "decode",
    ]
    assert ax.get_xlabel() == "time since arrival (s)"


def test_a_timeline_sums_tokens() -> None:
    ax = plot.timeline(made.timeline(*SPANS))
    assert [text.get_text() for text in ax.texts] == ["600 tokens", "2 tokens"]


# --- tree -------------------------------------------------------------------------------------


def boxes(ax: Axes, label: str) -> list[tuple[float, float, float]]:
    """Start, end and height in lanes of the pieces of that label."""
    return sorted(
        (bar.get_x(), bar.get_x() + bar.get_width(), round(bar.get_height() + 0.12))
        for bar in bars(ax, label)
    )


def test_what_chains_share_stands_across_them() -> None:
    ax = drawn(plot.tree(made.prefix(*made.cache())))
    assert boxes(ax, "memory") == [(0, 48, 2), (48, 96, 1)]
    assert boxes(ax, "disk") == [(48, 112, 1)]
    assert boxes(ax, "hot") == [(0, 70, 1)]
    assert ax.get_xlabel() == "position (tokens)"


def test_live_kv_is_named_by_its_session() -> None:
    ax = plot.tree(made.prefix(*made.cache()))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["anna"]
    assert list(ax.get_yticks()) == [0.5]


def test_only_the_block_that_goes_next_is_hatched() -> None:
    ax = plot.tree(made.prefix(*made.cache()))
    assert boxes(ax, "goes next") == [(80, 96, 1)]
    fixed = plot.tree(made.prefix(*made.cache(), wide=False))
    assert bars(fixed, "goes next") == []


def test_a_pinned_block_frames_all_before_it() -> None:
    rows = [*made.chain("a", None, 0, 2), made.block("a2", "a1", 32, pinned=True)]
    ax = plot.tree(made.prefix(*rows, made.block("a3", "a2", 48)))
    assert boxes(ax, "pinned") == [(0, 48, 1)]


def test_of_very_many_chains_those_in_memory_are_drawn() -> None:
    rows = [made.block(f"d{n}", None, 0, tier="disk") for n in range(200)]
    rows += [made.block(f"m{n}", None, 0) for n in range(5)]
    ax = drawn(plot.tree(made.prefix(*rows)))
    assert ax.get_ylim()[0] == 60
    assert ax.get_title(loc="right") == "145 more chains are not shown"
    assert len(boxes(ax, "memory")) == 5 and len(boxes(ax, "disk")) == 55


def test_a_checkpoint_is_a_mark_at_its_position() -> None:
    ax = plot.tree(made.prefix(*made.cache()))
    assert [list(line.get_xdata()) for line in ax.lines] == [[48]]


# --- log-probabilities ------------------------------------------------------------------------


def test_bars_are_probabilities_of_what_was_taken_and_dots_the_others() -> None:
    ax = drawn(plot.logprobs(made.logprobs([("a", 0.9), ("b", 0.05)], [(" c", 0.5), ("d", 0.25)])))
    assert [bar.get_height() for bar in bars(ax, "taken")] == pytest.approx([0.9, 0.5])
    assert list(ax.lines[0].get_ydata()) == pytest.approx([0.05, 0.25])
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["a", "·c"]
    assert ax.get_ylabel() == "probability (0–1)"


@pytest.mark.parametrize("turn", ["t2", None, 5])
def test_only_a_turn_itself_has_log_probabilities(turn: Any) -> None:
    with pytest.raises(InvalidOption, match="the turn itself"):
        plot.logprobs(turn)


def test_axes_are_axes() -> None:
    with pytest.raises(InvalidOption, match="ax is matplotlib's Axes, not int"):
        plot.turns(made.turns(made.turn(1, 5)), ax=5)  # type: ignore[arg-type]


def test_any_token_can_be_drawn() -> None:
    texts = ["$x$", "\n", "日本", "🙂", "\x1b[2J", "", "a_b^c", "\\frac"]
    drawn(plot.logprobs(made.logprobs(*([(text, 0.5)] for text in texts))))


def test_a_turn_without_log_probabilities_says_how_to_get_them() -> None:
    with pytest.raises(InvalidOption, match=r"send\(text, logprobs=5\)"):
        plot.logprobs(Turn("t1"))


# --- all --------------------------------------------------------------------------------------

EMPTY: list[tuple[Callable[..., Axes], Any]] = [
    (plot.turns, TURNS.iloc[:0]),
    (plot.reuse, TURNS.iloc[:0]),
    (plot.timeline, made.timeline()),
    (plot.tree, made.prefix()),
    (plot.logprobs, made.logprobs()),
]
FULL: list[tuple[Callable[..., Axes], Any]] = [
    (plot.turns, TURNS),
    (plot.reuse, TURNS),
    (plot.timeline, made.timeline(*SPANS)),
    (plot.tree, made.prefix(*made.cache())),
    (plot.logprobs, made.logprobs([("a", 0.9), ("b", 0.05)])),
]


@pytest.mark.parametrize(("draw", "frame"), EMPTY)
def test_an_empty_frame_gives_labelled_axes(draw: Callable[..., Axes], frame: Any) -> None:
    ax = drawn(draw(frame))
    assert ax.get_xlabel() and not ax.containers and not ax.collections
    assert len(ax.texts) == 1


@pytest.mark.parametrize(("draw", "frame"), FULL)
def test_given_axes_are_drawn_on(draw: Callable[..., Axes], frame: Any) -> None:
    figure, ax = pyplot.subplots()
    assert draw(frame, ax=ax) is ax
    assert pyplot.get_fignums() == [figure.number]


@pytest.mark.parametrize("draw", [call for call, _ in FULL])
def test_another_frame_is_refused_before_a_figure_is_made(draw: Callable[..., Axes]) -> None:
    import pandas as pd

    with pytest.raises(InvalidOption, match="the frame has no column '"):
        draw(pd.DataFrame({"x": [1]}))
    assert pyplot.get_fignums() == []


@pytest.mark.parametrize(("draw", "frame"), FULL)
def test_all_that_is_not_on_a_fill_is_seen_on_a_dark_page(
    draw: Callable[..., Axes], frame: Any
) -> None:
    with pyplot.style.context("dark_background"):
        ax = drawn(draw(frame))
        inks = {text.get_color() for text in [*ax.texts, ax.xaxis.label]}
        inks |= {line.get_color() for line in ax.lines}
    assert {colors.to_hex(ink) for ink in inks} == {"#ffffff"}


def test_none_is_the_engine_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    class Engine:
        """Has frames, and is asked in the way that says so."""

        def turns(self, wide: bool = False) -> Any:
            return TURNS

        def prefix_cache(self, show_text: bool | None = None, wide: bool = False) -> Any:
            return made.prefix(*made.cache(), wide=wide)

        def timeline(self, turn: Any = None) -> Any:
            return made.timeline(*(SPANS if turn is None else SPANS[:1]))

    monkeypatch.setattr(mlxnb, "engine", Engine)
    assert len(bars(plot.turns(), "prefill")) == 3
    assert len(bars(plot.reuse(), "computed")) == 3
    assert boxes(plot.tree(), "goes next")
    assert len(spans(plot.timeline())) == 3
    assert len(spans(plot.timeline("t1"))) == 1


WITHOUT = """
import sys
sys.modules["matplotlib"] = None
import mlxnb
assert "pandas" not in sys.modules
try:
    mlxnb.plot.turns(None)
except ImportError as error:
    print(error)
"""


def test_without_matplotlib_the_extra_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "plots need matplotlib: pip install 'mlxnb[plot]'\n", done.stderr
