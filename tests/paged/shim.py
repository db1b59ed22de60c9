"""Metal kernels run as C++: the source that MLX makes for Metal, compiled over native/metal/shim.

MLX writes a kernel's source while a function that uses it is exported, which needs no Metal. Each
source becomes a function that runs the kernel's lanes as fibers.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from mlxnb.cache.paged_launch import Launch

SHIM = Path(__file__).parents[2] / "native" / "metal" / "shim"
COMPILER = shutil.which("g++") or shutil.which("c++")

_PARAMETER = re.compile(r"(?:const )?(device|constant) (\w+)([*&]) (\w+) \[\[buffer\((\d+)\)\]\]")
_ATTRIBUTES = {
    "threadgroup_position_in_grid": "shim::group->position",
    "simdgroup_index_in_threadgroup": "shim::group->current / 32",
    "thread_index_in_simdgroup": "shim::group->current % 32",
    "thread_position_in_grid": "shim::thread_in_grid()",
}
# numpy has no bfloat16: both halves travel as their bits
_BITS = {mx.float32: np.float32, mx.int32: np.int32, mx.float16: np.uint16, mx.bfloat16: np.uint16}


@contextmanager
def _printed() -> Any:
    """What C++ prints meanwhile."""
    text: list[str] = []
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield text
        finally:
            os.dup2(kept, 1)
            os.close(kept)
            file.seek(0)
            text.append(file.read().decode())


def source_of(launch: Launch) -> str:
    """What Metal would compile."""

    def traced(*arrays: mx.array) -> list[mx.array]:
        inputs = dict(zip(launch.inputs, arrays, strict=True))
        return replace(launch, inputs=inputs).run(verbose=True)

    with _printed() as text, tempfile.TemporaryDirectory() as folder:
        mx.export_function(f"{folder}/kernel.mlxfn", traced, *launch.inputs.values())
    found = re.search(r"```\n(.*)```", text[0], re.DOTALL)
    assert found, "MLX prints the source of a kernel when asked"
    return found[1]


def _function(source: str, name: str) -> str:
    """The source as C++, and a function ``name`` that runs it over a grid."""
    body, instance = source.rsplit("\ntemplate [[host_name", 1)
    kernel = re.search(r"decltype\((\w+<.*>)\)", instance)
    signature = re.search(r"\[\[kernel\]\] void \w+\((.*?)\) \{", body, re.DOTALL)
    assert kernel and signature
    arguments = [
        f"{'*' if ref == '&' else ''}({dtype}*)buffers[{number}]"
        for _, dtype, ref, _, number in _PARAMETER.findall(signature[1])
    ]
    named = re.findall(r"\[\[(\w+)\]\]", signature[1])
    arguments += [_ATTRIBUTES[name] for name in named if name in _ATTRIBUTES]
    plain = re.sub(r" ?\[\[[^\]]*\]\]", "", body)
    plain = re.sub(r"threadgroup (\w+ \w+\[)", r"static \1", plain)
    return (
        f"{plain}\n"
        f'extern "C" bool {name}(void** buffers, uint3 groups, uint lanes, bool backwards) {{\n'
        "  return shim::dispatch(groups, {lanes, 1, 1}, backwards, [=] {\n"
        f"    {kernel[1]}({', '.join(arguments)});\n"
        "  });\n}\n"
    )


def _compiled(sources: Iterable[str]) -> tuple[ctypes.CDLL, dict[str, str]]:
    names = {source: f"run_{n}" for n, source in enumerate(dict.fromkeys(sources))}
    text = '#include "metal.h"\n' + "".join(_function(s, name) for s, name in names.items())
    shim = (SHIM / "metal.h").read_text()
    key = hashlib.sha256((shim + text).encode()).hexdigest()[:16]
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"mlxnb-shim-{user}"
    folder.mkdir(exist_ok=True)
    library = folder / f"{key}.so"
    if not library.exists():
        file, made = folder / f"{key}-{os.getpid()}.cpp", folder / f"{key}-{os.getpid()}.so"
        file.write_text(text)
        assert COMPILER
        flags = ["-std=c++20", "-O1", "-shared", "-fPIC", "-Wall", "-Werror", f"-I{SHIM}"]
        subprocess.run([COMPILER, *flags, str(file), "-o", str(made)], check=True)
        made.replace(library)
        file.unlink()
    return ctypes.CDLL(str(library)), names


class Uint3(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32))


class Shim:
    """Runs launches; ``prepare`` compiles several at once.

    ``backwards``: lanes take turns in the other order.
    """

    def __init__(self) -> None:
        self.backwards = False
        self._sources: dict[Any, str] = {}
        self._functions: dict[str, Any] = {}

    def prepare(self, launches: Iterable[Launch]) -> None:
        library, names = _compiled([self.source(launch) for launch in launches])
        for source, name in names.items():
            self._functions[source] = getattr(library, name)
            self._functions[source].restype = ctypes.c_bool

    def source(self, launch: Launch) -> str:
        small = tuple(a.ndim and a.size < 8 for a in launch.inputs.values())
        key = launch.name, launch.body, str(launch.template), small
        if key not in self._sources:
            self._sources[key] = source_of(launch)
        return self._sources[key]

    def run(self, launch: Launch) -> list[mx.array]:
        source = self.source(launch)
        if source not in self._functions:
            self.prepare([launch])
        inputs = [_bits(array) for array in launch.inputs.values()]
        outputs = [
            np.full(shape, 0xFF, np.uint8).repeat(dtype.size, axis=-1).view(_BITS[dtype])
            for shape, dtype in launch.outputs.values()
        ]
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in [*inputs, *outputs]]
        buffers = (ctypes.c_void_p * len(pointers))(*pointers)
        function = self._functions[source]
        together = function(buffers, Uint3(*launch.groups), launch.lanes, self.backwards)
        assert together, "lanes parted ways before a barrier"
        dtypes = [dtype for _, dtype in launch.outputs.values()]
        return [_array(bits, dtype) for bits, dtype in zip(outputs, dtypes, strict=True)]


def _bits(array: mx.array) -> np.ndarray[Any, Any]:
    plain = mx.contiguous(array)
    return np.array(plain if array.dtype in (mx.float32, mx.int32) else plain.view(mx.uint16))


def _array(bits: np.ndarray[Any, Any], dtype: mx.Dtype) -> mx.array:
    return mx.array(bits) if dtype in (mx.float32, mx.int32) else mx.array(bits).view(dtype)
