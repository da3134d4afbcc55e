# Two commands matter to a newcomer: `make demo` and `make test`. Both install first, into .venv.
PYTHON ?= python3
BIN := .venv/bin
EXTRAS := train,plot,openvino,quantize,serve,faiss,milvus,postgres,dev
TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: install demo test check format bench docs clean

install: .venv/installed

# torch comes first and alone, so that whatever asks for torch later finds it there.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) pip
	$(PIP) torch==$(TORCH)
	$(PIP) --editable '.[$(EXTRAS)]'
	touch $@

demo: install
	$(BIN)/sphereface demo

# Workers share the cores, so each computes with one thread.
test: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=auto --dist=worksteal

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Against peers, which only the benchmark needs.
bench: install
	$(PIP) --editable '.[peers]'
	$(BIN)/python -m sphereface.bench head --json > head.json.part
	mv head.json.part results/head.json

docs: install
	$(BIN)/mkdocs build --strict

clean:
	rm -rf .venv site dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
