"""Holding a request's answer to its form."""

from __future__ import annotations

from mlxnb.engine.guide import guides
from mlxnb.engine.request import Request
from mlxnb.engine.sampling import Processor
from mlxnb.engine.vocabulary import Vocabulary
from mlxnb.sessions.order import Order


def hold(request: Request, vocabulary: Vocabulary, order: Order) -> None:
    """Give a request the processors that its order's form asks for.

    Raises
    ------
    InvalidOption
        The form cannot be enforced with this model.
    """
    assert order.form is not None, "an order without a form is not held to any"
    prompt = len(request.prompt)
    made = guides(vocabulary, order.form, prompt, order.reasons, order.begun)
    request.extra_processors = [Processor(guide) for guide in made]
    claims = [guide.claim for guide in made if hasattr(guide, "claim")]
    if claims:
        request.machine.claim = claims[0]
