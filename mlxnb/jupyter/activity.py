"""Requests through the notebook port as activity of kernels, which are culled when idle."""

from __future__ import annotations

from typing import Any

from jupyter_server._tz import utcnow

from mlxnb.link.record import HostRecord


def touch(settings: dict[str, Any], host: HostRecord) -> None:
    """Note that a host works for a client now.

    Parameters
    ----------
    settings
        Of the notebook server's web application. It takes every ``…_last_activity`` for its own
        activity.
    """
    now = utcnow()
    settings["mlxnb_last_activity"] = now
    kernels = settings["kernel_manager"]
    if host.kernel_id is not None and host.kernel_id in kernels:
        kernels.get_kernel(host.kernel_id).last_activity = now
