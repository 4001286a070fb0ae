# Everything a newcomer needs: `make demo` and `make test`. Both set up their own virtual environment first.
# Python 3.11 or newer and make are all that has to be there. Another interpreter: make PYTHON=python3.13 test

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready-dev

# A folder of real baskets beside the checkout, if there is one; tests marked `data` are skipped without it.
NDPP_DATA ?= $(abspath $(wildcard ../shared/data))
export NDPP_DATA

# One BLAS thread: small matrices do not gain from more, and two test runs side by side lose.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 VECLIB_MAXIMUM_THREADS=1

CHECK := import sys; sys.version_info >= (3, 11) or sys.exit("ndpp needs Python 3.11 or newer; " + sys.executable + " is " \
  + sys.version.split()[0] + ". Remove $(VENV) if it is there and name another one: make PYTHON=python3.12 $(MAKECMDGOALS)")

.DEFAULT_GOAL := help
.PHONY: help setup demo serve-demo test test-matrix lint format docs bench figures timings compare mutants fuzz clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## Create the virtual environment and install everything into it

# A stamp says that these extras are installed. The demonstration does without the tools of development.
$(VENV)/.ready-demo: EXTRAS := cli,learn,plot,data
$(VENV)/.ready-serve: EXTRAS := cli,learn,plot,data,serve
$(VENV)/.ready-dev: EXTRAS := dev
$(VENV)/.ready-%: pyproject.toml experiments/pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -c '$(CHECK)'
	@echo "Setting up $(VENV) (once; a few minutes)"
	@$(BIN)/python -c "import pip" 2>/dev/null || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c '$(CHECK)'
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]' -e experiments
	@touch $@

demo: $(VENV)/.ready-demo  ## Learn from a year of groceries why people shop and what goes together, recommend, draw baskets
	@$(ONE_THREAD) $(BIN)/ndpp demo

serve-demo: $(VENV)/.ready-serve  ## Serve the model of the demonstration: a page at http://127.0.0.1:8000
	@test -f demo-output/groceries.safetensors || $(ONE_THREAD) $(BIN)/ndpp demo
	@$(BIN)/ndpp serve demo-output/groceries.safetensors

# The tests start many processes: what one of them has compiled to bytecode, the others need not compile again.
test: $(READY)  ## Run every test (ARGS="-k tree" for some of them)
	PYTHONDONTWRITEBYTECODE= $(ONE_THREAD) $(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

test-matrix: $(READY)  ## Run them on other processors, Pythons and versions, as far as this machine can (ARGS="-- --full")
	$(BIN)/nox $(ARGS)

lint: $(READY)  ## Style, formatting, types and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)  ## Rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## Build the documentation into docs/_build/html; a warning is an error
	@rm -rf docs/api/generated
	$(BIN)/python -m sphinx -b html -W --keep-going -n -q docs docs/_build/html
	@echo "docs/_build/html/index.html"

bench: $(READY)  ## Run the benchmarks (ARGS="-k import" for some of them)
	$(ONE_THREAD) $(BIN)/python -m pytest benchmarks -o python_files='bench_*.py' -o addopts='--import-mode=importlib' $(ARGS)

figures: $(READY)  ## Write every published figure from the recorded results
	$(BIN)/python experiments/publish/figures.py

compare: $(READY)  ## Compare with other libraries where results are missing or old, write the page (ARGS="diverse" for one)
	$(BIN)/python benchmarks/peers/compare.py $(ARGS)

timings: $(READY)  ## Time the samplers (about twelve minutes on two idle cores), keep the results, write the figures
	$(ONE_THREAD) $(BIN)/ndpp reproduce fig2 -o results
	$(ONE_THREAD) $(BIN)/python benchmarks/bench_samplers.py -o results
	$(ONE_THREAD) $(BIN)/python benchmarks/bench_prepare.py -o results/prepare.json
	$(BIN)/python experiments/publish/pictures.py overview
	$(BIN)/python experiments/publish/figures.py

mutants: $(READY)  ## Change the source in 72 places, one at a time, and see which the tests miss (an hour or two)
	@mkdir -p build
	$(BIN)/python tests/helpers/mutation.py list -o build/mutants.json
	$(BIN)/python tests/helpers/mutation.py run build/mutants.json -o build/mutation.json $(ARGS)

fuzz: $(READY)  ## Try inputs nobody thought of, for four minutes (ARGS="kernels --seconds 3600" for more of one kind)
	$(ONE_THREAD) $(BIN)/python tests/helpers/fuzz.py $(ARGS)

clean:  ## Remove what was built, the virtual environment included
	rm -rf $(VENV) .nox docs/_build docs/api/generated build dist .coverage htmlcov coverage.xml .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: coverage build

coverage: $(READY)  ## Run every test and report the lines that none of them reaches, in htmlcov/ and coverage.xml
	$(ONE_THREAD) $(BIN)/python -m pytest -n auto --dist worksteal --cov --cov-report=term --cov-report=html --cov-report=xml $(ARGS)

# What is built is installed into new environments, away from the checkout, and has to run the README's quick start there.
$(VENV)/.ready-release: EXTRAS := release
build: $(VENV)/.ready-release  ## Build wheels and sdists of both packages into dist/, check them, and try them in new environments
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m build --outdir dist experiments
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python .ci/try_dist.py dist
	@mkdir -p build && set -- dist/ndpp-*.tar.gz && version=$${1#dist/ndpp-} && sed -e "s/VERSION/$${version%.tar.gz}/" \
	  -e "s/SHA256/$$(sha256sum $$1 | cut -c-64)/" recipe/recipe.yaml > build/recipe.yaml
