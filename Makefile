# `make demo` and `make test` set up what they need in .venv and nothing outside the
# clone. They need Python 3.11 or newer, make and a package index.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OTHERS := .venv-integrations
# One thread a process: the tests and the audit run several processes or threads.
export OMP_NUM_THREADS ?= 1
# Memory in large pages (glibc): isolation forks a process for each record.
export GLIBC_TUNABLES ?= glibc.malloc.hugetlb=1
# Compiled files are kept: tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-pages test-plain test-full test-changed mutants integrations lint types house docs browser benchmark gpu release clean

help:
	@echo "make demo       audit one training three times, one of them with a planted bug"
	@echo "make test       run the tests"
	@echo "make test-full  run all of them, at full size: an hour and more"
	@echo "make test-pages test pages in Chromium, which make browser installs"
	@echo "make test-plain  run the tests as on a processor without vector instructions"
	@echo "make test-changed  at full size, what lies at or above the files changed since BASE"
	@echo "make mutants    plant faults in the code of bounds and see that a test falls"
	@echo "make integrations  test with Opacus, Lightning, jax-privacy, FLARE and Flower"
	@echo "make lint types check style and types"
	@echo "make docs       build the documentation as a site"
	@echo "make browser    install Chromium, with which pages are tested (Debian, as root)"
	@echo "make house      print the rooms of the code and what imports what"
	@echo "make benchmark  measure against the peers that are installed"
	@echo "make release    build wheel and sdist, and try both in empty environments"
	@echo "make gpu        on a GPU: equality with the CPU, speed, a paper's recipe; JSON"

demo: $(VENV)/ready-all
	@echo "== Auditing DP-DSGD on handwritten digits, three times ..."
	$(BIN)/privaudit demo --out runs/demo

test: $(VENV)/ready-test
	@echo "== Running the tests ..."
	$(BIN)/python -m pytest -n auto --dist loadgroup -q

# Pages in Chromium, of which `make test` tests what needs none.
test-pages: $(VENV)/ready-test
	PRIVAUDIT_TESTS=full $(BIN)/python -m pytest -n auto -q tests/report/test_browser.py \
	  tests/test_docs_site.py

test-full: $(VENV)/ready-test
	PRIVAUDIT_TESTS=full $(BIN)/python -m pytest -n auto --dist loadgroup -q

# As a processor without vector instructions computes: what differs in last bits is seen.
DISPATCHED := from numpy._core._multiarray_umath import __cpu_dispatch__ as d; print(*d)
test-plain: $(VENV)/ready-test
	OPENBLAS_CORETYPE=Prescott ATEN_CPU_CAPABILITY=default \
	  NPY_DISABLE_CPU_FEATURES="$$($(BIN)/python -c '$(DISPATCHED)')" \
	  $(BIN)/python -m pytest -n auto --dist loadgroup -q $(FILES)

# Only what is larger than in `make test`, nearest first, begun within SECONDS.
test-changed: $(VENV)/ready-test
	@files="$$($(BIN)/python -m tests.changed $(BASE))" || exit; \
	[ -z "$$files" ] || PRIVAUDIT_TESTS=full $(BIN)/python -m pytest -n auto --dist loadgroup -q \
	  -m "$(LARGER)" $(if $(SECONDS),--seconds $(SECONDS)) $$files || [ $$? = 5 ]

LARGER := full or sampled or sized or hypothesis

# Others: make mutants MUTANTS="--seed 7 --count 50 --only accounting/pld".
mutants: $(VENV)/ready-test
	$(BIN)/python -m tests.mutants $(MUTANTS)

# Opacus and others, in an environment of their own.
integrations: $(OTHERS)/ready
	$(OTHERS)/bin/python -m pytest -q tests/integrations

lint: $(VENV)/ready-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.words

# What is optional (pytest, hypothesis, pandas) has types of its own.
types: $(VENV)/ready-dev $(VENV)/ready-test
	$(BIN)/pyrefly check

house: $(VENV)/ready-dev
	@$(BIN)/python -m tests.house

# Warnings are errors: a link that leads nowhere, a docstring that cannot be read.
docs: $(VENV)/ready-docs
	$(BIN)/python -m sphinx -q -W --keep-going -c docs . build/site
	@echo "The site is build/site/docs/index.html"

# For tests of pages, which are skipped without it. The only target that installs
# something outside of the clone, and never needed for the others.
browser:
	command -v chromium || command -v google-chrome || \
	  (apt-get update -q && apt-get install -qy --no-install-recommends chromium)

release: $(VENV)/ready-test
	rm -rf build/release
	$(BIN)/python -m pip install -q --disable-pip-version-check build
	$(BIN)/python -m build --outdir build/release . > /dev/null
	$(BIN)/python -m tests.release build/release

gpu: $(VENV)/ready-test
	@$(BIN)/python tests/benchmarks/bench_gpu.py

benchmark: $(VENV)/ready-test
	@for file in tests/benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file; done

$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; try make PYTHON=python3.12"; exit 1; }
	@echo "== Making a virtual environment in $(VENV) ..."
	$(PYTHON) -m venv $(VENV)
	@touch $@

# The extra that a target needs, at the versions of constraints.txt.
$(VENV)/ready-%: $(VENV)/made pyproject.toml constraints.txt
	@echo "== Installing privaudit and what it needs ($*) into $(VENV) ..."
	$(BIN)/python -m pip install -q --disable-pip-version-check \
	  -c constraints.txt -e '.[all$(if $(filter all,$*),,$(comma)$*)]'
	@touch $@

$(OTHERS)/ready: pyproject.toml constraints.txt tests/integrations/requirements.txt tests/integrations/older.txt
	@echo "== Installing privaudit and the tools it works with into $(OTHERS) ..."
	$(PYTHON) -m venv $(OTHERS)
	$(OTHERS)/bin/python -m pip install -q --disable-pip-version-check \
	  -c constraints.txt -e '.[all,test]' -r tests/integrations/requirements.txt
	$(OTHERS)/bin/python -m pip install -q --disable-pip-version-check \
	  'torch==$(TORCH)' -r tests/integrations/older.txt
	@touch $@

# Flower and openmined-psi want older versions of some libraries than constraints.txt has.
TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)
comma := ,

clean:
	rm -rf $(VENV) $(OTHERS) build .pytest_cache .hypothesis .ruff_cache
