"""``python -m mlxnb.host``: a host with a process of its own, for a notebook server.

Its configuration is a file of JSON, which it has read when it publishes its record. It ends when
it is told to, and when its parent is gone. Its log is on standard error, a line an entry.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from mlxnb.errors import MlxnbError
from mlxnb.host.config import Config
from mlxnb.host.headless import Headless
from mlxnb.host.parent import Parent

FORMAT = "%(name)s[%(levelname)s]: %(message)s"


def main(argv: list[str] | None = None) -> int:
    """Serve until told to stop, or until the parent is gone."""
    parser = argparse.ArgumentParser(prog="python -m mlxnb.host")
    parser.add_argument("--config", type=Path, required=True, help="a file of JSON")
    parser.add_argument("--parent-pid", type=int, help="end when this process does")
    options = parser.parse_args(argv)
    logging.basicConfig(format=FORMAT)
    logging.getLogger("mlxnb").setLevel(logging.INFO)
    try:
        parent = None if options.parent_pid is None else Parent(options.parent_pid)
        host = Headless(Config.read(options.config.read_text("utf-8")), parent)
        host.start()
    except (MlxnbError, OSError) as error:
        print(f"mlxnb.host: {error}", file=sys.stderr)
        return 1
    host.wait()
    host.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
