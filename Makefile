# Everything a developer or CI runs. `make install` and all that needs it work on a machine that has only make and
# Python 3.11; nothing is installed twice.

VENV ?= .venv
# Tests wait for clocks half of their time: one process more than there are cores.
JOBS ?= $(shell echo $$(($$(nproc) + 1)))
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SDK_INSTALLED := tests/sdk/node_modules/.package-lock.json
CLIENTS_INSTALLED := tests/clients/.venv/.installed
COMPILED := build/compiled
WHEEL := $(COMPILED)/.unpacked

.DEFAULT_GOAL := help
.PHONY: help install clients demo check lint types test wheel test-compiled bench fuzz soak docs transcripts lock clean

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

install: $(INSTALLED)  ## the virtual environment, from requirements.lock

$(INSTALLED): requirements.lock pyproject.toml scripts/install scripts/debian-packages
	@scripts/install $(VENV)
	@touch $@

$(SDK_INSTALLED): tests/sdk/package-lock.json scripts/install-node
	@scripts/debian-packages nodejs npm
	@scripts/install-node tests/sdk
	@[ ! -e $@ ] || touch $@

clients: $(CLIENTS_INSTALLED)  ## the coding agents and libraries that tests/clients runs (about 1.3 GB)

$(CLIENTS_INSTALLED): $(INSTALLED) tests/clients/package-lock.json tests/clients/requirements.lock scripts/install-clients scripts/install-node
	@scripts/debian-packages nodejs npm
	@scripts/install-clients $(VENV)
	@touch $@

demo: $(INSTALLED)  ## stream one answer of a real model through the gate, and see what it cost
	@$(BIN)/sluicegate demo $(ARGS)

check: lint types test test-compiled  ## all that CI runs

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy --strict

test: $(INSTALLED) $(SDK_INSTALLED) $(CLIENTS_INSTALLED)  ## the tests; ARGS="-k name" for some of them
	$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

wheel: $(WHEEL)  ## the wheel to install where it serves: its hot path compiled; into dist/

$(WHEEL): $(INSTALLED) hatch_build.py scripts/build-wheel $(shell find src -name '*.py')
	@PYTHON=$(BIN)/python scripts/debian-packages gcc libc6-dev python3-dev
	@scripts/build-wheel $(VENV) dist $(COMPILED)
	@touch $@

test-compiled: $(WHEEL) $(SDK_INSTALLED) $(CLIENTS_INSTALLED)  ## the tests, against the compiled wheel
	PYTHONPATH=$(abspath $(COMPILED)) SLUICEGATE_COMPILED=1 $(BIN)/python -m pytest -n $(JOBS) $(ARGS)

bench: $(WHEEL)  ## the compiled gate beside nginx on one pinned core, into bench/results.md
	@scripts/debian-packages nginx-light
	$(BIN)/python bench/run.py --gate $(COMPILED) $(ARGS)

fuzz: $(INSTALLED)  ## the property tests, with many more examples
	SLUICEGATE_FUZZ=50 $(BIN)/python -m pytest -n $(JOBS) -p tests.profiles --hypothesis-profile=fuzz -m hypothesis $(ARGS)

soak: $(INSTALLED)  ## a thousand kills and 50 of each other fault under load, the audit; then the long tests; ARGS="--kills 100 --seed 7"
	$(BIN)/python -m tests.crash.soak --kills 1000 $(ARGS)
	SLUICEGATE_SOAK=1 $(BIN)/python -m pytest -m soak

docs: $(INSTALLED)  ## docs/configuration.md, from the settings' own help
	$(BIN)/python -m sluicegate.config.reference docs/configuration.md

transcripts: $(INSTALLED)  ## the expected files of the golden transcripts anew; the diff is the review
	$(BIN)/python -m tests.transcripts

lock: $(INSTALLED)  ## requirements.lock anew from pyproject.toml, and that of the tests' clients
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-annotate --all-extras \
		--custom-compile-command "make lock" --output-file requirements.lock pyproject.toml
	$(BIN)/uv pip compile --no-config --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
		--custom-compile-command "make lock" --output-file tests/clients/requirements.lock tests/clients/requirements.in

clean:  ## what the other targets made
	rm -rf $(VENV) build dist tests/sdk/node_modules tests/clients/node_modules tests/clients/.venv sluicegate-demo .mypy_cache .pytest_cache .ruff_cache .hypothesis
