"""sphereface data: make and mend sets of faces."""

import json
import os
import time
from pathlib import Path

import typer

from sphereface.choices import (
    Age,
    DetectorName,
    ImageFormat,
    Misses,
    Missing,
    Preset,
    SetFormat,
    Shape,
    Skin,
    WhichFace,
)

app = typer.Typer(no_args_is_help=True, help="Make and mend sets of faces.")


@app.callback()
def data() -> None:
    """Make and mend sets of faces."""


@app.command()
def synth(
    out: Path = typer.Argument(help="Where to write pNNNN/NNNN.png, or what the shape asks for."),
    people: int = typer.Option(100, min=1, help="How many people."),
    photos: int = typer.Option(20, min=1, help="Photos of each; for ytf, frames of each of their three videos."),
    seed: int = typer.Option(0, min=0, help="Another seed, another population."),
    skin: Skin | None = typer.Option(None, help="Only people of this group."),
    age: Age | None = typer.Option(None, help="Only people of this group."),
    shape: Shape = typer.Option("folder", help="A plain folder, or files and lists as a published set has."),
    workers: int = typer.Option(os.cpu_count() or 1, min=1, help="Processes; the faces do not depend on it."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Draw synthetic faces, aligned to 112 x 96.

    Example: sphereface data synth faces --people 500 --photos 20 --seed 7
    """
    from sphereface.cli.progress import bars
    from sphereface.data.synthetic.people import VERSION, SyntheticPeople
    from sphereface.data.synthetic.shapes import num_faces, write_shape

    population = SyntheticPeople(seed=seed, skin=skin, age=age)
    faces = num_faces(shape, people, photos)
    start = time.perf_counter()
    with bars() as begin:
        bar = begin("drawing faces")
        write_shape(population, out, people, photos, shape=shape, workers=workers, progress=bar)
    rate = faces / (time.perf_counter() - start)
    if as_json:
        result = {"out": str(out), "version": VERSION, "seed": seed, "people": people, "photos": photos}
        typer.echo(json.dumps({**result, "shape": shape, "faces": faces, "faces_per_second": round(rate, 1)}))
    else:
        typer.echo(f"{faces:,} faces of {people:,} people in {out} ({rate:.0f} faces/s)")


@app.command()
def align(
    photos: Path = typer.Argument(help="Folder of photos, in any tree."),
    out: Path = typer.Argument(help="Where the faces go: new, empty, or an unfinished run of the same command."),
    detector: DetectorName = typer.Option("mtcnn", help="yunet is faster and wants --model."),
    preset: Preset = typer.Option("paper", help="MTCNN: the paper's settings, or fast (faces from 40 px)."),
    model: Path | None = typer.Option(None, help="YuNet's model file."),
    landmarks: Path | None = typer.Option(
        None, help="Given points instead of a detector: path and ten numbers a line."
    ),
    choose: WhichFace = typer.Option("centre", help="Which face, if there are several."),
    template: str = typer.Option("sphereface", help="sphereface (0-based, as common sets) or matlab (the authors')."),
    crop: str = typer.Option("112x96", help="112x96, 112x112, or a patch: wide, upper."),
    misses: Misses = typer.Option("skip", help="Photos without a face: skip, centre crop, or fail."),
    image_format: ImageFormat = typer.Option("jpg", "--format", help="How faces are stored."),
    quality: int = typer.Option(95, min=1, max=100, help="Of JPEG."),
    antialias: bool = typer.Option(True, help="Smooth before shrinking."),
    workers: int = typer.Option(os.cpu_count() or 1, min=1, help="Processes; the faces do not depend on it."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Find and align the faces of a folder of photos; run it again after an interruption, and it goes on.

    Example: sphereface data align lfw lfw-112x96 --misses centre
    """
    from sphereface.cli.progress import bars
    from sphereface.data.aligning.run import REPORT, Job, align_folder

    job = Job(
        photos=photos, out=out, detector=detector, preset=preset, model=model, landmarks=landmarks,
        choice=choose, template=template, crop=crop, antialias=antialias, format=image_format,
        quality=quality,
    )  # fmt: skip
    start = time.perf_counter()
    with bars() as begin:
        report = align_folder(job, misses=misses, workers=workers, progress=begin("aligning photos"))
    if as_json:
        typer.echo(report.model_dump_json())
        return
    rate = report.photos / (time.perf_counter() - start)
    typer.echo(f"{report.faces + report.centre_crops:,} faces of {report.photos:,} photos in {out} ({rate:.0f}/s)")
    for label, paths in (
        ("no face", report.none),
        ("several faces", tuple(report.several)),
        ("unreadable", tuple(report.unreadable)),
        ("no image", report.ignored),
        ("not in landmarks.txt", tuple(report.unlisted)),
    ):
        if paths:
            typer.echo(f"  {label:<20} {len(paths):>8,}  such as {paths[0]}")
    typer.echo(f"  all of them are listed in {out / REPORT}")


@app.command()
def convert(
    faces: Path = typer.Argument(help="Folder, .rec, .tar (or a folder of them), .zip, Caffe list, MNIST's files."),
    out: Path = typer.Argument(help="What to write; it must not exist yet."),
    to: SetFormat = typer.Option(..., help="Format to write."),
    root: Path | None = typer.Option(None, help="Where the paths of a list begin."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Write a set in another format; images keep their bytes.

    Example: sphereface data convert faces_emore/train.rec faces --to folder
    """
    from sphereface.cli.progress import bars
    from sphereface.data.formats.sets import convert as convert_set

    with bars() as begin:
        done = convert_set(faces, out, to=to, root=root, progress=begin(f"writing {out}"))
    if as_json:
        result = {"out": str(out), "images": done.images, "people": done.people, "ignored": list(done.ignored)}
        typer.echo(json.dumps(result))
        return
    typer.echo(f"{done.images:,} images of {done.people:,} people in {out}")
    if done.ignored:
        typer.echo(f"  {len(done.ignored):,} files are no images, such as {done.ignored[0]}")


@app.command()
def audit(
    faces: Path = typer.Argument(help="Aligned faces, in any format that convert reads."),
    against: Path | None = typer.Option(None, help="A test set whose people should not be among them."),
    model: Path | None = typer.Option(None, help="An .onnx embedder with a card, to look at faces and not only names."),
    few: int = typer.Option(5, min=1, help="People with fewer photos are listed."),
    missing: Missing = typer.Option("skip", help="Images that cannot be read: listed, or an error."),
    out: Path = typer.Option(Path("audit"), help="Folder for report.html, audit.md, audit.json and exclude.txt."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Find copies, wrong labels, one person under two names, and people of a test set.

    Example: sphereface data audit faces --against lfw-112x112 --model face_recognition_sface_2021dec.onnx
    """
    from sphereface.audit import audit_path
    from sphereface.cli.progress import bars

    with bars() as begin:
        found = audit_path(faces, against=against, model=model, few=few, missing=missing, out=out, begin=begin)
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
