"""Calibration of a model file on people: from their faces, or features of them, to the card in the file."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from sphereface.choices import Missing, Weigh
from sphereface.contract import Card
from sphereface.data.formats.sets import open_set
from sphereface.embed import store
from sphereface.embed.embedder import BATCH, Embedder
from sphereface.embed.run import embed_set
from sphereface.errors import Setting, UserError
from sphereface.evaluation.calibration.files import calibrated_path, require_maker, write_calibration
from sphereface.evaluation.calibration.measure import FPIRS, calibrate_features, require_support
from sphereface.evaluation.calibration.result import Calibration
from sphereface.metrics.rates import ROUNDS
from sphereface.progress import Begin, Say, mute, unseen
from sphereface.zoo import model_file


def calibrate_model(
    model: str | Path,
    faces: str | Path,
    *,
    out: str | Path | None = None,
    fars: Sequence[float] | None = None,
    fpirs: Sequence[float] = FPIRS,
    gallery_sizes: Sequence[int] = (),
    weigh: Weigh = "people",
    measured_on: str = "",
    rounds: int = ROUNDS,
    seed: int = 0,
    batch: int = BATCH,
    threads: int | None = None,
    workers: int = 2,
    missing: Missing = "fail",
    say: Say = mute,
    begin: Begin = unseen,
) -> tuple[Calibration, Card]:
    """Calibrate a model on people, and write the thresholds into its card, or into that of a copy at `out`.

    `faces` are a set of aligned faces in any format, or the features that `sphereface embed` made of one with the same
    model. Features of faces are temporary files. A rate is refused before any face is embedded and before anything is
    written. `begin` starts a progress bar for a step.

    >>> calibrate_model("model.safetensors", "our-people", fars=[1e-3])[0].table()
    """
    file, folder = model_file(model), Path(faces)
    if out is None and file.is_shared:
        raise UserError(
            f"{model}: {file.path} must stay as it is; write a calibrated copy with ", Setting("out", "FILE")
        )
    calibrated_path(file.path, out)  # an impossible path is refused before the work
    with tempfile.TemporaryDirectory() as room:
        if store.holds_features(folder):
            features = store.open_features(folder)
            require_maker(file, features.card, "" if features.card.members else features.manifests[0].model)
        else:
            require_support(open_set(folder).labels, fars=fars, fpirs=fpirs, gallery_sizes=gallery_sizes)
            made = embed_set(
                folder, Path(room) / "features", Embedder.load(file, threads=threads), batch=batch, workers=workers,
                missing=missing, say=say, progress=begin("embedding faces"),
            )  # fmt: skip
            features = store.open_features(made.folder)
        if features.unreadable:
            say(f"{len(features.unreadable):,} images could not be read, such as {min(features.unreadable)}")
        found = calibrate_features(
            features, measured_on=measured_on, fars=fars, fpirs=fpirs, gallery_sizes=gallery_sizes, weigh=weigh,
            rounds=rounds, seed=seed, progress=begin("comparing people"),
        )  # fmt: skip
        return found, write_calibration(file, found, out=out)
