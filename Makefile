# Every target sets up first; set-up is quick when requirements.lock and pyproject.toml have not changed.
BIN := .venv/bin
UV_VERSION := 0.13.9

.PHONY: help setup run test test-slow test-spark-local lint docs bench bench-memory lock clean

help:
	@echo "make run               set-up, then the sample corpus into out/sample"
	@echo "make test              set-up, then the fast tests and doctests"
	@echo "make test-slow         faults, byte equality, the Spark runner"
	@echo "make test-spark-local  the Spark runner alone (Java and Maven)"
	@echo "make lint              ruff check, ruff format --check, mypy"
	@echo "make docs              write what the docs take from the code and the outputs that they show"
	@echo "make bench             milliseconds per document by stage"
	@echo "make bench-memory      peak memory of a run over 2 GB"
	@echo "make lock              resolve requirements.lock again"
	@echo "make clean             remove .venv, out and caches"

setup:
	@bash tools/setup.sh

run: setup
	$(BIN)/sluice run sample --input sample_data/corpus --output out/sample

test: setup
	$(BIN)/python -m pytest -m "not slow"

test-slow: setup
	$(BIN)/python -m pytest -m slow

test-spark-local: setup
	$(BIN)/python -m pytest -m spark

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: setup
	$(BIN)/python -m pipeline.catalogue_text docs/*.md
	$(BIN)/python tests/documents.py

bench: setup
	$(BIN)/python benchmarks/bench_stages.py

bench-memory: setup
	$(BIN)/python benchmarks/bench_memory.py

lock: setup
	@test -x .cache/uv-$(UV_VERSION)/bin/uv || { $(BIN)/python -m venv .cache/uv-$(UV_VERSION) && \
		.cache/uv-$(UV_VERSION)/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION); }
	.cache/uv-$(UV_VERSION)/bin/uv pip compile pyproject.toml --group dev --generate-hashes --python-version 3.11 \
		--no-emit-index-url --no-emit-find-links --no-annotate --no-header --quiet --output-file requirements.lock

clean:
	rm -rf .venv .cache out build dist *.egg-info
