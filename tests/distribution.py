"""Which tests run in one process, and which begin first, where pytest-xdist has several."""

from __future__ import annotations

import re
from typing import Any

from xdist.scheduler import LoadFileScheduling

LONGEST = (
    "tests/clients with headless",
    "tests/soak/test_soak.py",
    "tests/clients with kernel",
    "tests/browser/test_chat.py",
    "tests/soak/test_forgetful.py",
    "tests/parity/test_thousand_turns.py",
    "tests/load/test_long_prefill.py",
    "tests/parity/test_random_lives.py",
    "tests/browser/test_inspector.py",
    "tests/engine/test_exit.py",
    "tests/parity/test_forgetful.py",
    "tests/parity/test_restart.py",
    "tests/clients/test_killed.py",
    "tests/jupyter/test_supervisor.py",
    "tests/parity/test_leaving.py",
    "tests/cache/disk/test_model.py",
    "tests/clients/test_secrets.py",
    "tests/engine/test_activations.py",
    "tests/parity/test_disk.py",
    "tests/engine/test_owner.py",
    "tests/cache/test_checkpoints.py",
    "tests/load/test_leaks.py",
    "tests/load/test_at_once.py",
    "tests/jupyter/test_light.py",
    "tests/jupyter/test_real_host.py",
    "tests/parity/test_at_once.py",
    "tests/host/remote/test_engine.py",
    "tests/bench/test_parts.py",
    "tests/notebook/test_shared.py",
    "tests/wire/test_responses_fuzz.py",
    "tests/text/test_answer_fuzz.py",
)
"""Long units, about the longest first, so that none of few tests is left for the end."""
RANKS = {unit: rank for rank, unit in enumerate(LONGEST)}


class Units(LoadFileScheduling):
    """A unit is a file, or all tests of clients with one kind of host, which share its servers."""

    def _split_scope(self, nodeid: str) -> str:
        host = re.match(r"tests/clients/.*\[(?:.*-)?(headless|kernel)\b", nodeid)
        return f"tests/clients with {host[1]}" if host else super()._split_scope(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        first = min(self.workqueue, key=lambda unit: RANKS.get(unit, len(RANKS)))
        self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)
