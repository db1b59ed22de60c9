"""The console script `mlxnb`. Each command imports what it needs when it runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from mlxnb import __version__
from mlxnb.errors import MlxnbError

VERSIONS_OF = ("mlx", "mlx-lm", "transformers", "ipython", "jupyterlab", "pandas")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the process's exit status: 0, or 1 with one line of reason."""
    parser = _parser()
    options, rest = parser.parse_known_args(argv)
    if rest and options.command != "bench":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    options.rest = rest
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except MlxnbError as error:
        print(f"mlxnb {options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mlxnb", description="Local language models in Jupyter.")
    parser.add_argument("--version", action="version", version=f"mlxnb {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(
        name: str, run: Callable[[argparse.Namespace], int], help: str, *, add_help: bool = True
    ) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=help, description=help, add_help=add_help)
        made.set_defaults(run=run)
        return made

    command("demo", _demo, "run the quickstart notebook and print its turns and prefix cache")
    command("bench", _bench, "measure planning, decode overhead and bytes", add_help=False)
    command("models", _models, "list the models on this machine")
    command("doctor", _doctor, "print versions, device and cache folder, for a bug report")
    pull = command("pull", _pull, "fetch a model: `demo` or a Hub id")
    pull.add_argument("name")
    rm = command("rm", _rm, "remove a fetched model from the cache directory")
    rm.add_argument("name")
    return parser


def _demo(options: argparse.Namespace) -> int:
    from mlxnb import quickstart

    quickstart.run(quickstart.quickstart())
    return 0


def _bench(options: argparse.Namespace) -> int:
    from mlxnb.bench import main

    return main(options.rest)


def _models(options: argparse.Namespace) -> int:
    import mlxnb

    print(mlxnb.engine().models().to_string())
    return 0


def _pull(options: argparse.Namespace) -> int:
    from mlxnb.models import manage

    print(manage.pull(options.name))
    return 0


def _rm(options: argparse.Namespace) -> int:
    from mlxnb.models import manage

    print(f"{options.name}: {manage.remove(options.name):,} bytes freed")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    """Print facts, one a line; 1 where mlx cannot compute."""
    import platform

    from mlxnb.models.cachedir import cache_dir

    facts = {"python": f"{platform.python_version()} ({sys.executable})", "mlxnb": __version__}
    facts |= {name: _version(name) for name in VERSIONS_OF}
    device = _device()
    facts |= {"platform": platform.platform(), "device": device or "mlx does not work here"}
    facts["models in"] = str(cache_dir())
    for name, fact in facts.items():
        print(f"{name:<13}{fact}")
    return 0 if device else 1


def _version(distribution: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def _device() -> str | None:
    """The device that computes and its memory; None where mlx cannot be imported or fails."""
    try:
        import mlx.core as mx

        mx.eval(mx.ones(8).sum())
    except (ImportError, RuntimeError) as error:
        print(f"mlxnb doctor: {error}", file=sys.stderr)
        return None
    info = mx.device_info()
    return f"{mx.default_device()}, {info.get('device_name', 'unnamed')}"
