# `make run` and `make test` do all of their own set-up: they need Python 3.11+, make, and pip's registry.
.DEFAULT_GOAL := help
SHELL := /bin/bash
BIN := .venv/bin
PYTEST := $(BIN)/pytest -n 2
CHECKED := service tests bench
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
PIP := $(BIN)/python -m pip --quiet --no-input --disable-pip-version-check
LOCK := $(BIN)/uv --quiet pip compile --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate pyproject.toml

# RUNLEVEL=1 keeps Debian's redis-server package from starting a server of its own.
define need_debian_package
	@command -v $(1) >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get -qq update && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
	      apt-get -qq install --no-install-recommends $(2) </dev/null >/dev/null; \
	  else echo "$(1) is missing: install Debian's package $(2), or run this as root" >&2; exit 1; fi; }
endef

SEED ?= 1
MINUTES ?= 45

.PHONY: help run test test-long chaos chaos-short scale e2e fuzz bench bench-short profile lint check fmt lock clean

help:  ## This list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

run: .venv/run.stamp  ## Three replicas on the sample cluster, fed with recorded traffic
	$(BIN)/autoscale-enforcer dev --cluster deploy/sample/cluster.json --without-pods --replicas 3 --demo deploy/sample/names.jsonl

test: .venv/dev.stamp  ## Every test that takes seconds
	$(PYTEST) -m "not long and not e2e and not scale"

test-long: .venv/dev.stamp  ## The tests that take minutes or need Debian's redis-server
	$(call need_debian_package,redis-server,redis-server)
	$(call need_debian_package,haproxy,haproxy)
	$(call need_debian_package,faketime,faketime)
	$(PYTEST) -m "long and not e2e"

chaos: .venv/dev.stamp  ## A campaign of faults, and the table of what it found (SEED=1 MINUTES=45 SAVE=file)
	$(call need_debian_package,redis-server,redis-server)
	$(call need_debian_package,faketime,faketime)
	$(BIN)/python -m tests.fault.chaos --seed $(SEED) --minutes $(MINUTES) $(if $(SAVE),--save $(SAVE))

chaos-short: MINUTES = 5
chaos-short: chaos  ## The same for five minutes, each kind of fault at least once

# Building takes minutes the first time, and needs Go unless KUBEBUILDER_ASSETS is set.
e2e: .venv/dev.stamp  ## Against a real kube-apiserver and kube-scheduler
	$(BIN)/python -m tests.e2e.harness.binaries
	$(BIN)/pytest -m e2e tests/e2e

scale: .venv/dev.stamp  ## What is judged by time, in a large cluster or under attack: nothing else should run meanwhile
	$(BIN)/pytest -n 0 -m scale tests/fault

# Its figures are worth something only where nothing else runs. Needs Go for the peer.
bench: .venv/dev.stamp  ## Measure against limits, up to an hour (BENCH="agents filter" for some of it)
	$(call need_debian_package,redis-server,redis-server)
	$(BIN)/python -m bench $(BENCH)

bench-short: .venv/dev.stamp  ## Only see that each bench works and that the answers are right
	$(call need_debian_package,redis-server,redis-server)
	$(BIN)/python -m bench --short

fuzz: .venv/dev.stamp  ## A million hostile requests to a replica (REQUESTS=1000000, SEED=1)
	$(BIN)/python -m tests.fuzz $(if $(REQUESTS),--requests $(REQUESTS)) --seed $(SEED)

profile: .venv/dev.stamp  ## Draw where a replica's time goes into docs/profiles
	$(call need_debian_package,redis-server,redis-server)
	$(BIN)/python -m bench.profile $(PROFILE)

lint: .venv/dev.stamp  ## Format, lint, types, Lua lint, layers
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/mypy
	$(call need_debian_package,luacheck,lua-check)
	luacheck --quiet --no-color lua
	$(BIN)/lint-imports --no-cache --no-logo

check: lint test  ## What must pass before a commit

fmt: .venv/dev.stamp  ## Write what lint would complain about, where a tool can
	$(BIN)/ruff check --fix-only $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

# run.txt holds what is in runtime.txt, dev.txt what is in run.txt, in the same versions.
lock: .venv/dev.stamp  ## Lock again after a change of dependencies (UPGRADE=--upgrade takes newer ones)
	$(LOCK) $(UPGRADE) --output-file requirements/runtime.txt
	$(LOCK) $(UPGRADE) --extra embedded --group build --constraints requirements/runtime.txt --output-file requirements/run.txt
	$(LOCK) $(UPGRADE) --extra embedded --group dev --constraints requirements/run.txt --output-file requirements/dev.txt

clean:  ## Everything that make has made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build

.venv/bin/python:
	@[ -n "$(PYTHON)" ] || { echo "Python 3.11 or newer is missing; name one with make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/%.stamp: requirements/%.txt pyproject.toml | .venv/bin/python
	$(PIP) install --require-hashes --requirement $<
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@
