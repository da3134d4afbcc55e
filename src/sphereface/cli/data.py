"""sphereface data: make and mend sets of faces."""

import json
import os
import time
from enum import StrEnum
from pathlib import Path

import typer

app = typer.Typer(no_args_is_help=True, help="Make and mend sets of faces.")


class Skin(StrEnum):
    """Groups by skin tone."""

    light = "light"
    medium = "medium"
    dark = "dark"


class Age(StrEnum):
    """Groups by age."""

    young = "young"
    middle = "middle"
    old = "old"


class DetectorName(StrEnum):
    """Detectors."""

    mtcnn = "mtcnn"
    yunet = "yunet"


class PresetName(StrEnum):
    """Presets of MTCNN."""

    paper = "paper"
    fast = "fast"


class ChoiceName(StrEnum):
    """Which face of several."""

    centre = "centre"
    largest = "largest"
    all = "all"


class MissesName(StrEnum):
    """What to do with photos without a face."""

    skip = "skip"
    centre = "centre"
    fail = "fail"


class ImageFormat(StrEnum):
    """How faces are stored."""

    jpg = "jpg"
    png = "png"


@app.callback()
def data() -> None:
    """Make and mend sets of faces."""


@app.command()
def synth(
    folder: Path = typer.Argument(help="Where to write pNNNN/NNNN.png."),
    people: int = typer.Option(100, min=1, help="How many people."),
    photos: int = typer.Option(20, min=1, help="Photos of each."),
    seed: int = typer.Option(0, min=0, help="Another seed, another population."),
    skin: Skin | None = typer.Option(None, help="Only people of this group."),
    age: Age | None = typer.Option(None, help="Only people of this group."),
    workers: int = typer.Option(os.cpu_count() or 1, min=1, help="Processes; the faces do not depend on it."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Draw synthetic faces, aligned to 112 x 96.

    Example: sphereface data synth faces --people 500 --photos 20 --seed 7
    """
    from sphereface.cli.progress import bars
    from sphereface.data.synthetic import VERSION, SyntheticPeople

    population = SyntheticPeople(seed=seed, skin=skin.value if skin else None, age=age.value if age else None)
    start = time.perf_counter()
    with bars() as begin:
        population.write(folder, people, photos, workers=workers, progress=begin("drawing faces", people * photos))
    rate = people * photos / (time.perf_counter() - start)
    if as_json:
        result = {"folder": str(folder), "version": VERSION, "seed": seed, "people": people, "photos": photos}
        typer.echo(json.dumps({**result, "faces_per_second": round(rate, 1)}))
    else:
        typer.echo(f"{people * photos:,} faces of {people:,} people in {folder} ({rate:.0f} faces/s)")


@app.command()
def align(
    source: Path = typer.Argument(help="Folder of photos, in any tree."),
    target: Path = typer.Argument(help="Where the faces go: new, empty, or an unfinished run of the same command."),
    detector: DetectorName = typer.Option(DetectorName.mtcnn, help="yunet is faster and wants --model."),
    preset: PresetName = typer.Option(
        PresetName.paper, help="MTCNN: the paper's settings, or fast (faces from 40 px)."
    ),
    model: Path | None = typer.Option(None, help="YuNet's model file."),
    landmarks: Path | None = typer.Option(
        None, help="Given points instead of a detector: path and ten numbers a line."
    ),
    choose: ChoiceName = typer.Option(ChoiceName.centre, help="Which face, if there are several."),
    template: str = typer.Option("sphereface", help="sphereface (0-based, as common sets) or matlab (the authors')."),
    crop: str = typer.Option("112x96", help="112x96, 112x112, or a patch: wide, upper."),
    misses: MissesName = typer.Option(MissesName.skip, help="Photos without a face: skip, centre crop, or fail."),
    image_format: ImageFormat = typer.Option(ImageFormat.jpg, "--format", help="How faces are stored."),
    quality: int = typer.Option(95, min=1, max=100, help="Of JPEG."),
    antialias: bool = typer.Option(True, help="Smooth before shrinking."),
    workers: int = typer.Option(os.cpu_count() or 1, min=1, help="Processes; the faces do not depend on it."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Find and align the faces of a folder of photos; run it again after an interruption, and it goes on.

    Example: sphereface data align lfw lfw-112x96 --misses centre
    """
    from sphereface.cli.progress import bars
    from sphereface.data.aligning import REPORT, Job, align_folder

    job = Job(
        source=source, target=target, detector=detector.value, preset=preset.value, model=model, landmarks=landmarks,
        choice=choose.value, template=template, crop=crop, antialias=antialias, format=image_format.value,
        quality=quality,
    )  # fmt: skip
    start = time.perf_counter()
    with bars() as begin:
        report = align_folder(job, misses=misses.value, workers=workers, progress=begin.growing("aligning photos"))
    if as_json:
        typer.echo(report.model_dump_json())
        return
    rate = report.photos / (time.perf_counter() - start)
    typer.echo(f"{report.faces + report.centre_crops:,} faces of {report.photos:,} photos in {target} ({rate:.0f}/s)")
    for label, paths in (
        ("no face", report.none),
        ("several faces", tuple(report.several)),
        ("unreadable", tuple(report.unreadable)),
        ("no image", report.ignored),
    ):
        if paths:
            typer.echo(f"  {label:<14} {len(paths):>8,}  such as {paths[0]}")
    typer.echo(f"  all of them are listed in {target / REPORT}")
