"""A conversation's next prompt: the tokens that are there where the template keeps them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mlxnb.engine.request import Request
from mlxnb.records.turn import Span, Turn
from mlxnb.sessions.kept import kept_output
from mlxnb.sessions.messages import Message
from mlxnb.sessions.options import HistoryKind
from mlxnb.sessions.order import tool_list
from mlxnb.sessions.serving.track import Track, written_digest
from mlxnb.sessions.template import Around, ChatTemplate, Rendered
from mlxnb.sessions.texts import Texts


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt, and how it came about.

    Attributes
    ----------
    rendered
        All of it.
    base
        The track that it begins with; None: all of it was encoded anew.
    messages
        How many messages it holds, the beginning of an answer left out.
    written
        Digest of what the template wrote behind the base.
    opened
        The template has opened the reasoning.
    history
        ``exact``: every earlier answer is there as it was generated; ``template``: one is not.
    begun
        Tokens at its end that are the beginning of the answer.
    """

    rendered: Rendered
    base: Track | None
    messages: int
    written: bytes
    opened: bool
    template: ChatTemplate
    history: HistoryKind
    begun: tuple[int, ...] = ()

    def track(self, request: Request, turn: Turn) -> Track:
        """The conversation with the answer that has come of this."""
        start = self.base.length if self.base is not None else 0
        end = len(self.rendered.tokens) - len(self.begun)
        own = [s for s in self.rendered.spans if s.start >= start and s.end <= end]
        output = [*self.begun, *self._kept(request, turn)]
        return Track(
            before=self.base,
            suffix=array("I", self.rendered.tokens[start:end]),
            spans=tuple(replace(s, start=s.start - start, end=s.end - start) for s in own),
            output=array("I", output),
            answer=self.messages,
            written=self.written,
            opens=self.opened,
            reasons=bool(turn.reasoning),
            length=end + len(output),
        )

    def _kept(self, request: Request, turn: Turn) -> list[int]:
        """The tokens that stay; the text before a stop string, if that does not stand alone."""
        if self.begun and turn.stop_sequence is not None:
            return self.template.literal(turn.text)
        return kept_output(request, self.template.literal)


def make_prompt(
    texts: Texts,
    messages: Sequence[Message],
    track: Track | None,
    tools: Sequence[str] = (),
    thinking: bool | None = None,
    continues: bool = False,
) -> Prompt:
    """Render what comes next.

    Parameters
    ----------
    messages
        All of the conversation, oldest first.
    track
        Tokens of answers among them, as they were generated.
    tools
        Tool definitions, each as JSON.
    continues
        The last message is the beginning of the answer.

    Raises
    ------
    TemplateFailed
        The template refuses the messages.
    """
    template, defined = texts.template(thinking), tool_list(tools)
    said = list(messages)
    begun = said.pop() if continues else None
    with texts.lock:
        base = _kept(texts, template, said, track, defined)
        suffix = template.continuation(said, base.answer, defined) if base is not None else None
        if base is None or suffix is None:
            base, suffix = None, template.conversation(said, defined)
        rendered = suffix if base is None else base.line().joined(suffix)
        digest = written_digest(suffix.text, texts.tokenizer.think_start)
        prompt = Prompt(
            rendered,
            base,
            messages=len(said),
            written=digest,
            opened=rendered.opens_reasoning,
            template=template,
            history=_history(said, base),
        )
        return prompt if begun is None else _begun(prompt, texts, begun)


def _history(messages: Sequence[Message], base: Track | None) -> HistoryKind:
    known = -1 if base is None else base.answer
    anew = any(message["role"] == "assistant" for message in messages[known + 1 :])
    return "template" if anew else "exact"


def _kept(
    texts: Texts,
    template: ChatTemplate,
    messages: list[Message],
    track: Track | None,
    tools: list[object] | None,
) -> Track | None:
    """The longest part of a track that the template leaves as it was.

    Thinking that the template leaves out of earlier answers, say, is rewriting, and it wins.
    """
    if track is None:
        return None
    chain = track.chain()
    around = template.around(messages, {t.answer: t.reasons for t in chain}, tools)
    base = None
    for part, written in zip(chain, around or (), strict=False):
        if not _is_kept(part, written, texts):
            break
        base = part
    return base


def _is_kept(track: Track, written: Around, texts: Texts) -> bool:
    """Whether the template writes before an answer what it did when that was generated."""
    if written_digest(written.before, texts.tokenizer.think_start) != track.written:
        return False
    if not track.reasons:
        return not track.opens
    return written.between is not None and written.between.strip() == texts.tokenizer.think_end


def _begun(prompt: Prompt, texts: Texts, begun: Message) -> Prompt:
    """The prompt with the beginning of the answer, in which no reasoning is left open."""
    tokenizer, rendered = texts.tokenizer, prompt.rendered
    thought = str(begun.get("reasoning_content") or "")
    own: list[int] = []
    if thought or rendered.opens_reasoning:
        if not rendered.opens_reasoning:
            own += tokenizer.encode(f"{tokenizer.think_start}\n", add_special_tokens=False)
        own += prompt.template.literal(thought)
        own += tokenizer.encode(f"\n{tokenizer.think_end}\n\n", add_special_tokens=False)
    own += prompt.template.literal(str(begun.get("content") or ""))
    at = len(rendered.tokens)
    said = [Span(at, at + len(own), "assistant", prompt.messages)] if rendered.spans and own else []
    whole = Rendered([*rendered.tokens, *own], [*rendered.spans, *said], False)
    return replace(prompt, rendered=whole, begun=tuple(own))
