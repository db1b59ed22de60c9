"""What computes on this machine, and by which kernels.

``python -m mlxnb.doctor.device`` prints findings, a line each.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from mlxnb import native
from mlxnb.cache.paged_kernels import MlxKernels
from mlxnb.cache.paged_metal import wanted
from mlxnb.cache.paged_pool import best_kernels
from mlxnb.doctor.finding import Finding
from mlxnb.native.extension import extension


def checks() -> Iterator[Finding]:
    """MLX itself, then what is in use of our kernels, and where KV lies."""
    total = mx.ones(8).sum().item()
    told = ", ".join([str(mx.default_device()), *_device()])
    yield Finding("MLX computes", total == 8, told)
    yield _cpu_kernels()
    yield _metal_kernels()
    yield _paging()


def _device() -> Iterator[str]:
    info = mx.device_info()
    for key in ("device_name", "architecture"):
        if info.get(key):
            yield str(info[key])
    if info.get("memory_size"):
        yield f"{int(info['memory_size']) / 2**30:.1f} GiB"


def _cpu_kernels() -> Finding:
    name = "our CPU kernels"
    if not native.available():
        return Finding(name, None, f"not in use: {native.reason()}")
    ours = extension()
    told = f"in use: {ours.isa()}, {ours.threads()} threads, built for mlx {ours.mlx_version}"
    return Finding(name, True, told)


def _metal_kernels() -> Finding:
    name = "our Metal kernels"
    if not mx.metal.is_available():
        return Finding(name, None, "not in use: there is no Metal here")
    if not wanted():
        return Finding(name, None, "not in use: MLXNB_METAL=1 switches them on")
    return Finding(name, True, "in use")


def _paging() -> Finding:
    kernels = type(best_kernels())
    if kernels is MlxKernels:
        return Finding("KV", None, "contiguous: no kernels here read blocks in place")
    return Finding("KV", True, f"blocks are read in place by {kernels.__name__}")


if __name__ == "__main__":
    for finding in checks():
        print(finding.line(), flush=True)
