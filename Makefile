# Each target does all its own set-up, and is quick the second time.
.DEFAULT_GOAL := help
PY := .venv/bin/python
export PYTHONPATH := src
# Compiled modules are kept, whatever the shell says: else each of the processes that the tests start compiles its own.
unexport PYTHONDONTWRITEBYTECODE
# Where Debian keeps what only root calls: ip, iptables, conntrack. A plain `su` leaves them out.
export PATH := $(PATH):/usr/sbin:/sbin

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup:
	@scripts/setup.sh run
dev:
	@scripts/setup.sh dev

# What one checkout's types were found to be, the next one takes: a second of a processor where all of it takes 35.
lint: export MYPY_CACHE_DIR ?= $(or $(DAYFLY_CACHE),$(HOME)/.cache/dayfly)/mypy
lint: dev  ## style, types, imports between packages, formatting, prose
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-cache
	$(PY) scripts/prose.py

format: dev  ## lay the code out as the linter wants it
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

run: setup  ## the main job, once, from nothing to nothing, in about ten seconds
	@examples/sqlite-notes/demo.sh

# Four workers on two processors: most tests wait now and then. What takes longest comes first.
ALL_WORKERS := -n 4 --dist loadfile --no-loadscope-reorder

page:  ## build the page that a browser shows, where dayfly serves it from (needs Node, or fetches one from PyPI)
	@scripts/page.sh

docs:  ## the docs as a site with a search, in dist/docs
	@scripts/setup.sh docs
	@.cache/docs/bin/python scripts/docs.py dist/docs

recording:  ## film the README's first commands in a terminal anew: docs/recording.svg
	@scripts/setup.sh docs
	@scripts/setup.sh run
	@.cache/docs/bin/python scripts/recording.py docs/recording.svg

test check: export DAYFLY_TEST_SEED := $(SEED)
test check: export DAYFLY_TEST_SLICE := $(SLICE)

test: dev  ## what a change must pass, in minutes; SEED=... SLICE=k/n repeats a selection (tests/selection.py)
	@scripts/test-deps.sh
	@$(PY) -m tests.tools runner
	@$(PY) -m tests.tools & $(PY) -m pytest $(ALL_WORKERS); code=$$?; wait; exit $$code

# `make proof PARTS=tests/model` plays everything of a part.
proof: dev  ## everything, in hours: writes its results into tests/proof.md
	@scripts/test-deps.sh
	DAYFLY_TEST_SLICE=all $(PY) -m tests.tools
	DAYFLY_TEST_SLICE=all $(PY) -m pytest $(ALL_WORKERS) --proof-page tests/proof.md $(PARTS)

# TESTS and MARKS choose other tests than the quick ones of the packages' folders.
mutants: dev  ## report which small changes of the code no test notices: PACKAGE="plan operator/effects.py" SAMPLE=50 SEED=1
	@$(PY) scripts/mutants.py $(or $(PACKAGE),plan) --sample $(or $(SAMPLE),0) $(if $(SEED),--seed $(SEED)) \
		$(if $(TESTS),--tests $(TESTS)) $(if $(MARKS),--marks '$(MARKS)') $(ARGS)

bench: setup  ## measure speed and memory on one machine, and write bench/results/machine.md
	$(PY) -m bench.report machine

bench-cluster: dev  ## the same in a separate Kubernetes and on KWOK nodes: bench/results/cluster.md
	$(PY) -m bench.report cluster

bench-server: dev  ## a server with 50 agents and 10,000 sandboxes, and routes: bench/results/server.md
	$(PY) -m bench.report server

bench-pools: setup  ## six patterns of requests to a pool, in virtual time: bench/results/pools.md
	$(PY) -m bench.report pools

operator-setup:
	@scripts/setup.sh operator

cluster: operator-setup  ## try it for real: a Kubernetes of its own with Dayfly and an example (Linux, root, Go); SERVER=1: and a server
	$(PY) deploy/trial.py up $(if $(SERVER),--server)

image: operator-setup  ## the image, as an OCI archive in dist/ (deploy/Dockerfile: with a registry's base image)
	@mkdir -p dist
	$(PY) deploy/image.py dist/dayfly-$$(uname -m).tar

uninstall: setup  ## drain that cluster, take Dayfly out of it and end it
	$(PY) deploy/trial.py down

check: lint  ## lint and the quick tests
	@scripts/test-deps.sh
	@$(PY) -m tests.tools runner sdk terraform
	$(PY) -m pytest -n 4 --dist loadfile -m 'not slow and not heavy and not cluster'

lock: dev  ## renew requirements/*.txt from pyproject.toml (versions and hashes, no addresses)
	scripts/lock.sh

.PHONY: help setup dev run page docs recording test proof mutants bench bench-cluster bench-server bench-pools cluster operator-setup image uninstall lint format check lock
