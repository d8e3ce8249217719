# The first of these that is Python 3.11 or newer; `make PYTHON=/path/to/python` overrides.
PYTHON ?= $(shell for p in python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
PIP := .venv/bin/python -m pip --disable-pip-version-check

# A stamp is newer than the files that decide what is installed, so a second run does nothing.
INSTALLED := .venv/.installed
INSTALLED_TEST := .venv/.installed-test

.DEFAULT_GOAL := help
.PHONY: help install serve test format soak bench

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'

install: $(INSTALLED) ## create .venv and install anaphora into it

serve: install ## serve the demo model on http://127.0.0.1:8000 (more flags: make serve ARGS="...")
	@.venv/bin/anaphora serve --host 127.0.0.1 --port 8000 $(ARGS)

test: $(INSTALLED_TEST) ## format, lint, types, import contract and all tests
	@scripts/check && scripts/test

soak: $(INSTALLED_TEST) ## twenty thousand requests with random aborts, under every eviction policy
	@.venv/bin/python -m pytest -q -s -m soak tests/soak

bench: $(INSTALLED_TEST) ## the benchmarks that need no peer: bookkeeping, overhead, time to first token, equality
	@.venv/bin/python benchmarks/bookkeeping.py --json
	@.venv/bin/python benchmarks/overhead.py
	@.venv/bin/python benchmarks/explain_overhead.py
	@.venv/bin/python benchmarks/ttft.py
	@.venv/bin/python benchmarks/equality.py

format: $(INSTALLED_TEST) ## format the code and apply the safe lint fixes
	@.venv/bin/ruff check --fix-only --quiet .
	@.venv/bin/ruff format --quiet .

$(INSTALLED): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "anaphora needs Python 3.11 or newer, and neither python3.11 nor python3 is; install one, or run: make PYTHON=/path/to/python" >&2; exit 1; }
	@.venv/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@echo "Installing anaphora into .venv (the first time takes a minute or two)"
	@$(PIP) install -qq --constraint constraints.txt --editable .
	@touch $@

$(INSTALLED_TEST): $(INSTALLED)
	@echo "Installing the tools for the tests into .venv"
	@$(PIP) install -qq --constraint constraints.txt --editable '.[test]'
	@touch $@
