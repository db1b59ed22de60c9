"""Claude Code: ``python -m clients.by_hand.claude_code FOLDER/node_modules/.bin/claude``.

It comes with ``npm install @anthropic-ai/claude-code`` in FOLDER.
"""

from __future__ import annotations

from pathlib import Path

from .notebook import MODEL, Notebook
from .rounds import Client, main


class ClaudeCode(Client):
    begin = ("-p",)
    go_on = ("--continue", "-p")

    def environment(self, folder: Path, served: Notebook) -> dict[str, str]:
        return {
            "ANTHROPIC_BASE_URL": served.base,
            "ANTHROPIC_AUTH_TOKEN": served.key,
            "ANTHROPIC_MODEL": MODEL,
            # its own patience is 300 s, and pings, which its SDK drops, do not count
            "CLAUDE_STREAM_IDLE_TIMEOUT_MS": "3600000",
            "API_TIMEOUT_MS": "3600000",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_TELEMETRY": "1",
        }

    @staticmethod
    def call(note: Path) -> tuple[str, dict[str, object]]:
        return "Read", {"file_path": str(note)}


if __name__ == "__main__":
    main(ClaudeCode)
