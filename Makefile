# `make demo` and `make test` need python3 (3.11 or newer) and make; everything else is set up here, in .venv.
PYTHON ?= python3
NAME ?= append
ON ?= sqlite
LANES ?= 3
BIN := .venv/bin
STAMP := .venv/.stamp
CLASSES := .venv/.classes
BROWSER := .venv/.browser
COMPILED := .venv/.compiled
unexport PYTHONDONTWRITEBYTECODE # else every lane, and hundreds of processes, would compile the tests anew

.PHONY: help setup demo pictures prepared test soak faults check bench servers conformance audit release lock clean

help:
	@echo "make demo            a tour: record, carry, read, in a console until Ctrl-C (ON=postgres, ON=kafka: on servers)"
	@echo "make setup           the environment in .venv, and nothing else"
	@echo "make pictures        the console's pictures in docs/images, made anew"
	@echo "make test            every statement's tests, in three lanes (ARGS='-k name' for some, LANES=0 for one)"
	@echo "make soak            what only repeats: many kills, many seeds, large numbers; hours"
	@echo "make faults          planted faults, each to be found by random programs (ARGS=NAME for some)"
	@echo "make check           style, types, imports, conformance marks"
	@echo "make bench NAME=...  one benchmark, for example append (ARGS='--on postgres' for some back-ends)"
	@echo "make servers         real servers on loopback until Ctrl-C (ARGS='postgres kafka' for some)"
	@echo "make conformance     statements of docs/spec and the tests that name them"
	@echo "make audit           security rules, pins and hashes, known vulnerabilities"
	@echo "make release         the same; then wheel and sdist, the same bytes each time, and what is in them"
	@echo "make lock            constraints.txt anew from pyproject.toml (ARGS='--upgrade-package NAME'); needs uv"
	@echo "make clean           remove .venv and everything that was built"

setup: $(STAMP) $(CLASSES)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Strandline needs Python 3.11 or newer; $(PYTHON) is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) lacks venv; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@echo "Setting up .venv (about 2 minutes: PySpark is 450 MB)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement constraints.txt
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# What they are made of, and not the stamp: environments may share that, and it is touched when one is renewed.
$(CLASSES): pyproject.toml constraints.txt | $(STAMP)
	@$(BIN)/strandline pipeline prepare || echo "Spark will start without them, only slower"
	@touch $@

demo: $(STAMP) $(CLASSES)
	@$(BIN)/strandline demo --on $(ON) $$([ ! -t 1 ] || echo --serve)

# The console's tests need Chromium. Where there is none, and this user may install Debian's, that is done beside pip.
$(BROWSER):
	@mkdir -p $(@D)
	@if { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null; then touch $@; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "Installing Chromium, for the tests of the console"; \
		export DEBIAN_FRONTEND=noninteractive; \
		{ apt-get update && apt-get install -y --no-install-recommends chromium; } >$@.log 2>&1 && touch $@ \
			|| { tail -3 $@.log; echo "Without Chromium the tests of the console cannot run"; }; \
	else echo "Without Chromium the tests of the console cannot run; on Debian: apt-get install chromium"; fi

# Once, beside the browser, and not in each lane: to find the tests is to compile them.
$(COMPILED): $(STAMP)
	@$(BIN)/python -m compileall -q -j 0 src
	@$(BIN)/pytest --collect-only -qq >/dev/null || true # what is wrong with a test is said when it is run
	@touch $@

prepared:
	@$(MAKE) --no-print-directory --jobs 2 $(CLASSES) $(BROWSER) $(COMPILED)

test: prepared
	@$(BIN)/pytest -n $(LANES) --durations 20 $(ARGS) || $(BIN)/python tools/again.py $$?

pictures: $(STAMP) $(BROWSER)
	@STRANDLINE_PICTURES=docs/images $(BIN)/pytest -q -p no:randomly tests/console/test_pictures.py

soak: $(STAMP) $(CLASSES)
	@STRANDLINE_SOAK=1 $(BIN)/pytest -n $(LANES) -m "soak or hypothesis" -o timeout=3600 $(ARGS)

faults: $(STAMP)
	@$(BIN)/python tools/faults.py $(ARGS)

check: $(STAMP)
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python tools/conformance.py --brief --strict

bench: $(STAMP) $(CLASSES)
	@$(BIN)/strandline bench $(NAME) $(ARGS)

servers: $(STAMP)
	@$(BIN)/strandline servers $(ARGS)

conformance: $(STAMP)
	@$(BIN)/python tools/conformance.py $(ARGS)

audit: $(STAMP)
	@$(BIN)/python tools/release.py audit

release: audit
	@$(BIN)/python tools/release.py build

# Versions that are locked stay, unless they no longer fit. No address of an index gets into the file.
lock:
	@uv pip compile pyproject.toml --quiet --extra dev --universal --generate-hashes --no-emit-package strandline \
		--no-emit-index-url --no-emit-find-links --no-header --no-annotate --output-file constraints.txt $(ARGS)

clean:
	rm -rf .venv build dist demo-out bench-out spark-warehouse .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
