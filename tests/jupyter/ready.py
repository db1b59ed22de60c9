"""Kernels that somebody else has started, such as a notebook server."""

from __future__ import annotations

from jupyter_client.blocking.client import BlockingKernelClient
from link.fake_host import until


def wait_ready(client: BlockingKernelClient) -> None:
    """Wait until a kernel answers; on a busy machine its heart may miss a beat."""

    def answers() -> bool:
        try:
            client.wait_for_ready(timeout=60)
        except RuntimeError:
            return False
        return True

    until(answers)
