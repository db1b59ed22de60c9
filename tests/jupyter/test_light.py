"""The extension works where there is no MLX."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"mlx", "mlx_lm", "transformers", "pandas", "numpy", "torch", "IPython"}
BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {heavy}:
            raise ModuleNotFoundError(f"No module named {{name!r}}")

sys.meta_path.insert(0, Blocked())
import mlxnb
(point,) = mlxnb._jupyter_server_extension_points()
from jupyter_server.serverapp import ServerApp
app = ServerApp()
app.initialize(
    ["--ip=127.0.0.1", "--port=0", "--allow-root", "--no-browser"], new_httpserver=False
)
point["app"]._load_jupyter_server_extension(app)
print(sorted(name for name in sys.modules if name.startswith("mlxnb.")))
"""


def test_the_extension_loads_nothing_heavy() -> None:
    source = BLOCKED.format(heavy=HEAVY - {"IPython"})
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    parts = {name.split(".")[1] for name in eval(done.stdout)}
    assert parts == {"jupyter", "link", "wire", "errors"}
