"""An answer as it is generated: decoded text in; visible text, reasoning and tool calls out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from mlxnb.records.turn import ToolCall
from mlxnb.text.blank import BlankHold
from mlxnb.text.reasoning import Kind, ReasoningSplitter
from mlxnb.text.tools import OpenCall, Parse, ToolReader, ToolRegion, new_call_id
from mlxnb.text.visible import VisibleText


@dataclass(frozen=True, slots=True)
class Piece:
    """What one token made known: some text, some reasoning, or a call.

    A call comes whole, as ``tool_call``. Where its arguments are constrained by a grammar it is
    announced by ``tool_start`` (``call`` has its id and name and no arguments yet), its arguments
    follow as ``tool_arguments`` (``text`` is a piece of their JSON), and ``tool_call`` ends it.
    """

    kind: Literal["text", "reasoning", "tool_start", "tool_arguments", "tool_call"]
    text: str = ""
    call: ToolCall | None = None


class AnswerMachine:
    """Separates the decoded text of one answer, piece by piece.

    The result is the same however the text is cut into pieces, and a piece costs time in its
    own length alone. Only what could still become a tag or a stop sequence is held back, and
    what proves to be none is let go in full.

    - Literal think tags never come out. Reasoning may come more than once.
    - A tool tag inside reasoning is reasoning, unless ``tool_in_reasoning``; a think tag inside
      a tool call is part of the call.
    - A call is held until it parses. One that does not, or that was cut off, is text, tags
      included. A call that is held to its tool's schema is told while it comes; if it is cut off
      then, it is neither call nor text.
    - Without ``tools`` the tags of tool calls are left out and what they enclose is text.
    - Stop sequences are sought in visible text alone, up to the first call; nothing follows one.

    Parameters
    ----------
    think
        Start and end tag of reasoning; None: the model does not reason.
    starts_in_reasoning
        The prompt has opened the think tag.
    tool_tags
        Start and end tag of a tool call; an empty end tag: the call ends with the answer.
    parse_tool
        Parser of what stands between them, see `mlxnb.text.tools.Parse`.
    tools
        The request's tools in the chat template's form; None or empty: none.
    stops
        Stop sequences; empty ones are dropped.
    tool_in_reasoning
        A call may start inside reasoning, which it ends (mlx-lm's own server reads so).
    markers
        Control strings that the model writes around its text; they are left out of it.
    new_id
        Makes the ids of calls.
    claim
        Whether the call whose start tag has just come is held to its tool's schema, so that its
        arguments can be told as they come; asked once a call.
    max_calls
        The answer ends with this many calls; None: as many as there are.

    Attributes
    ----------
    tool_calls
        The calls so far.
    suppressed_markup
        Tags of tool calls were left out, because the request has no tools.
    """

    def __init__(
        self,
        *,
        think: tuple[str, str] | None,
        starts_in_reasoning: bool,
        tool_tags: tuple[str, str] | None,
        parse_tool: Parse | None,
        tools: Sequence[Mapping[str, Any]] | None,
        stops: Sequence[str],
        tool_in_reasoning: bool = False,
        markers: Sequence[str] = (),
        new_id: Callable[[], str] = new_call_id,
        claim: Callable[[], bool] = lambda: False,
        max_calls: int | None = None,
    ) -> None:
        self.tool_calls: list[ToolCall] = []
        self.suppressed_markup = False
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._think = think
        self._tool_start, self._tool_end = tool_tags or ("", "")
        self._markers = tuple(markers)
        self._reader: ToolReader | None = None
        if tools and tool_tags:
            assert parse_tool is not None, "tool tags come with a parser"
            self._reader = ToolReader(tool_tags, parse_tool, tools, new_id)
        starts = self._reader.starts if self._reader is not None else (self._tool_start,)
        watch = (*starts, self._tool_end)
        self._splitter = ReasoningSplitter(
            think,
            starts_inside=starts_in_reasoning,
            watch=(*watch, *self._markers),
            watch_inside=watch if tool_in_reasoning else (),
        )
        self._visible = VisibleText(
            stops,
            thinks=think is not None,
            starts_in_reasoning=starts_in_reasoning,
            plain=think is None and self._reader is None,
        )
        self._thought = BlankHold()
        self.claim = claim
        self._max_calls = max_calls
        self._region: ToolRegion | None = None
        self._call: OpenCall | None = None  # of the region, where it is held to its schema
        self._in_markup = False  # behind a tool tag that was left out
        self._fed = 0  # characters of the raw stream
        self._at = 0  # place in it of the next run
        self._over = False

    # --- what is known so far ----------------------------------------------------------------

    @property
    def text(self) -> str:
        """The visible answer: all pieces of text, joined when asked for."""
        return _joined(self._text)

    @property
    def reasoning(self) -> str:
        """All pieces of reasoning, joined when asked for."""
        return _joined(self._reasoning)

    @property
    def in_reasoning(self) -> bool:
        """The next token continues reasoning."""
        return self._splitter.inside and self._region is None

    @property
    def stop_sequence(self) -> str | None:
        """The stop sequence that ended the answer, or None."""
        return self._visible.matched

    @property
    def complete(self) -> bool:
        """Nothing that follows will be part of the answer."""
        return self._over

    @property
    def visible_raw_length(self) -> int:
        """How much of the raw stream stands before the stop sequence, in characters.

        Without a match: all of it.
        """
        return self._fed if self._visible.matched is None else self._visible.cut_at

    # --- the stream --------------------------------------------------------------------------

    def feed(self, text: str) -> list[Piece]:
        """What the next piece of decoded text makes known; nothing after a stop sequence."""
        out: list[Piece] = []
        if not self._over:
            self._fed += len(text)
        while text and not self._over:
            text = self._scan(text, out) if self._region is None else self._hold(text, out)
        return out

    def finish(self, cut: bool) -> list[Piece]:
        """The answer has ended: what was held. ``cut``: by its length, a cancel or an error."""
        out: list[Piece] = []
        rest = ""
        while not self._over:
            if self._region is None:
                rest = self._scan(rest, out, last=True)
                if self._region is None and not rest:
                    break
            else:
                rest = self._hold(rest, out)
                if self._region is not None:
                    self._region.flush()
                    self._close(out, cut=cut)
        if not self._over:
            self._emit("text", self._visible.finish(), out)
        self._over = True
        return out

    def _scan(self, text: str, out: list[Piece], *, last: bool = False) -> str:
        """Read outside calls; returns what follows a tool tag, where there was one."""
        for kind, run in self._splitter.feed(text, last=last):
            if self._over:
                return ""
            if kind == "watched":
                self._meet(run, out)
            else:
                self._take(kind, run, out)
        return self._splitter.rest

    def _hold(self, text: str, out: list[Piece]) -> str:
        """Read inside a possible call; returns what follows it, when it has ended."""
        region = self._region
        assert region is not None, "text is held in a region"
        ended = region.feed(text)
        if self._call is not None and not region.false:
            self._tell(self._call, region.fresh, out)
        if not ended:
            return ""
        if region.false:
            self._region = None
            self._take_as_is(region.start, out)
        else:
            self._close(out)
        return region.rest

    def _take(self, kind: Kind, run: str, out: list[Piece]) -> None:
        at, self._at = self._at, self._at + len(run)
        if kind == "text":
            self._emit("text", self._visible.feed(run, at), out)
        elif kind == "reasoning":
            self._emit("reasoning", self._thought.feed(run), out)
        else:
            self._thought.drop()
            self._visible.skip(reasoning=True)

    def _take_as_is(self, run: str, out: list[Piece]) -> None:
        self._take("reasoning" if self._splitter.inside else "text", run, out)

    # --- tool calls --------------------------------------------------------------------------

    def _meet(self, tag: str, out: list[Piece]) -> None:
        """A tag that the splitter was told to watch for."""
        opens = tag == self._tool_start
        if self._reader is not None and tag in self._reader.starts:
            self._region = self._reader.open(tag)
            if not self._region.bare and self.claim():
                self._call = self._reader.begin()
        elif opens or tag in self._markers or self._closes(tag):
            self._skip(tag, suppressed=opens)
        else:
            self._take_as_is(tag, out)

    def _closes(self, tag: str) -> bool:
        """An end tag that is no text: of a tag that was left out, or once more after a call."""
        again = bool(self.tool_calls) and self._visible.waiting
        return tag == self._tool_end and (self._in_markup or again)

    def _skip(self, tag: str, *, suppressed: bool) -> None:
        if tag not in self._markers:
            self._in_markup = suppressed
            self.suppressed_markup = self.suppressed_markup or suppressed
        self._at += len(tag)
        self._visible.skip()

    def _close(self, out: list[Piece], *, cut: bool = False) -> None:
        """The region has ended: its calls, or its text."""
        region, self._region = self._region, None
        open_call, self._call = self._call, None
        assert region is not None and self._reader is not None, "a region is open"
        calls = [] if cut else self._reader.read(region.body, declared=region.bare)
        announced = open_call is not None and open_call.announced
        if not (calls or announced):
            self._take_false(region.raw, out)
            return
        if not announced:
            self._emit("text", self._visible.before_call(), out)
        if self._over:
            return
        if open_call is not None and calls:
            calls[0] = replace(calls[0], id=open_call.id)
        self._at += len(region.raw)
        self._splitter.resume(inside=False)
        self._add(calls, out)

    def _tell(self, call: OpenCall, fresh: str, out: list[Piece]) -> None:
        """Tell what a piece makes known of a call that is held to its schema."""
        arguments = call.reader.feed(fresh)
        if not call.announced and call.reader.name is not None:
            self._emit("text", self._visible.before_call(), out)
            call.announced = not self._over
            if call.announced:
                out.append(Piece("tool_start", call=ToolCall(call.id, call.reader.name, {})))
        if arguments and call.announced:
            out.append(Piece("tool_arguments", arguments))

    def _add(self, calls: list[ToolCall], out: list[Piece]) -> None:
        if self._max_calls is not None:
            calls = calls[: self._max_calls - len(self.tool_calls)]
        self.tool_calls += calls
        out += [Piece("tool_call", call=call) for call in calls]
        self._over = self._over or len(self.tool_calls) == self._max_calls

    def _take_false(self, raw: str, out: list[Piece]) -> None:
        """A region that is no call: in its text, reasoning tags alone are sought."""
        splitter = ReasoningSplitter(self._think, starts_inside=self._splitter.inside)
        for kind, run in splitter.feed(raw, last=True):
            if not self._over:
                self._take(kind, run, out)
        self._splitter.resume(inside=splitter.inside)

    def _emit(self, kind: Literal["text", "reasoning"], text: str, out: list[Piece]) -> None:
        self._over = self._over or self._visible.matched is not None
        if text:
            (self._text if kind == "text" else self._reasoning).append(text)
            out.append(Piece(kind, text))


def _joined(parts: list[str]) -> str:
    parts[:] = ["".join(parts)]
    return parts[0]
