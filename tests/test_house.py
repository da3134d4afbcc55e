"""The rules of the house: imports flow one way, torch stays below its line, the front door is lazy and honest."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sphereface

SOURCE = Path(sphereface.__file__).parent

# Top to bottom, as drawn in docs/architecture.md: a room leans only on rooms above it.
ROOMS = [
    "errors", "arrays", "progress", "hashes", "choices", "contract", "graphs", "downloads", "zoo", "metrics", "reports",
    "faces", "data", "engines", "embed", "evaluation", "audit", "gallery", "recognize",
    "geometry", "parallel", "losses", "models", "loading", "training", "bench", "experiments", "doctor",
    "cli", "__main__",
]  # fmt: skip
# The same inside of rooms that have rooms; a module of a room stands in the list, too.
SUBROOMS = {
    "data": ["names", "files", "people", "reading", "manifest", "formats", "joined", "lists", "aligning", "synthetic"],
    "evaluation": ["streaming", "sources", "rules", "groups", "protocols", "calibration", "pages", "__init__"],
    "gallery": [
        "records", "sealing", "values", "schema", "unlocking", "queries", "store", "sqlite", "index", "gallery",
        "transfer", "copies", "__init__",
    ],
    "recognize": [
        "quality", "thresholds", "photos", "answers", "drawing", "grouping", "groups", "recognizer", "reembedding",
        "__init__",
    ],
    "zoo": ["cards", "finding", "model_files", "listing", "pulling", "__init__"],
    "models": ["inputs", "cpu", "spherefacenet", "files", "__init__"],
    "training": [
        "allocation", "config", "recipes", "stopping", "optimizer", "precision", "guard", "teaching", "step",
        "checkpoints", "learner", "validation", "telling", "setting", "run",
    ],
}  # fmt: skip
MOST_MODULES, MOST_LINES = 14, 400
LISTS = {"cli", "experiments"}  # rooms whose files are a list
BELOW_THE_TORCH_LINE = ROOMS[ROOMS.index("geometry") : ROOMS.index("cli")]
MAY_IMPORT_TORCH_LATE = {"engines/torch.py"}
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> list[tuple[str, bool]]:
    """Every imported module with whether the import is late: inside a function, or for type checkers alone."""
    tree = ast.parse(path.read_text())
    late = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            or (isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING")]  # fmt: skip
    inside = {id(node) for each in late for node in ast.walk(each)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in inside) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            homes = sphereface._HOMES if node.module == "sphereface" else {}  # names of the lazy front door
            found += [
                (homes.get(alias.name, f"{node.module}.{alias.name}"), id(node) in inside) for alias in node.names
            ]
    return found


def test_the_plan_has_every_room_and_no_other():
    assert {room_of(path) for path in MODULES} == set(ROOMS)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_flow_one_way(path):
    if path.name == "__main__.py":  # a door, wherever it stands
        return
    late = str(path.relative_to(SOURCE)) in MAY_IMPORT_TORCH_LATE
    for name, inside_function in imports_of(path):
        parts = name.split(".")
        if parts[0] == "sphereface" and len(parts) > 1 and parts[1] in ROOMS and not (late and inside_function):
            assert ROOMS.index(parts[1]) <= ROOMS.index(room_of(path)), f"{path.name} imports {name} from below"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_flow_one_way_inside_of_rooms(path):
    room, *inside = path.relative_to(SOURCE).with_suffix("").parts
    if room not in SUBROOMS or (inside == ["__init__"] and "__init__" not in SUBROOMS[room]):
        return
    plan = SUBROOMS[room]
    for name, _ in imports_of(path):
        parts = name.split(".")
        if parts[:2] == ["sphereface", room] and len(parts) > 2 and parts[2] in plan:
            assert plan.index(parts[2]) <= plan.index(inside[0]), f"{room}/{inside[0]} imports {name} from below"


@pytest.mark.parametrize("room", SUBROOMS)
def test_the_plan_of_a_room_is_whole(room):
    there = {path.relative_to(SOURCE / room).parts[0].removesuffix(".py") for path in (SOURCE / room).rglob("*.py")}
    assert there - {"__init__"} == set(SUBROOMS[room]) - {"__init__"}


def test_no_folder_and_no_module_is_too_large_to_take_in():
    folders = {path.parent for path in MODULES if path.relative_to(SOURCE).parts[0] not in LISTS}
    crowded = [folder for folder in folders if len(list(folder.glob("*.py"))) > MOST_MODULES + 1]  # and __init__.py
    assert crowded == []
    assert [path for path in MODULES if len(path.read_text().splitlines()) > MOST_LINES] == []


def test_tests_mirror_the_tree():
    for path in Path(__file__).parent.rglob("test_*.py"):
        folder = path.parent.relative_to(Path(__file__).parent)
        assert (SOURCE / folder).is_dir(), f"{path}: there is no {SOURCE / folder}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_above_the_torch_line_imports_torch(path):
    if room_of(path) in BELOW_THE_TORCH_LINE:
        return
    late = str(path.relative_to(SOURCE)) in MAY_IMPORT_TORCH_LATE or room_of(path) == "cli"
    for name, inside_function in imports_of(path):
        parts = name.split(".")
        needs_torch = parts[0] == "torch" or (parts[0] == "sphereface" and parts[1] in BELOW_THE_TORCH_LINE)
        if needs_torch:
            assert late, f"{path.name} imports {name}"
            assert inside_function, f"{path.name} imports {name} at its top"


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_rooms_above_the_line_work_where_torch_is_missing():
    above = [".".join(("sphereface", *path.relative_to(SOURCE).with_suffix("").parts)) for path in MODULES
             if room_of(path) in ROOMS[: ROOMS.index("geometry")]]  # fmt: skip
    ran = python(
        "import sys, importlib\nsys.modules['torch'] = None\n"
        f"for name in {above!r}: importlib.import_module(name.removesuffix('.__init__'))\nprint('fine')"
    )
    assert ran.stdout.strip() == "fine", ran.stderr


def test_without_torch_a_loss_says_what_to_install():
    ran = python("import sys\nsys.modules['torch'] = None\nimport sphereface\nsphereface.create_loss")
    assert "needs torch" in ran.stderr
    assert "sphereface[train]" in ran.stderr


def test_importing_the_package_imports_no_torch_and_little_else():
    ran = python("import sphereface, sys; print(sorted({'torch', 'numpy', 'typer', 'pydantic'} & set(sys.modules)))")
    assert ran.stdout.strip() == "[]"


def test_the_command_line_imports_no_torch():
    ran = python("import sphereface.cli, sys; print('torch' in sys.modules)")
    assert ran.stdout.strip() == "False", ran.stderr


@pytest.mark.parametrize(
    "arguments", [["-c", "import sphereface"], ["-m", "sphereface", "--help"]], ids=["import", "help"]
)
def test_the_front_door_opens_within_six_tenths_of_a_second(arguments):
    def once() -> float:
        before = os.times()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    assert min(once() for _ in range(5)) < 0.6  # processor time: other tests run beside this one


def test_all_names_what_is_there():
    for name in sphereface.__all__:
        assert getattr(sphereface, name) is not None
    assert sorted(sphereface.__all__, key=str) == dir(sphereface)
    assert set(sphereface.__all__) == set(sphereface._HOMES) | {"__version__"}


def test_protocols_are_imported_without_torch_onnxruntime_and_plotting():
    heavy = {"torch", "onnxruntime", "matplotlib", "rich", "typer"}
    ran = python(f"import sphereface.evaluation, sphereface.metrics, sys; print(sorted({heavy} & set(sys.modules)))")
    assert ran.stdout.strip() == "[]", ran.stderr


@pytest.mark.parametrize("room", ["evaluation", "losses", "metrics", "models"])
def test_rooms_export_what_they_list(room):
    module = importlib.import_module(f"sphereface.{room}")
    assert all(hasattr(module, name) for name in module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)


def test_an_unknown_name_is_an_error_that_names_its_neighbours():
    with pytest.raises(AttributeError, match="create_loss"):
        sphereface.creat_loss  # noqa: B018
