"""Codex: ``python -m clients.by_hand.codex FOLDER/node_modules/.bin/codex``.

It comes with ``npm install @openai/codex`` in FOLDER.
"""

from __future__ import annotations

from pathlib import Path

from .notebook import MODEL, Notebook
from .rounds import Client, main

CONFIG = """\
model = "{model}"
model_provider = "mlxnb"
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
apps = false
plugins = false

[feedback]
enabled = false

[model_providers.mlxnb]
name = "mlxnb"
base_url = "{base}/v1"
env_key = "MLXNB_KEY"
wire_api = "responses"
"""


class Codex(Client):
    begin = ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    go_on = (*begin, "resume", "--last")

    def environment(self, folder: Path, served: Notebook) -> dict[str, str]:
        home = folder / "codex"
        home.mkdir()
        (home / "config.toml").write_text(CONFIG.format(model=MODEL, base=served.base))
        return {"CODEX_HOME": str(home), "MLXNB_KEY": served.key}

    @staticmethod
    def call(note: Path) -> tuple[str, dict[str, object]]:
        return "exec_command", {"cmd": f"cat {note}"}


if __name__ == "__main__":
    main(Codex)
