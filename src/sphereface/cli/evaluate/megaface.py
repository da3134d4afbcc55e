"""sphereface evaluate megaface: probes among up to a million distractors, from lists and stored features."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sphereface.choices import ProtocolSize
from sphereface.cli import options
from sphereface.cli.evaluate.output import check_out, tell
from sphereface.cli.evaluate.sources import naming
from sphereface.errors import UserError

if TYPE_CHECKING:
    from sphereface.evaluation.protocols.megaface import MegaFaceResult

FEATURES = "Folder that `embed` wrote, or .npy or .bin of the devkit in the order of the list; repeated: ensemble."
EMBED_FIRST = (
    "megaface takes features, not a model: make them with sphereface embed FACES FOLDER --model FILE, once for probes "
    "and once for distractors, and name the folders with --probe-features and --distractor-features"
)
PROBE_SETS = ("FaceScrub", "FGNet")


def megaface(
    context: typer.Context,
    probe_list: Path = typer.Option(..., help="List of probes of the devkit, with a person for each."),
    distractor_list: Path = typer.Option(..., help="List of all distractors of the devkit."),
    probe_features: list[Path] | None = typer.Option(None, help=FEATURES),
    distractor_features: list[Path] | None = typer.Option(None, help=FEATURES),
    probe_noise: Path | None = typer.Option(None, help="List of wrongly labelled probes: also report cleaned results."),
    distractor_noise: Path | None = typer.Option(
        None, help="List of distractors with a probe's person, or without a face."
    ),
    training_images: int | None = typer.Option(
        None, min=1, help="Number of the model's training images: under 500,000 the protocol is small, else large."
    ),
    protocol: ProtocolSize | None = typer.Option(None, help="Size of the protocol, instead of --training-images."),
    probe_set: str = typer.Option("FaceScrub", help="Name of the probe set in the result: FaceScrub or FGNet."),
    sizes: list[int] | None = typer.Option(
        None,
        "--size",
        min=1,
        help="Number of distractors, the first of the list; may be repeated. Default: 10, 100, ..., all.",
    ),
    size_lists: list[Path] | None = typer.Option(
        None, "--size-list", help="List of some of the distractors, instead of --size; may be repeated."
    ),
    ranks: int = typer.Option(1000, min=1, help="Highest rank of the exact CMC."),
    up_to_far: float = typer.Option(1e-3, help="Highest false accept rate of the exact ROC."),
    block: int | None = typer.Option(None, min=1, help="Distractors in a block; changes speed and memory only."),
    models: list[str] | None = typer.Option(None, "--model", hidden=True),
    out: Path | None = typer.Option(
        None, help="Folder for result.json, report.html, and each size's CMC and ROC in the devkit's format."
    ),
    as_json: options.AsJson = False,
) -> None:
    """Probes among up to a million distractors: MegaFace, with FaceScrub or FGNet as probes.

    It takes features: first run `sphereface embed probes probe-features --model FILE` on the aligned faces, and the
    same for the distractors.

    Example: sphereface evaluate megaface --probe-list facescrub_features_list.json --probe-features facescrub
    --distractor-list megaface_features_list.json_1000000_1 --distractor-features megaface --training-images 494414
    """
    from sphereface.cli.progress import bars
    from sphereface.evaluation.pages.curve_files import write_megaface_curves
    from sphereface.evaluation.protocols.megaface_files import load_megaface, sizes_of

    check_out(out)
    if models or not probe_features or not distractor_features:
        raise UserError(EMBED_FIRST)
    if sizes and size_lists:
        raise UserError("--size and --size-list are both given; wanted numbers of distractors, or lists of them")
    size, probes = _protocol(training_images, protocol), _probe_set(probe_set)
    found = load_megaface(
        probe_list, distractor_list, probe_features, distractor_features, probe_noise=probe_noise,
        distractor_noise=distractor_noise, size_lists=sizes_of(size_lists) if size_lists else None,
    )  # fmt: skip
    asked: dict[str, Any] = {"sizes": sizes} if sizes else {}
    with bars() as begin, naming(probe=probe_features, distractor=distractor_features):
        result = found.evaluate(
            **asked, ranks=ranks, far=up_to_far, protocol=size, probe_set=probes, block=block,
            progress=begin("comparing with distractors"),
        )  # fmt: skip
    payload, text = result.summary(), table(result)
    if out is not None:
        text += "\n\n" + "\n".join(f"Curves: {path}" for path in write_megaface_curves(result, out))
    tell(context, result, payload, text, title=payload["protocol"], out=out, as_json=as_json)


def _protocol(training_images: int | None, name: ProtocolSize | None) -> ProtocolSize:
    from sphereface.evaluation.protocols.megaface import protocol_of

    if (training_images is None) == (name is None):
        came = "both given" if name else "both missing"
        raise UserError(
            f"--training-images and --protocol are {came}; wanted one: the number of the model's training images, "
            "or small (under 500,000) or large"
        )
    return name if name is not None else protocol_of(training_images or 0)


def _probe_set(name: str) -> str:
    """The probe set's name in MegaFace's spelling."""
    spelled = {known.lower(): known for known in PROBE_SETS}
    if name.lower() not in spelled:
        raise UserError(f"unknown --probe-set {name!r}; choose one of {', '.join(PROBE_SETS)}")
    return spelled[name.lower()]


def table(result: "MegaFaceResult") -> str:
    """The result as text, a line for each number of distractors, rates in percent."""
    summary = result.summary()
    lines = [
        f"{summary['protocol']}: {result.probes:,} probes of {result.people:,} people",
        f"ties: {summary['tie_rule']}",
        f"exact up to rank {result.ranks:,} and FAR {result.far:g}",
        "",
        *(["with all images"] if result.cleaned is not None else []),
        *_rows(summary["raw"]),
    ]
    if summary["cleaned"] is not None:
        noise = f"{result.noisy_probes:,} probes and {result.noisy_distractors:,} distractors"
        lines += ["", f"without {noise} that are noise", *_rows(summary["cleaned"])]
    lines += ["", *(f"note: {each}" for each in result.unmatched_noise)] if result.unmatched_noise else []
    return "\n".join(lines)


def _rows(sizes: Sequence[dict[str, Any]]) -> list[str]:
    fars = sorted({far for size in sizes for far in size["tar_at_far"]}, key=float)
    rows = [["distractors", "pairs", "negatives", "rank 1", "rank 10", *(f"TAR at {far}" for far in fars)]]
    for size in sizes:
        rates = [size["rank1"], size["rank10"], *(size["tar_at_far"].get(far) for far in fars)]
        counts = [f"{size[name]:,}" for name in ("distractors", "pairs", "negatives")]
        rows.append([*counts, *("-" if rate is None else f"{100 * rate:.2f}" for rate in rates)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
