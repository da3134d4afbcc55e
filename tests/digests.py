"""Digests of what must stay the same when code is moved: synthetic faces, features, training runs, every protocol.

    python -m tests.digests digests.json              # record them
    python -m tests.digests --compare digests.json    # after the change, on the same machine and with the same packages

Digests are of bits, which differ between processors and versions of libraries; so this is a command and no test.
"""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from tests.shared import FACES, MODELS

SHAPES = {"folder": (24, 8), "lfw": (20, 3), "ytf": (20, 4), "megaface": (4, 8), "ijb": (8, 6)}  # people, photos
RUNS = {
    "a_softmax": ("--model", "sphereface4", "--loss", "a_softmax"),
    "softmax": ("--model", "sphereface10", "--loss", "softmax"),
    "cosface": ("--model", "sphereface4", "--loss", "cosface"),
}
EMA = """
model = "sphereface4"
width = 0.25
loss = "a_softmax"
norm = "batch"
ema = 0.9
lr = 0.05
steps = 24
milestones = [16]
batch = 16
checkpoint_every = 12
annealing = { minimum = 5.0 }
loss_options = { m = 3 }
"""
NO_RESULT = {"command", "data", "images_per_second", "made_by", "model", "notes", "path", "seconds", "source"}


def sphereface(*arguments: object) -> str:
    """What a verb prints."""
    command = [sys.executable, "-m", "sphereface", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def of_tensors(path: Path) -> str:
    tensors = load_file(path)
    return digest(*(name.encode() + np.ascontiguousarray(tensors[name]).tobytes() for name in sorted(tensors)))


def of_numbers(text: str) -> str:
    """The digest of a result without what names files, commands and times."""

    def results(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: results(each) for key, each in sorted(value.items()) if key not in NO_RESULT}
        return [results(each) for each in value] if isinstance(value, list) else value

    return digest(json.dumps(results(json.loads(text))).encode())


def record(room: Path) -> dict[str, str]:
    """All digests; `room` is an empty folder."""
    found: dict[str, str] = {}
    for shape, (people, photos) in SHAPES.items():
        size = ("--people", people, "--photos", photos, "--seed", 3)
        sphereface("data", "synth", room / shape, *size, "--shape", shape)
        files = (path for path in sorted((room / shape).rglob("*")) if path.is_file() and path.name != "manifest.json")
        found[f"synth {shape}"] = digest(*(path.read_bytes() for path in files))
    ours = train(room, found)
    for name, model, engine in (("ours", ours, "onnxruntime"), ("ours", ours, "torch"), ("ema", ema(room), "auto")):
        out = room / f"features-{name}-{engine}"
        sphereface("embed", room / "folder", out, "--model", model, "--engine", engine)
        found[f"features {name} {engine}"] = digest((out / "features.npy").read_bytes())
    evaluate(room, ours, found)
    if FACES.is_dir() and MODELS.is_dir():
        real(room, found)
    return found


def train(room: Path, found: dict[str, str]) -> Path:
    """Short runs, with their checkpoints and logs; returns the model of one."""
    size = ("--width", 0.25, "--steps", 24, "--batch", 16, "--checkpoint-every", 12, "--validation-people", 4)
    for name, options in RUNS.items():
        out = room / f"run-{name}"
        sphereface("train", "--data", room / "folder", "--out", out, *options, *size, "--workers", 0, "--seed", 1)
        note_run(name, out, found)
    (room / "ema.toml").write_text(EMA)
    sphereface("train", "--data", room / "folder", "--out", room / "run-ema", "--recipe", room / "ema.toml")
    note_run("ema", room / "run-ema", found)
    return room / "run-a_softmax" / "model.safetensors"


def ema(room: Path) -> Path:
    return room / "run-ema" / "model.safetensors"


def note_run(name: str, out: Path, found: dict[str, str]) -> None:
    for path in (out / "model.safetensors", *sorted((out / "checkpoints").rglob("*.safetensors"))):
        found[f"train {name} {path.relative_to(out)}"] = of_tensors(path)
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    keys = ("kind", "step", "loss", "gradient_norm", "lr", "lambda", "accuracy", "auc", "fisher")
    told = [[line.get(key) for key in keys] for line in lines if line.get("kind") in ("step", "validation")]
    found[f"train {name} log"] = digest(json.dumps(told).encode())


def evaluate(room: Path, model: Path, found: dict[str, str]) -> None:
    """Every protocol."""
    known = ("--model", model, "--json")
    for name, arguments in {
        "lfw": ("lfw", room / "lfw", "--all-rules"),
        "lfw view 1": ("lfw", room / "lfw", "--view", 1),
        "ytf": ("ytf", room / "ytf"),
        "ijb": ("ijb", room / "ijb", "--faces", room / "ijb"),
        "folder": ("folder", room / "folder"),
    }.items():
        found[name] = of_numbers(sphereface("evaluate", *arguments, *known))
    for home in ("probes", "distractors"):
        sphereface("embed", room / "megaface" / home, room / f"features-{home}", "--model", model)
    lists = room / "megaface" / "templatelists"
    largest = max(lists.glob("megaface_features_list.json_*_1"), key=lambda path: int(path.name.split("_")[-2]))
    files = ("--probe-list", lists / "facescrub_features_list.json", "--distractor-list", largest)
    features = ("--probe-features", room / "features-probes", "--distractor-features", room / "features-distractors")
    found["megaface"] = of_numbers(
        sphereface("evaluate", "megaface", *files, *features, "--training-images", 1000, "--json")
    )
    against = ("--against", room / "lfw", "--out", room / "audit")
    found["audit"] = of_numbers(sphereface("data", "audit", room / "folder", *against, *known))


def real(room: Path, found: dict[str, str]) -> None:
    """SFace's features of real faces, and faces aligned by both detectors."""
    sface, yunet = MODELS / "face_recognition_sface_2021dec.onnx", MODELS / "face_detection_yunet_2023mar.onnx"
    for person in sorted((FACES / "train").iterdir())[:16]:
        (room / "real" / person.name).mkdir(parents=True)
        for photo in sorted(person.iterdir())[:6]:
            (room / "real" / person.name / photo.name).write_bytes(photo.read_bytes())
    sphereface("embed", room / "real", room / "features-sface", "--model", sface)
    found["features sface"] = digest((room / "features-sface" / "features.npy").read_bytes())
    (room / "photos").mkdir()
    for photo in sorted((FACES / "photos").glob("*.jpg"))[:24]:
        (room / "photos" / photo.name).write_bytes(photo.read_bytes())
    for name, options in (("mtcnn", ()), ("yunet", ("--model", yunet))):
        out = room / f"aligned-{name}"
        sphereface("data", "align", room / "photos", out, "--format", "png", "--detector", name, *options)
        faces = sorted(out.glob("*.png"))
        found[f"aligned {name}"] = digest(*(path.name.encode() + path.read_bytes() for path in faces))


def main() -> None:
    """Record digests, or compare with recorded ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--compare", action="store_true", help="with those in the file, instead of writing it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        found = record(Path(room))
    if not given.compare:
        where = {"machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"}
        given.file.write_text(json.dumps({**where, "digests": found}, indent=1) + "\n")
        return
    known = json.loads(given.file.read_text())["digests"]
    moved = sorted(name for name in known.keys() | found.keys() if known.get(name) != found.get(name))
    sys.exit("\n".join(f"{name}: was {known.get(name)}, is {found.get(name)}" for name in moved) or 0)


if __name__ == "__main__":
    main()
