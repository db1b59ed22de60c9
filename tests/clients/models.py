"""What the scripted models of these tests say; each is a folder that any host can load."""

from __future__ import annotations

import shutil
from pathlib import Path

from scripted import scripted_folder

LONG = " ".join(f"word-{number}" for number in range(300))
CALL = '<tool_call>{"name": "look", "arguments": {"at": "sky"}}</tool_call>'
ANOTHER = CALL.replace("sky", "sea")
SCRIPTS: dict[str, tuple[str, ...]] = {
    "talker": ("Hello there, friend.", "Again, hello.", "And once more."),
    "caller": (CALL, "The sky is blue."),
    "fan": (f"{CALL}\n{ANOTHER}", "Both are blue."),
    "thinker": ("<think>I wonder.</think>\n\nForty-two.", "<think>Still.</think>\n\nYes."),
    "schemer": ('{"answer": "yes", "sure": true}',),
    "stopper": ("one two STOP three",),
    "long": (LONG,),
    "going": (LONG,),
    "late": ("Better late.",),
}


def write_models(folder: Path, demo: Path) -> Path:
    """All of them, and the demo model, in one folder."""
    for name, script in SCRIPTS.items():
        scripted_folder(folder / name, script)
        shutil.copy(Path(__file__).with_name("gated_model.py"), folder / name / "model.py")
    (folder / "demo").symlink_to(demo, target_is_directory=True)
    return folder
