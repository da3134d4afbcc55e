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


class ShapeName(StrEnum):
    """Sets that synthetic people can look like."""

    folder = "folder"
    lfw = "lfw"
    ytf = "ytf"
    megaface = "megaface"
    ijb = "ijb"


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


class FormatName(StrEnum):
    """Formats of sets."""

    folder = "folder"
    rec = "rec"
    tar = "tar"
    zip = "zip"
    list = "list"


@app.callback()
def data() -> None:
    """Make and mend sets of faces."""


@app.command()
def synth(
    folder: Path = typer.Argument(help="Where to write pNNNN/NNNN.png, or what the shape asks for."),
    people: int = typer.Option(100, min=1, help="How many people."),
    photos: int = typer.Option(20, min=1, help="Photos of each; for ytf, frames of each of their three videos."),
    seed: int = typer.Option(0, min=0, help="Another seed, another population."),
    skin: Skin | None = typer.Option(None, help="Only people of this group."),
    age: Age | None = typer.Option(None, help="Only people of this group."),
    shape: ShapeName = typer.Option(
        ShapeName.folder, help="A plain folder, or files and lists as a published set has."
    ),
    workers: int = typer.Option(os.cpu_count() or 1, min=1, help="Processes; the faces do not depend on it."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Draw synthetic faces, aligned to 112 x 96.

    Example: sphereface data synth faces --people 500 --photos 20 --seed 7
    """
    from sphereface.cli.progress import bars
    from sphereface.data.shapes import num_faces, write_shape
    from sphereface.data.synthetic import VERSION, SyntheticPeople

    population = SyntheticPeople(seed=seed, skin=skin.value if skin else None, age=age.value if age else None)
    faces = num_faces(shape.value, people, photos)
    start = time.perf_counter()
    with bars() as begin:
        bar = begin("drawing faces", faces)
        write_shape(population, folder, people, photos, shape=shape.value, workers=workers, progress=bar)
    rate = faces / (time.perf_counter() - start)
    if as_json:
        result = {"folder": str(folder), "version": VERSION, "seed": seed, "people": people, "photos": photos}
        typer.echo(json.dumps({**result, "shape": shape.value, "faces": faces, "faces_per_second": round(rate, 1)}))
    else:
        typer.echo(f"{faces:,} faces of {people:,} people in {folder} ({rate:.0f} faces/s)")


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


@app.command()
def convert(
    source: Path = typer.Argument(help="Folder, .rec, .tar (or a folder of them), .zip, Caffe list, MNIST's files."),
    target: Path = typer.Argument(help="What to write; it must not exist yet."),
    to: FormatName = typer.Option(..., help="Format to write."),
    root: Path | None = typer.Option(None, help="Where the paths of a list begin."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Write a set in another format; images keep their bytes.

    Example: sphereface data convert faces_emore/train.rec faces --to folder
    """
    from sphereface.cli.progress import bars
    from sphereface.data.formats import convert as convert_set

    with bars() as begin:
        done = convert_set(source, target, to=to.value, root=root, progress=begin.counting(f"writing {target}"))
    if as_json:
        result = {"target": str(target), "images": done.images, "people": done.people, "ignored": list(done.ignored)}
        typer.echo(json.dumps(result))
        return
    typer.echo(f"{done.images:,} images of {done.people:,} people in {target}")
    if done.ignored:
        typer.echo(f"  {len(done.ignored):,} files are no images, such as {done.ignored[0]}")


@app.command()
def audit(
    faces: Path = typer.Argument(help="Aligned faces, in any format that convert reads."),
    against: Path | None = typer.Option(None, help="A test set whose people should not be among them."),
    model: Path | None = typer.Option(None, help="An .onnx embedder with a card, to look at faces and not only names."),
    few: int = typer.Option(5, min=1, help="People with fewer photos are listed."),
    out: Path = typer.Option(Path("audit"), help="Folder for report.html, audit.md, audit.json and exclude.txt."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Find copies, wrong labels, one person under two names, and people of a test set.

    Example: sphereface data audit faces --against lfw-112x112 --model face_recognition_sface_2021dec.onnx
    """
    from sphereface.audit import audit_path
    from sphereface.cli.progress import bars

    with bars() as begin:
        found = audit_path(faces, against=against, model=model, few=few, out=out, begin=begin)
    if as_json:
        typer.echo(found.model_dump_json())
        return
    for label, count in (
        ("copies", len(found.duplicates)),
        ("likely wrong labels", len(found.wrong_labels)),
        ("under two names", len(found.two_names)),
        ("people of the test set", len(found.in_test)),
        ("copies of test photos", len(found.copies_in_test)),
        (f"people with under {few} photos", len(found.few)),
        ("unreadable", len(found.unreadable) + len(found.unreadable_in_test)),
    ):
        typer.echo(f"{label:<28} {count:>8,}")
    for note in found.notes:
        typer.echo(f"  {note}")
    typer.echo(f"Look at {out / 'report.html'}; leave out what {out / 'exclude.txt'} names (train --exclude)")
