# Two commands matter to a newcomer: `make demo` and `make test`. Both install first, into .venv.
PYTHON ?= python3
BIN := .venv/bin
EXTRAS := train,plot,sface,secure,dev
TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# What runs on a server that has no torch, and its tests' own tools.
WITHOUT_TORCH := tests/audit tests/bench/test_audit.py tests/bench/test_megaface.py tests/cli/test_embed.py \
	tests/cli/test_evaluate.py tests/cli/test_models.py tests/cli/test_recognition.py tests/data tests/embed \
	tests/engines tests/evaluation tests/faces tests/gallery tests/metrics tests/recognize tests/reports tests/test_contract.py tests/test_graphs.py tests/test_mutated_files.py tests/test_downloads.py tests/zoo
TOOLS := pytest pytest-xdist pytest-timeout hypothesis scikit-image scikit-learn playwright
LEAN := .venv-lean/bin
FLOOR := .venv-floor/bin
NEWEST := 2026-11-18

.PHONY: install demo test test-lean test-floor check format bench docs clean

install: .venv/installed

# torch comes first and alone, so that whatever asks for torch later finds it there.
.venv/installed: pyproject.toml weights/pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) pip
	$(PIP) torch==$(TORCH)
	$(PIP) --editable '.[$(EXTRAS)]' --editable ./weights
	touch $@

demo: install
	$(BIN)/sphereface demo

# Workers share the cores, so each computes with one thread.
test: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=auto --dist=worksteal

# Where torch is not installed.
test-lean: .venv-lean/installed
	! $(LEAN)/python -c 'import torch' 2>/dev/null
	OMP_NUM_THREADS=1 $(LEAN)/python -m pytest --numprocesses=auto --dist=worksteal $(WITHOUT_TORCH)

.venv-lean/installed: pyproject.toml weights/pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-lean
	$(LEAN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[plot,sface,secure]' --editable ./weights $(TOOLS)
	touch $@

# The same with the oldest versions that pyproject.toml allows; old packages warn about new ones, which is no error here.
test-floor: .venv-floor/installed
	! $(FLOOR)/python -c 'import torch' 2>/dev/null
	OMP_NUM_THREADS=1 $(FLOOR)/python -m pytest -W ignore --numprocesses=auto --dist=worksteal $(WITHOUT_TORCH)

# What our dependencies ask for is as new as on one day, so that a run can be repeated; the tools are those of the pins.
.venv-floor/installed: pyproject.toml weights/pyproject.toml constraints.txt .ci/floors.py
	$(PYTHON) -m venv --clear .venv-floor
	$(FLOOR)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	$(FLOOR)/uv pip install --quiet --python $(FLOOR)/python --resolution lowest-direct --exclude-newer $(NEWEST) \
		--editable '.[plot,sface,secure]' --editable ./weights $(foreach tool,$(TOOLS),$(shell grep '^$(tool)==' constraints.txt))
	$(FLOOR)/python .ci/floors.py
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
	rm -rf .venv .venv-lean .venv-floor site dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
