"""The console script `mlxnb`. Each command imports what it needs when it runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from mlxnb import __version__
from mlxnb.errors import MlxnbError


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
    serve = command("serve", _serve, "answer OpenAI's and Anthropic's clients on a loopback port")
    serve.add_argument("model", nargs="?", default="", help="loaded at once; others on request")
    serve.add_argument("--port", type=int, default=8642, help="0: any that is free (8642)")
    serve.add_argument("--models-dir", default="", metavar="DIR", help="a folder of model folders")
    serve.add_argument("--no-store", action="store_true", help="keep no responses on disk")
    command("bench", _bench, "measure how fast a model runs here", add_help=False)
    command("models", _models, "list the models on this machine")
    doctor = command("doctor", _doctor, "check this installation and print a report of it")
    doctor.add_argument("--report", type=Path, metavar="FILE", help="write the report to FILE too")
    doctor.add_argument("--no-bench", action="store_true", help="only check, do not measure")
    pull = command("pull", _pull, "fetch a model: `demo` or a Hub id")
    pull.add_argument("name")
    keys = command("keys", _keys, "make, list, show and revoke keys for HTTP clients")
    _key_actions(keys)
    rm = command("rm", _rm, "remove a fetched model from the cache directory")
    rm.add_argument("name")
    return parser


def _key_actions(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    new = actions.add_parser("new", help="make a key and print it, once")
    new.add_argument("name", help="whom its turns are filed under")
    new.add_argument(
        "--save", action="store_true", help="keep it in a private file that `show` reads"
    )
    actions.add_parser("list", help="names and dates, without the keys")
    for action, help in (("show", "print a saved key"), ("revoke", "refuse it from now on")):
        actions.add_parser(action, help=help).add_argument("name")


def _demo(options: argparse.Namespace) -> int:
    from mlxnb import quickstart

    quickstart.run(quickstart.quickstart())
    return 0


def _serve(options: argparse.Namespace) -> int:
    from mlxnb.host.by_hand import serve
    from mlxnb.host.config import Config

    return serve(
        Config.of(
            model=options.model,
            port=options.port,
            models_dir=options.models_dir,
            store=not options.no_store,
            title="mlxnb serve",
        )
    )


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


def _keys(options: argparse.Namespace) -> int:
    from mlxnb.link import keys

    if options.action == "new":
        made = keys.new(options.name, save=options.save)
        print(f"saved: `mlxnb keys show {options.name}` prints it" if options.save else made)
    elif options.action == "show":
        print(keys.saved(options.name))
    elif options.action == "revoke":
        keys.revoke(options.name)
    else:
        for key in keys.all_keys():
            print(f"{key.name:<24}  {key.created}")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from mlxnb.doctor import examine

    return examine(options.report, bench=not options.no_bench)
