# Each target does its own setup, which is fast when repeated.
.DEFAULT_GOAL := help
PY := .venv/bin/python
export PYTHONPATH := src
# Keep compiled modules whatever the shell sets: otherwise each process that a test starts compiles them again.
unexport PYTHONDONTWRITEBYTECODE
# The folders in which Debian installs ip, iptables and conntrack. `su` without a dash removes them from the path.
export PATH := $(PATH):/usr/sbin:/sbin

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup:
	@scripts/setup.sh run
dev:
	@scripts/setup.sh dev

# Checkouts share mypy's cache: with it, mypy needs 1 second of CPU time instead of 35.
lint: export MYPY_CACHE_DIR ?= $(or $(DAYFLY_CACHE),$(HOME)/.cache/dayfly)/mypy
lint: dev  ## check style, types, imports between packages, formatting and prose
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-cache
	$(PY) scripts/prose.py

format: dev  ## format the code, and fix style errors that can be fixed automatically
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

run: setup  ## run the main workflow once: create a sandbox, use it, delete it (about ten seconds)
	@examples/sqlite-notes/demo.sh

# Four workers on two CPUs, because most tests wait at times. The slowest files run first.
ALL_WORKERS := -n 4 --dist loadfile --no-loadscope-reorder

page:  ## build the web page into the package (needs Node, or downloads it from PyPI)
	@scripts/page.sh

docs:  ## build the docs as a site with search, in dist/docs
	@scripts/setup.sh docs
	@.cache/docs/bin/python scripts/docs.py dist/docs

recording:  ## record the first commands of the README in a terminal: docs/recording.svg
	@scripts/setup.sh docs
	@scripts/setup.sh run
	@.cache/docs/bin/python scripts/recording.py docs/recording.svg

test check: export DAYFLY_TEST_SEED := $(SEED)
test check: export DAYFLY_TEST_SLICE := $(SLICE)

test: dev  ## run the tests that CI runs, in minutes; SEED=... SLICE=k/n repeats a selection (tests/selection.py)
	@scripts/test-deps.sh
	@$(PY) -m tests.tools runner
	@$(PY) -m tests.tools & $(PY) -m pytest $(ALL_WORKERS); code=$$?; wait; exit $$code

# `make proof PARTS=tests/model` runs all tests of a folder.
proof: dev  ## run all tests, in hours, and write the results to tests/proof.md
	@scripts/test-deps.sh
	DAYFLY_TEST_SLICE=all $(PY) -m tests.tools
	DAYFLY_TEST_SLICE=all $(PY) -m pytest $(ALL_WORKERS) --proof-page tests/proof.md $(PARTS)

# TESTS and MARKS select other tests than the quick ones of the packages.
mutants: dev  ## report small changes of the code that no test detects: PACKAGE="plan operator/effects.py" SAMPLE=50 SEED=1
	@$(PY) scripts/mutants.py $(or $(PACKAGE),plan) --sample $(or $(SAMPLE),0) $(if $(SEED),--seed $(SEED)) \
		$(if $(TESTS),--tests $(TESTS)) $(if $(MARKS),--marks '$(MARKS)') $(ARGS)

bench: setup  ## measure speed and memory on one machine: bench/results/machine.md
	$(PY) -m bench.report machine

bench-cluster: dev  ## measure speed and memory in a new Kubernetes cluster and on KWOK nodes: bench/results/cluster.md
	$(PY) -m bench.report cluster

bench-server: dev  ## measure a server with 50 agents and 10,000 sandboxes, and routes: bench/results/server.md
	$(PY) -m bench.report server

bench-pools: dev  ## measure pools on one machine, with PostgreSQL, and in virtual time: bench/results/pools.md
	$(PY) -m bench.report pools

operator-setup:
	@scripts/setup.sh operator

cluster: operator-setup  ## start a Kubernetes cluster with Dayfly and an example (Linux, root, Go); SERVER=1 adds a server
	$(PY) deploy/trial.py up $(if $(SERVER),--server)

image: operator-setup  ## build the image as an OCI archive in dist/ (deploy/Dockerfile uses a base image of a registry)
	@mkdir -p dist
	$(PY) deploy/image.py dist/dayfly-$$(uname -m).tar

release: operator-setup  ## build the files of a release in dist/release from the tag of the version; REF=HEAD rehearses
	$(PY) scripts/release.py dist/release $(if $(REF),--ref $(REF))

uninstall: setup  ## drain the cluster of `make cluster`, uninstall Dayfly from it, and delete it
	$(PY) deploy/trial.py down

check: lint  ## run lint and the quick tests
	@scripts/test-deps.sh
	@$(PY) -m tests.tools runner sdk terraform
	$(PY) -m pytest -n 4 --dist loadfile -m 'not slow and not heavy and not cluster'

lock: dev  ## update requirements/*.txt from pyproject.toml (versions and hashes, no addresses)
	scripts/lock.sh

.PHONY: help setup dev run page docs recording test proof mutants bench bench-cluster bench-server bench-pools cluster operator-setup image release uninstall lint format check lock
