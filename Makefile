# Each target first sets up .venv: once, and again where that was interrupted or requirements.lock has changed.

.DEFAULT_GOAL := help
.PHONY: help report figures test test-all test-long test-cluster sanitize record lint lock peers

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/ready
PYTEST := $(RUN) -m pytest --numprocesses logical --maxprocesses 8 --dist worksteal

fail = { echo 'error: $(1)' >&2; exit 1; }

define CHECK_PYTHON
@command -v '$(BASE)' >/dev/null \
	    || $(call fail,$(BASE) not found; install Python (Debian: apt install python3 python3-venv) or say PYTHON=...)
	@'$(BASE)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || $(call fail,$(BASE) is older than Python 3.11; name a newer one: make PYTHON=python3.12 ...)
	@'$(BASE)' -c 'import ensurepip, venv' 2>/dev/null \
	    || $(call fail,$(BASE) cannot make virtual environments; install venv (Debian: apt install python3-venv))
endef

help:
	@echo 'make report   measure on this machine and write results/report.html'
	@echo '              SCALE=full for the long run, ARGS=--unlock after a power cut'
	@echo 'make figures  write it from what has been measured so far and what is on record'
	@echo 'make test     run the tests'
	@echo 'make test-all run these and the slow ones'
	@echo 'make test-long'
	@echo '              run the longest ones: whole products of cases, tens of thousands of draws, many seeds'
	@echo 'make test-cluster'
	@echo '              start Slurm on this machine, as root, and run the tests that need it'
	@echo 'make sanitize run every kernel once, watched by compute-sanitizer, without a GPU by those of g++; ARGS=--only cartpole'
	@echo 'make lint     check the style of the code'
	@echo 'make lock     resolve pyproject.toml anew into requirements.lock and environment.yml, with uv'
	@echo '              ARGS=--upgrade for the newest versions'
	@echo 'make record   measure at full scale into results/recorded/<machine>/'
	@echo '              MACHINE=<machine>'
	@echo 'make peers    set up the libraries that the port is compared with, some 2 GB'
	@echo 'All take PYTHON=<Python 3.11 or later> and ARGS=<more options for the command underneath>.'

report: $(READY)
	$(RUN) -m snakemake --cores all $(if $(SCALE),--config scale=$(SCALE)) $(ARGS)

figures: $(READY)
	$(RUN) -m lockstep.paper.build $(ARGS)

test: $(READY)
	$(PYTEST) -m 'not slow and not long' $(ARGS)

test-all: test
	$(PYTEST) -m 'slow and not long' $(ARGS)

test-long: $(READY)
	$(PYTEST) -m long $(ARGS)

# Snakemake's plugin, which requirements.lock leaves out, lies beside the environment.
PLUGIN := $(VENV)-slurm
test-cluster: $(READY) $(PLUGIN)/ready
	PYTHONPATH="$$PWD/$(PLUGIN)" $(RUN) -m pytest tests/cluster $(ARGS)

$(PLUGIN)/ready: profiles/slurm/requirements.txt | $(READY)
	$(RUN) -m pip install --quiet --no-deps --upgrade --target $(PLUGIN) --requirement $<
	@touch $@

sanitize: $(READY)
	$(RUN) -m tests.sanitize $(ARGS)

lint: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m snakefmt --check Snakefile rules
	$(RUN) -m snakemake --lint

record: $(READY)
	@test -n '$(MACHINE)' || $(call fail,give this machine a name: make record MACHINE=xeon-2core)
	$(RUN) -m lockstep.experiments.record --machine '$(MACHINE)' --scale $(or $(SCALE),full) $(ARGS)

UV ?= uv
lock:
	UV_CUSTOM_COMPILE_COMMAND='make lock' $(UV) pip compile --quiet pyproject.toml --output-file requirements.lock $(ARGS)
	@{ sed '/- pip:/q' environment.yml; sed -n 's/^[a-z0-9].*==/      - &/p' requirements.lock; } >environment.yml.new
	@mv environment.yml.new environment.yml

# Each peer has an environment of its own; one that cannot be installed takes no other down with it, and its log
# tells the experiments why. NO_TRAIN: PufferLib without its learner.
WORKERS := experiments/peer_workers experiments/learning_workers
PEERS := $(patsubst %.txt,$(VENV)-peers/%/ready,$(notdir $(wildcard $(WORKERS:%=%/*.txt))))
vpath %.txt $(WORKERS)

peers: $(PEERS)

$(PEERS): $(VENV)-peers/%/ready: %.txt
	$(CHECK_PYTHON)
	@echo 'Setting up $(@D), a minute or two.'
	@'$(BASE)' -m venv --clear $(@D)
	@NO_TRAIN=1 $(@D)/bin/python -m pip install --requirement $< >$(@D)/install.log 2>&1 && touch $@ \
	    || echo 'Note: $* is left out, since it does not install here; $(@D)/install.log says why.'

# Python compiles packages when they are first imported, which takes half the time that pip would for all of them.
COMPILE := $(if $(PYTHONDONTWRITEBYTECODE),,--no-compile )
# Without a GPU: torch's CPU build where pip sees one. With one: its standard build, which brings the CUDA libraries.
HAS_GPU := $(shell command -v nvidia-smi || ls /proc/driver/nvidia/version 2>/dev/null)
TORCH := $(shell sed -n 's/^torch==//p' requirements.lock)
NO_CPU_BUILD = Note: pip sees no CPU build of torch $(TORCH) and takes the standard one with gigabytes of CUDA \
    libraries, which a machine without an NVIDIA GPU does not use. docs/reproduce.md says how to get the small one.

# A .venv whose Python no longer runs, say after an upgrade of the system, counts as not set up.
ifeq ($(shell $(RUN) -c 'print(1)' 2>/dev/null),1)
BASE := $(RUN)
else
BASE := $(PYTHON)
.PHONY: $(READY)
endif

$(READY): requirements.lock pyproject.toml
	@for program in $${CXX:-c++ g++ clang++}; do command -v "$$program" >/dev/null && exit 0; done; \
	    $(call fail,no C++ compiler found; install one (Debian: apt install g++) or name one in CXX)
	$(CHECK_PYTHON)
	@echo 'Setting up $(VENV): some 140 packages, a few minutes.'
	@$(RUN) -m pip --version >/dev/null 2>&1 || '$(PYTHON)' -m venv --clear $(VENV)
	@test -n '$(HAS_GPU)' || test "$$(uname -s)" != Linux \
	    || $(RUN) -c 'from importlib.metadata import version as v; assert v("torch").startswith("$(TORCH)")' 2>/dev/null \
	    || $(RUN) -m pip install $(COMPILE)'torch==$(TORCH)+cpu' 2>/dev/null \
	    || echo '$(NO_CPU_BUILD)'
	$(RUN) -m pip install $(COMPILE)--requirement requirements.lock
	$(RUN) -m pip install --no-deps --no-build-isolation --editable .
	@touch $@
