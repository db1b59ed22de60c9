"""What a request goes on from: its own messages, or those of the response that it continues."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlxnb.records.tokens import common_prefix, pack
from mlxnb.records.turn import CacheStatus
from mlxnb.sessions.ask import Ask
from mlxnb.sessions.messages import Message
from mlxnb.sessions.serving.chain import Chain
from mlxnb.sessions.serving.prompt import Prompt
from mlxnb.sessions.serving.replay import digests_of
from mlxnb.sessions.serving.track import Track


@dataclass(frozen=True, slots=True)
class Conversation:
    """All messages of a request, and the tokens that there are of them.

    Attributes
    ----------
    messages
        Oldest first; the system text, where there is one, is the first.
    system
        The system text.
    track
        Tokens of answers among them, as generated.
    chain
        The response that it continues by its id.
    warm
        That is a live session, which this continues under the same system text.
    digests
        Of what is answered, beginning with the scope that it is remembered in.
    """

    messages: tuple[Message, ...]
    system: str | None
    track: Track | None
    chain: Chain | None = None
    warm: bool = False
    digests: tuple[bytes, ...] = ()

    @classmethod
    def of_chain(cls, ask: Ask, chain: Chain, salt: str) -> Conversation:
        """What follows a response: its system text stands unless another one is given.

        Under another system text or salt its tokens are not used.
        """
        system = chain.system if ask.system is None else ask.system
        same = system == chain.system and salt == chain.salt
        messages = (*_lead(system), *chain.messages, *ask.messages)
        track = chain.track if same else None
        return cls(messages, system, track, chain=chain, warm=same and chain.warm)

    @classmethod
    def of_messages(cls, ask: Ask) -> Conversation:
        """A conversation that its client keeps."""
        return cls((*_lead(ask.system), *ask.messages), ask.system, None)

    def digested(self, scope: bytes, ask: Ask) -> Conversation:
        """The same conversation with the digests of what is answered."""
        heard = self.messages[:-1] if ask.continues_answer else self.messages
        return replace(self, digests=(scope, *digests_of(scope, heard)))

    def over(self, track: Track | None) -> Conversation:
        """The same conversation with tokens of its answers."""
        return replace(self, track=track)

    def status(self, prompt: Prompt, planned: int) -> CacheStatus:
        """How ``planned`` pinned tokens of a prompt were found.

        A warm session is hit when all that its tokens and the prompt share is there; the KV of
        an answer's last token may not be.
        """
        if self.chain is None:
            return "prefix_hit" if planned else "fresh"
        if not (self.warm and planned and self.track is not None):
            return "cold_replay"
        tokens = prompt.rendered.tokens
        shared = common_prefix(pack(self.track.line().tokens), pack(tokens))
        return "hit" if planned >= min(shared, len(tokens)) - 1 else "cold_replay"


def _lead(system: str | None) -> tuple[Message, ...]:
    return () if system is None else ({"role": "system", "content": system},)
