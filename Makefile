# Two commands matter to a newcomer: `make demo` and `make test`. Both install first, into .venv.
PYTHON ?= python3
BIN := .venv/bin
EXTRAS := train,plot,openvino,quantize,serve,faiss,milvus,postgres,dev
TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

LEAN := .venv-lean/bin
# The protocols, and what leads to them: all of it runs on a server that has no torch.
PROTOCOLS := tests/bench/test_megaface.py tests/cli/test_embed.py tests/cli/test_evaluate.py tests/cli/test_models.py \
	tests/data tests/embed tests/evaluation tests/metrics tests/reports

.PHONY: install demo test test-lean check format bench docs clean

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

# The protocols where torch is not installed.
test-lean: .venv-lean/installed
	! $(LEAN)/python -c 'import torch' 2>/dev/null
	OMP_NUM_THREADS=1 $(LEAN)/python -m pytest --numprocesses=auto --dist=worksteal $(PROTOCOLS)

.venv-lean/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-lean
	$(LEAN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[plot]' pytest pytest-xdist pytest-timeout hypothesis onnx scikit-image scikit-learn playwright
	touch $@

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
	rm -rf .venv .venv-lean site dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
