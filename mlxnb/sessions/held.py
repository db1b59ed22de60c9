"""Holding a request's answer to its form."""

from __future__ import annotations

from collections.abc import Sequence

from mlxnb.engine.form import Form
from mlxnb.engine.guide import guides
from mlxnb.engine.request import Request
from mlxnb.engine.sampling import Processor
from mlxnb.engine.vocabulary import Vocabulary


def hold(
    request: Request,
    vocabulary: Vocabulary,
    form: Form,
    reasons: bool | None,
    begun: Sequence[int] = (),
) -> None:
    """Give a request the processors that a form asks for; ``reasons`` and ``begun``: see `guides`.

    Raises
    ------
    InvalidOption
        The form cannot be enforced with this model.
    """
    made = guides(vocabulary, form, len(request.prompt), reasons, begun)
    request.extra_processors = [Processor(guide) for guide in made]
    claims = [guide.claim for guide in made if hasattr(guide, "claim")]
    if claims:
        request.machine.claim = claims[0]
