# Two commands on a fresh machine: `make demo` and `make test`. Each makes .venv and installs what it needs, once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Bytecode is kept, whatever the shell's settings: otherwise each of the hundreds of processes compiles all modules anew.
# passive: the two threads of a test sleep while they wait, because another test uses the other core
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n 2 --dist worksteal --durations=10

.PHONY: demo test quick lint clean

demo: $(VENV)/installed
	$(BIN)/saccade demo

test: $(VENV)/installed-test
	$(PYTEST)

quick: $(VENV)/installed-test
	$(PYTEST) -m "not slow"

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch is installed first and alone: once the pinned CPU build is there, no later install asks for another one
$(VENV)/installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt torch numpy
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[fast,serve]'
	touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test,lint]'
	@if ! command -v chromium >/dev/null && command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		apt-get update --quiet=2 && apt-get install --quiet=2 --yes chromium >/dev/null \
		|| echo "chromium could not be installed: the browser tests will not run"; fi
	@$(BIN)/npm ci --prefix tests/serve/clients --silent --no-audit --no-fund --ignore-scripts \
		|| echo "npm could not fetch the clients of others: their tests will not run"
	touch $@

clean:
	rm -rf $(VENV) runs dist
