# Each verb works alone, first, in a fresh clone. MODEL and ARGS are passed on: make serve ARGS="--port 9000"
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check
INSTALL := $(PIP) install -c constraints.txt
MODEL ?= smollm2
ARGS ?=

.PHONY: help setup serve chat test fix check sanitize bench clean

help:
	@echo "make serve   set up, fetch the default model, serve it on 127.0.0.1:8000"
	@echo "make chat    set up and talk to it in the terminal"
	@echo "make test    set up with the test extras and run the whole suite"
	@echo "make check   lint, types, import directions, sizes, generated pages"
	@echo "make fix     let the linter and the formatter repair what they can"
	@echo "make sanitize  the kernels' tests on builds that watch memory, undefined behaviour and threads"
	@echo "make bench   the benchmarks behind the figures in docs/"
	@echo "make setup   only set up    make clean   remove the environment"

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Octavo needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.created pyproject.toml constraints.txt hatch_build.py $(wildcard native/*)
	@echo "Installing (torch is the large one; the kernels take half a minute) ..."
	$(INSTALL) -e ".[prices]"
	@touch $@

$(VENV)/.test: $(VENV)/.run
	$(INSTALL) -e ".[test]"
	@touch $@

setup: $(VENV)/.run

serve: $(VENV)/.run
	$(BIN)/octavo serve $(MODEL) $(ARGS)

chat: $(VENV)/.run
	$(BIN)/octavo chat $(MODEL) $(ARGS)

test: $(VENV)/.test
	$(BIN)/pytest $(ARGS)

fix: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.sizes
	$(BIN)/python -m scripts.reference --check

sanitize: $(VENV)/.test
	$(BIN)/python -m tests.compute.native.sanitized address $(ARGS)
	$(BIN)/python -m tests.compute.native.sanitized thread $(ARGS)

bench: $(VENV)/.test
	$(BIN)/python -m benchmarks.run $(ARGS)

clean:
	rm -rf $(VENV)
