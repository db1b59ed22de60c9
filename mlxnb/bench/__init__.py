"""``mlxnb bench``: how fast it is here, beside others and beside what the machine can do.

Machines are noisy: each figure is a median with its spread, and what is compared runs in turn.
"""

from mlxnb.bench.command import main

__all__ = ["main"]
