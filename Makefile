# make run    install once, prepare the small data set, run mlbench
# make test   every test (the same as .ci/run, which also requires the optional services)
# make check  ruff, mypy and the fast tests, under a minute
# make bench  the performance suite: ratios against peers, side by side

.DEFAULT_GOAL := help
SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
# MPI is built into Horovod when its compiler is there; installing it later builds Horovod again.
MPI := $(if $(shell command -v mpicxx),mpi,gloo)
ARGS ?=
NATIVE := mlbench/worker/native
RUN_READY := $(VENV)/.ready-run
HOROVOD_READY := $(VENV)/.ready-horovod-$(MPI)
NATIVE_READY := $(VENV)/.ready-native
TEST_READY := $(VENV)/.ready-test
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help run install test check bench format clean

help:
	@sed -n 's/^# make/make/p' Makefile

run: install
	@MLBENCH_HOME="$${MLBENCH_HOME:-$(CURDIR)}" $(BIN)/mlbench $(ARGS)

install: $(RUN_READY) $(HOROVOD_READY) $(NATIVE_READY)

test: install $(TEST_READY)
	$(BIN)/python -m pytest

check: install $(TEST_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -x -n 2 -m "not slow and not training and not slurm and not netns and not browser and not postgres and not s3 and not python38"

bench: install $(TEST_READY)
	$(BIN)/python -m tests.performance $(ARGS)

format: $(TEST_READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist *.egg-info

$(BIN)/python:
	@./.ci/bootstrap $(VENV)

$(RUN_READY): $(BIN)/python requirements.lock pyproject.toml setup.py
	@echo "installing the pinned packages into $(VENV)"
	@$(BIN)/python -m pip install --quiet --requirement requirements.lock
	@$(BIN)/python -W ignore -m pip install --quiet --no-deps --no-build-isolation --editable . 2>$(VENV)/install.log \
	  || { cat $(VENV)/install.log >&2; exit 2; }
	@touch $@

$(HOROVOD_READY): $(RUN_READY)
	@echo "building Horovod against MXNet ($(if $(filter mpi,$(MPI)),Gloo and MPI,Gloo; install openmpi-bin and libopenmpi-dev for MPI too)), about three minutes"
	@PATH="$(CURDIR)/$(BIN):$$PATH" HOROVOD_WITH_MXNET=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 \
	  HOROVOD_WITH_GLOO=1 $(if $(filter mpi,$(MPI)),HOROVOD_WITH_MPI=1,HOROVOD_WITHOUT_MPI=1) MAKEFLAGS=-j2 \
	  $(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --force-reinstall --no-cache-dir \
	  $$(sed -n 's/^# build: //p' requirements.lock) >$(VENV)/horovod-build.log 2>&1 \
	  || { tail -n 20 $(VENV)/horovod-build.log; echo "Horovod could not be built; the whole output is in $(VENV)/horovod-build.log" >&2; exit 2; }
	@rm -f $(VENV)/.ready-horovod-*
	@touch $@

$(NATIVE_READY): $(RUN_READY) $(wildcard $(NATIVE)/*.[ch]) $(NATIVE)/build.py
	@$(BIN)/python $(NATIVE)/build.py
	@touch $@

$(TEST_READY): $(RUN_READY) requirements-dev.lock
	@echo "installing the pinned test tools"
	@$(BIN)/python -m pip install --quiet --requirement requirements-dev.lock
	@touch $@
