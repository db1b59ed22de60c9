"""A model that says what it is told to, over real KV: a folder that mlx-lm loads.

``scripted_folder`` writes one, ``load_scripted`` loads it. Its answer to the n-th turn of a
conversation is the n-th of its script, whatever was said; which turn it is, it finds out from its
KV alone, so KV of another place, or of another conversation, shows.
"""

from .folder import (
    END,
    QWEN,
    THINKING,
    load_scripted,
    model_of,
    scripted_folder,
    tokenizer_of,
)
from .gate import Gate

__all__ = [
    "END",
    "QWEN",
    "THINKING",
    "Gate",
    "load_scripted",
    "model_of",
    "scripted_folder",
    "tokenizer_of",
]
