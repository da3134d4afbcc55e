"""What is measured of a trained network, a function each: model and setting in, numbers for an outcome's file out."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sphereface.arrays import Bools, Float32, Float64, Int64, unit_rows
from sphereface.embed.embedder import Embedder
from sphereface.embed.run import embed_set
from sphereface.errors import DataFormatError
from sphereface.evaluation import evaluate_ytf, load_megaface
from sphereface.evaluation.protocols.megaface import protocol_of
from sphereface.evaluation.protocols.megaface_files import sizes_of
from sphereface.experiments.lfw_dev import Unseen
from sphereface.experiments.outcomes import DIGITS, Outcome
from sphereface.experiments.paper import material
from sphereface.experiments.paper.plans import PLANS
from sphereface.experiments.paper.setting import Setting
from sphereface.experiments.view1 import FAR, Measured
from sphereface.faces.warp import as_crop
from sphereface.metrics import PeopleBootstrap
from sphereface.metrics.fisher import PeopleScatter
from sphereface.training.checkpoints.reading import newest_checkpoint
from sphereface.training.setting import CHECKPOINTS
from sphereface.training.telling.log import LOG

STATISTICS = ("accuracy", "tar", "fisher", "rank_1")  # on LFW
KEPT = 1_000_000  # negatives of MegaFace, at least
CURVE_RANKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)


@dataclass(frozen=True)
class Lfw:
    """The test faces of LFW, read once for all networks."""

    test: Unseen
    far: float

    @cached_property
    def scattered(self) -> Any:
        """A mask of the faces of people with two or more photos: a single photo is its own mean."""
        return np.bincount(self.test.people)[self.test.people] >= 2

    @property
    def people(self) -> int:
        """The number of people."""
        return int(self.test.people.max()) + 1

    def measure(self, embedder: Embedder, rounds: int) -> Outcome:
        """Accuracy, TAR, angular Fisher score and rank 1, also in each draw of people of a bootstrap."""
        faces = np.stack([as_crop(face, embedder.card.preprocessing.crop) for face in self.test.pixels])
        measured = Measured(embedder.embed(faces), self.test)
        scatter = PeopleScatter(measured.features[self.scattered], self.test.people[self.scattered])

        def fisher(drawn: Float64 | None = None) -> float:
            return scatter.score(None if drawn is None else drawn[: len(scatter.counts)])

        def tar(drawn: Float64 | None = None) -> float:
            return measured.all_pairs.tar_at_far(self.far, drawn)

        def rank_1(drawn: Float64 | None = None) -> float:
            return float(np.average(found, weights=None if drawn is None else drawn[owners]))

        found, owners = self.identified(measured.features)
        methods: dict[str, Callable[..., float]] = {
            "accuracy": measured.accuracy, "tar": tar, "fisher": fisher, "rank_1": rank_1,
        }  # fmt: skip
        bootstrap = PeopleBootstrap(self.people, rounds=rounds)
        return {
            "statistics": {name: method() for name, method in methods.items()},
            "draws": {name: [round(method(drawn), DIGITS) for drawn in bootstrap] for name, method in methods.items()},
        }

    def identified(self, features: Float32) -> tuple[Bools, Int64]:
        """Whether each probe finds its person at rank 1 among all, and the probes' people.

        The first photo of each person is in the gallery; the other photos are probes.
        """
        _, first = np.unique(self.test.people, return_index=True)
        unit = unit_rows(features)
        probes = np.setdiff1d(np.arange(len(unit)), first)
        owners = self.test.people[probes]
        best = np.concatenate([(unit[rows] @ unit[first].T).argmax(axis=1) for rows in np.array_split(probes, 16)])
        return np.asarray(self.test.people[first][best] == owners), owners


@lru_cache(maxsize=2)
def lfw_of(setting: Setting) -> Lfw:
    """The test faces of a setting."""
    return Lfw(material.lfw_test(setting), PLANS[setting.scale].far)


def load(model: Path) -> Embedder:
    """A trained network, on a GPU if there is one."""
    return Embedder.load(model, device="cuda" if torch.cuda.is_available() else "cpu")


def on_lfw(run: Path, model: Path, setting: Setting) -> Outcome:  # noqa: ARG001
    """Accuracy, TAR, angular Fisher score and rank 1 on LFW."""
    return lfw_of(setting).measure(load(model), PLANS[setting.scale].rounds)


def on_ytf(run: Path, model: Path, setting: Setting) -> Outcome:  # noqa: ARG001
    """Accuracy on YTF, by the mean feature of up to 100 frames of a video."""
    result = evaluate_ytf(load(model), material.ytf_folder(setting), rounds=2)
    return {"accuracy": result.report.verified.accuracy, "policy": result.frame_policy}


def on_megaface(run: Path, model: Path, setting: Setting) -> Outcome:
    """Rank 1, and the lowest FAR that the negatives support with its TAR, for each probe set; and both curves."""
    folder = material.megaface_folder(setting)
    assert folder is not None
    embedder, work = load(model), run / "megaface"
    lists = folder / "templatelists"
    sizes = sorted(lists.glob("megaface_features_list.json_*_1"), key=lambda path: int(path.name.split("_")[-2]))
    if not sizes:
        raise DataFormatError(f"{lists}: no list of distractors; wanted the devkit's megaface_features_list.json_N_1")
    others = embed_set(folder / "distractors", work / "distractors", embedder).folder
    found: Outcome = {}
    for probe_set, name, place in PROBES:
        probe_list = lists / f"{name}_features_list.json"
        if not probe_list.is_file():
            continue
        probes = embed_set(folder / place, work / place, embedder).folder
        noise = {
            f"{kind}_noise": path
            for kind, path in (
                ("probe", folder / "noise" / f"{name}_noises.txt"),
                ("distractor", folder / "noise" / "megaface_noises.txt"),
            )
            if path.is_file()
        }
        opened = load_megaface(probe_list, sizes[-1], probes, others, size_lists=sizes_of(sizes), **noise)
        training = material.known_faces(material.training_sets(setting))
        negatives = len(opened.probes) * len(opened.distractors)
        highest = min(1.0, max(FAR, KEPT / negatives))  # the end of the ROC
        result = opened.evaluate(protocol=protocol_of(len(training.paths)), probe_set=probe_set, far=highest)
        largest = (result.cleaned or result.raw)[-1]
        tail = largest.verification
        # 1e-6 as in the paper, or the lowest rate at which ten negatives would pass.
        far = max(1e-6, 10.0 ** np.ceil(np.log10(10 / tail.total)))
        rates = 10.0 ** np.arange(np.log10(far), 0.01, 0.25)
        ranks = [rank for rank in CURVE_RANKS if rank <= len(largest.cmc)]
        found[probe_set] = {
            "rank_1": largest.rank1,
            "far": far,
            "tar": tail.tar_at_far(far),
            "distractors": largest.distractors,
            "protocol": result.protocol,
            "cleaned": result.cleaned is not None,
            "cmc": {str(rank): float(largest.cmc[rank - 1]) for rank in ranks},
            "roc": {f"{rate:.3g}": tail.tar_at_far(rate) for rate in rates if tail.decides(rate)},
        }
    return found


PROBES = (("FaceScrub", "facescrub", "probes"), ("FGNet", "fgnet", "fgnet"))  # probe set, its list's name, its folder


def of_training(run: Path, model: Path, setting: Setting) -> Outcome:  # noqa: ARG001
    """Lengths and biases of the class weights, in the order of classes, and the losses along the run."""
    found = newest_checkpoint(run / CHECKPOINTS, say=setting.say, verify=False)
    assert found is not None
    rows = found.rows(0, found.manifest.classes)
    entries = [json.loads(line) for line in (run / LOG).read_text().splitlines()]
    steps = [entry for entry in entries if entry["kind"] == "step"]
    kept = steps[:: max(1, len(steps) // 50)]
    return {
        "lengths": [round(each, DIGITS) for each in rows["loss.weight"].norm(dim=1).tolist()] if rows else [],
        "biases": [round(each, DIGITS) for each in rows["loss.bias"].tolist()] if "loss.bias" in rows else [],
        "loss": {str(entry["step"]): round(entry["loss"], 4) for entry in kept},
        "images_per_second": float(np.median([entry["images_per_second"] for entry in steps])),
    }


MEASURES: dict[str, Callable[[Path, Path, Setting], Outcome]] = {
    "lfw": on_lfw, "ytf": on_ytf, "megaface": on_megaface, "training": of_training,
}  # fmt: skip


def possible(setting: Setting, *wanted: str) -> tuple[str, ...]:
    """Of some measures those whose data are there."""
    absent = {
        "ytf": setting.data.ytf is None and bool(setting.data.faces),
        "megaface": setting.data.megaface is None and bool(setting.data.faces),
        "lfw": setting.data.lfw is None and bool(setting.data.faces),
    }
    return tuple(name for name in wanted if not absent.get(name))
