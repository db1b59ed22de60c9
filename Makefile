# Everything happens in .venv, which `make clean` removes. PYTHON names the interpreter it is
# made with, for example `make setup PYTHON=python3.12`.
PYTHON ?= python3
BIN := .venv/bin

# No file of ours outside the clone, the cache directory and the temporary one.
STATE := $(CURDIR)/.venv/state
export IPYTHONDIR ?= $(STATE)/ipython
export JUPYTER_CONFIG_DIR ?= $(STATE)/jupyter/config
export JUPYTER_DATA_DIR ?= $(STATE)/jupyter
export JUPYTER_RUNTIME_DIR ?= $(STATE)/jupyter/runtime
export MLXNB_STATE ?= $(STATE)/mlxnb
export MPLCONFIGDIR ?= $(STATE)/matplotlib
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: setup demo lab test test-races check-native lint lock clean

setup: .venv/installed
	$(BIN)/mlxnb pull demo

.venv/installed: pyproject.toml constraints.txt $(wildcard native/CMakeLists.txt native/cpu/*.* native/cpu/*/*.*)
	$(PYTHON) -m venv .venv
	@echo "Installing what pyproject.toml names into .venv; this takes a minute or two."
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

demo: setup
	$(BIN)/mlxnb demo

# JupyterLab refuses to start as root unless told; in a container there is no one else. Looking
# for language servers would run npm, which writes to the home directory.
lab: setup
	$(BIN)/jupyter lab --notebook-dir notebooks --LanguageServerManager.autodetect=False \
		$(if $(filter 0,$(shell id -u)),--allow-root) $(LAB_OPTIONS)

lint: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Clients that the tests run beside their own: pip's each in an environment of its own, and npm's.
# They are kept in the cache directory.
.venv/clients: .venv/installed tests/clients/installed.py $(wildcard tests/clients/others/*.txt) \
		tests/clients/node/package-lock.json
	@echo "Installing other clients for the tests; the first time takes some minutes."
	cd tests && ../$(BIN)/python -m clients.installed
	touch $@

SUITE := --dist loadfile --nbval --nbval-current-env tests notebooks

test: setup
	$(MAKE) --jobs 2 lint .venv/clients
	$(BIN)/pytest -n 2 $(SUITE)

# The same tests with random delays wherever threads and processes meet, while processes stand still
# at random: what fails here and not in `make test` depends on who comes first. Takes most of an hour.
test-races: setup .venv/clients
	PYTHONPATH=$(CURDIR)/tests/races MLXNB_TEST_DELAYS=1 \
		$(BIN)/python tests/races/stops.py $(BIN)/pytest -n 4 $(SUITE)

# The CPU kernels by themselves under the sanitizers; needs CMake and takes minutes.
check-native:
	native/check/sanitize.sh build/sanitize

# A clean resolve of the ranges in pyproject.toml; commit what it writes.
lock:
	rm -rf .venv/lock
	$(PYTHON) -m venv .venv/lock
	.venv/lock/bin/python -m pip install --quiet '.[test]'
	{ echo "# Exact versions of everything that \`make setup\` installs, the extra \`test\` included."; \
	  echo "# Written by \`make lock\` from a clean resolve of pyproject.toml; do not edit."; \
	  .venv/lock/bin/python -m pip freeze --exclude mlxnb; } > constraints.txt
	rm -rf .venv/lock

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find mlxnb tests -name __pycache__ -type d -prune -exec rm -rf {} +
