"""The headless host of tests, in the place of ``python -m mlxnb.host``.

It runs the code of the models in its folder, which is the tests' own. No request, no name and no
setting of mlxnb's makes a host do so (W68).
"""

from __future__ import annotations

import sys
from pathlib import Path

from mlxnb.host import __main__ as host
from mlxnb.host.config import Config
from mlxnb.models.source import ModelSource
from mlxnb.sessions.serving.catalog import Catalog


class Trusting(Config):
    """Finds the models of ``models_dir`` alone, and trusts them."""

    def catalog(self, source: ModelSource | None) -> Catalog:
        folders = sorted(Path(self.models_dir).iterdir())
        models = [ModelSource(one.name, one, trust_model_code=True) for one in folders]
        return Catalog(models, aliases=self.aliases, machine=False)


if __name__ == "__main__":
    # what the models' code imports
    sys.path[0] = str(Path(__file__).parents[1])
    host.Config = Trusting  # type: ignore[misc]
    sys.exit(host.main(sys.argv[sys.argv.index("mlxnb.host") + 1 :]))
