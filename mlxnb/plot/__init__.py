"""Pictures of the frames: turns, reuse, one turn's time, the prefix cache, probabilities.

Each function takes a frame (or a turn) and matplotlib's ``ax``, both optional, and returns the
Axes. None as the frame means what ``mlxnb.engine()`` has. matplotlib is imported by the first one
that draws.
"""

from __future__ import annotations

from mlxnb.plot.certainty import logprobs
from mlxnb.plot.chains import tree
from mlxnb.plot.clock import timeline
from mlxnb.plot.phases import turns
from mlxnb.plot.sharing import reuse

__all__ = ["logprobs", "reuse", "timeline", "tree", "turns"]
