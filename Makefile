# Every target runs in .venv, which is made on first use from constraints.txt. ARGS passes options on:
#   make reproduce ARGS="seeds=[0] output_dir=outputs/mine"
PYTHON ?= python3
BIN := .venv/bin
RESULTS := $(wildcard outputs/results/clipnorm/*.jsonl)
PAPER_RESULTS := $(wildcard $(foreach study,clipnorm nonconvex rnmm epochs,outputs/results/$(study)*/*.jsonl))
# accuracy against epochs is one figure over its studies, of paper_figures
DRAWN := $(filter clipnorm rnmm nonconvex%,$(notdir $(wildcard outputs/results/*)))

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

reproduce: .venv/.installed  ## the clip-norm sweep on Fashion-MNIST, to its table and figure (resumes; about 10 minutes)
	$(BIN)/python scripts/get_data.py fashion_mnist && $(BIN)/python -m dpexp.run +sweep=clipnorm $(ARGS)

smoke: .venv/.installed  ## the same path on a small grid, under a minute
	$(BIN)/python scripts/get_data.py fashion_mnist && $(BIN)/python -m dpexp.run +sweep=smoke $(ARGS)

tables: outputs/tables/clipnorm.csv  ## rebuild the tables from stored results

figures: outputs/figures/figure2b.pdf  ## rebuild the figures from stored results

paper-l: tables figures outputs/tables/paper_l.csv outputs/figures/figure3.png outputs/tables/theory.md  ## rebuild every table and figure of paper L from stored results

outputs/tables/clipnorm.csv: $(RESULTS) .venv/.installed
	$(BIN)/python -m dpexp.tables

outputs/figures/figure2b.pdf: $(PAPER_RESULTS) .venv/.installed
	for study in $(DRAWN); do $(BIN)/python -m dpexp.figures outputs/results/$$study || exit 1; done

outputs/tables/paper_l.csv: $(PAPER_RESULTS) .venv/.installed
	$(BIN)/python -m dpexp.paper_tables

outputs/figures/figure3.png: $(PAPER_RESULTS) .venv/.installed
	$(BIN)/python -m dpexp.paper_figures

outputs/tables/theory.md: $(wildcard outputs/results/theory/*.jsonl) .venv/.installed
	$(BIN)/python -m dpexp.theory_figures

bench: .venv/.installed  ## packed training against Opacus and against its own matrix products
	$(BIN)/python scripts/bench_mlp.py $(ARGS) && $(BIN)/python scripts/bench.py $(ARGS)

test: .venv/.installed-dev  ## run the tests
	$(BIN)/python -m pytest $(ARGS)

lint: .venv/.installed-dev  ## formatter, linter, type checker
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy

clean:  ## remove what can be made again (never results)
	rm -rf .venv outputs/cache outputs/features outputs/checkpoints outputs/logs outputs/smoke

# pip comes last: a venv that could not be finished (Debian without python3-venv) is made again
.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/.installed: pyproject.toml constraints.txt | .venv/bin/pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable . && touch $@

.venv/.installed-dev: .venv/.installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]" && touch $@

.PHONY: help reproduce smoke tables figures paper-l bench test lint clean
.DEFAULT_GOAL := help
