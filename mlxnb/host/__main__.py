"""``python -m mlxnb.host``: a host with a process of its own, for a notebook server.

Its configuration is JSON, in a file or as the first line of standard input; in the latter case
the host ends when standard input does. It writes one line of JSON to standard output when it
takes requests: the names of its record.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path

from mlxnb.errors import MlxnbError
from mlxnb.host.config import Config
from mlxnb.host.headless import Headless


def main() -> int:
    """Serve until told to stop, or until the parent is gone."""
    parser = argparse.ArgumentParser(prog="python -m mlxnb.host")
    parser.add_argument("--config", default="-", help="a JSON file; -: a line of standard input")
    options = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    piped = options.config == "-"
    try:
        config = Config.from_line(sys.stdin) if piped else Config.read(_text(options.config))
        host = Headless(config, pipe=sys.stdin if piped else None)
        host.start()
    except (MlxnbError, OSError) as error:
        print(f"mlxnb.host: {error}", file=sys.stderr)
        return 1
    record = host.server.record
    names = {"uuid": record.uuid, "id": record.id, "socket": record.socket, "url": record.url}
    print(json.dumps(names), flush=True)
    host.wait()
    host.stop()
    return 0


def _text(path: str) -> str:
    return Path(path).read_text("utf-8")


if __name__ == "__main__":
    sys.exit(main())
