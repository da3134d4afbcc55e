"""MegaFace at full scale: the whole evaluation against the bare matrix product."""

import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sphereface.arrays import Float32, Floating, Int64, unit_rows
from sphereface.bench.timing import LINUX, numpy_machine, spread, status_bytes
from sphereface.data.files.writing import whole_file
from sphereface.errors import UserError
from sphereface.evaluation.protocols.megaface import AtSize, evaluate_megaface
from sphereface.evaluation.streaming.scores import StreamedScores, dots, map_features
from sphereface.progress import Say, mute

PROBES, PEOPLE, FEATURES = 3_530, 80, 1_024  # FaceScrub's share in MegaFace; image and mirror of a SphereFace net
SIZES = (10_000, 100_000, 1_000_000)
ROUNDS = 3
RANKS, FAR = 1_000, 1e-3  # CMC and ROC are exact up to these
RANK1, RATIO, MEMORY = (0.5, 0.8), 2.0, 3e9  # goals at the largest size; memory in bytes
SORTED = 1_000  # distractors in the comparison with a sort of all scores
QUALITY = (0.2, 0.7)  # cosine of a photo with its person's mean; gives 65 % at rank 1 among a million strangers
SPARE = 1 << 26  # bytes of the disk that stay free
WRITTEN = 4_096  # distractors drawn and written at a time
PAUSE = 0.01  # seconds between two measurements of memory


def draw_probes(count: int, people: int, features: int) -> tuple[Float32, Int64]:
    """Features of photos of varied quality, evenly spread over people, and the people as labels."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % people
    means, others = (unit_rows(rng.standard_normal((number, features)), dtype=np.float32) for number in (people, count))
    quality = rng.uniform(*QUALITY, size=(count, 1))
    photos = quality * means[labels] + np.sqrt(1 - quality**2) * others
    return photos.astype(np.float32), labels


def write_distractors(path: Path, count: int, features: int) -> None:
    """Write features of strangers, of varied lengths, in blocks; an existing file of the same shape is kept."""
    if path.exists() and map_features(path).shape == (count, features):
        return
    wanted, free = 4 * count * features, shutil.disk_usage(path.parent).free
    if free < wanted + SPARE:
        raise UserError(
            f"{path.parent}: {free / 1e9:.1f} GB free; {count:,} distractors of {features:,} numbers take "
            f"{wanted / 1e9:.1f} GB: name a folder on a larger disk with --folder, or take fewer with --size"
        )
    rng = np.random.default_rng(1)
    with whole_file(path) as file:
        layout = {"descr": "<f4", "fortran_order": False, "shape": (count, features)}
        np.lib.format.write_array_header_1_0(file, layout)
        for start in range(0, count, WRITTEN):
            rows = rng.standard_normal((min(WRITTEN, count - start), features), dtype=np.float32)
            rows *= rng.uniform(0.5, 2.0, size=(len(rows), 1)).astype(np.float32)
            file.write(rows.astype("<f4").tobytes())


def multiply(probes: Floating, distractors: Floating) -> None:
    """The bare matrix product over the blocks of the evaluation, from the same file."""
    scores = StreamedScores(probes, distractors)
    held = np.empty((len(probes), scores.block), dtype=np.float32)
    for start in range(0, len(distractors), scores.block):
        block = distractors[start : start + scores.block]
        np.matmul(scores.probes, block.T, out=held[:, : len(block)])


def warm(distractors: Floating) -> None:
    """Read all distractors once, so that the first candidate does not wait for the disk."""
    for start in range(0, len(distractors), WRITTEN):
        np.max(distractors[start : start + WRITTEN])


@contextmanager
def anonymous_peak() -> Iterator[list[int]]:
    """Anonymous memory of this process in bytes: [at the start, peak]; empty where the system is not Linux."""
    seen: list[int] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(PAUSE):
            seen[1] = max(seen[1], status_bytes("RssAnon"))

    if not LINUX:
        yield seen
        return
    seen += [status_bytes("RssAnon")] * 2
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        stop.set()
        watcher.join()
        seen[1] = max(seen[1], status_bytes("RssAnon"))


def sort_everything(found: AtSize, probes: Floating, people: Int64, distractors: Floating) -> bool:
    """True if ranks and rates equal those of all scores, computed probe by probe and sorted."""
    unit, strangers = unit_rows(probes, dtype=np.float32), unit_rows(distractors, dtype=np.float32)
    negatives = np.empty((len(unit), len(strangers)))
    above, positives = [], []
    for probe, feature in enumerate(unit):
        negatives[probe] = dots(np.broadcast_to(feature, strangers.shape), strangers)
        mates = unit[(people == people[probe]) & (np.arange(len(unit)) != probe)]
        scores = dots(np.broadcast_to(feature, mates.shape), mates)
        above += [(negatives[probe] >= score).sum() for score in scores]
        positives.append(scores)
    cmc = np.cumsum(np.bincount(above, minlength=len(found.cmc)))[: len(found.cmc)] / len(above)
    highest = -np.sort(-negatives, axis=None)[: len(found.verification.negatives)]
    tar = np.mean(np.concatenate(positives) > highest[int(1e-6 * negatives.size)])
    return (
        np.array_equal(cmc, found.cmc)
        and np.array_equal(highest, found.verification.negatives)
        and bool(tar == found.verification.tar_at_far(1e-6))
    )


def bench_megaface(
    *,
    folder: Path | None = None,
    probes: int = PROBES,
    people: int = PEOPLE,
    features: int = FEATURES,
    sizes: Sequence[int] = SIZES,
    rounds: int = ROUNDS,
    say: Say = mute,
) -> dict[str, Any]:
    """Seconds of the evaluation and of the bare product in turns, peak memory and rates, at each size.

    The file of distractors is written to `folder` and kept; by default to a temporary folder.
    """
    if min(probes, people, features, rounds, *sizes) < 1 or not sizes or probes < 2 * people:
        raise UserError(
            f"{probes} probes of {people} people, {features} features, sizes {list(sizes)}, {rounds} rounds; wanted at "
            "least 1 of each, and two probes a person"
        )
    with tempfile.TemporaryDirectory() as temporary:
        path = (folder or Path(temporary)) / f"distractors-{max(sizes)}x{features}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        say(f"writing {max(sizes):,} distractors of {features:,} numbers")
        write_distractors(path, max(sizes), features)
        photos, labels = draw_probes(probes, people, features)
        strangers = map_features(path)
        say(f"sorting every score with {min(SORTED, *sizes):,} distractors")
        few = strangers[: min(SORTED, *sizes)]
        (small,) = evaluate_megaface(photos, labels, few, sizes=[len(few)], ranks=RANKS, far=FAR).raw
        is_exact = sort_everything(small, photos, labels, few)
        rows = [_bench_size(photos, labels, strangers[:size], rounds, say) for size in sorted(sizes)]
    return {
        "what": f"MegaFace, CMC to rank {RANKS:,} and ROC to FAR {FAR:g}, from a memory-mapped file; bare: the matrix "
        "product alone over the same blocks of the same file; medians of rounds in turns, ratios within each round",
        **numpy_machine(),
        "rounds": rounds,
        "probes": probes,
        "people": people,
        "fewest_photos_of_a_person": int(np.bincount(labels).min()),
        "features": features,
        "gigabytes_on_disk": 4 * max(sizes) * features / 1e9,
        "sorted": {"distractors": len(few), "negatives": small.verification.total, "equal": is_exact},
        "rows": rows,
        "goals": goals(rows[-1]),
    }


def goals(row: Mapping[str, Any]) -> dict[str, Any]:
    """Goals at the largest size: wanted value, found value, and whether it is met."""
    memory = row["peak_anonymous_megabytes"]
    is_small = None if memory is None else memory * 1e6 < MEMORY
    return {
        "rank1": {"wanted": list(RANK1), "found": row["rank1"], "met": RANK1[0] <= row["rank1"] <= RANK1[1]},
        "ratio": {"wanted": RATIO, "found": row["ratio"]["median"], "met": row["ratio"]["median"] <= RATIO},
        "peak_anonymous_megabytes": {"wanted": MEMORY / 1e6, "found": memory, "met": is_small},
    }


def _bench_size(probes: Floating, people: Int64, distractors: Floating, rounds: int, say: Say) -> dict[str, Any]:
    """Measure one size: in each round the bare product and the evaluation in turns, with the same machine load."""
    size = len(distractors)
    bare, whole, peaks = [], [], []
    found: list[AtSize] = []

    def run_bare() -> None:
        start = time.perf_counter()
        multiply(probes, distractors)
        bare.append(time.perf_counter() - start)

    def run_whole() -> None:
        with anonymous_peak() as held:
            start = time.perf_counter()
            result = evaluate_megaface(probes, people, distractors, sizes=[size], ranks=RANKS, far=FAR)
            whole.append(time.perf_counter() - start)
        peaks.append(held)
        found[:] = result.raw  # frees those of earlier rounds

    warm(distractors)
    for number in range(rounds):
        for run in (run_bare, run_whole) if number % 2 == 0 else (run_whole, run_bare):
            run()
        say(f"{size:,} distractors, round {number + 1} of {rounds}: {bare[-1]:.1f} s bare, {whole[-1]:.1f} s in all")
    (at_size,) = found
    tail = at_size.verification
    ratios = [own / other for own, other in zip(whole, bare, strict=True)]
    return {
        **at_size.summary(),
        "exact_ranks": len(at_size.cmc),
        "exact_far": (len(tail.negatives) - 1) / tail.total,
        "rounds": [{"bare_seconds": other, "seconds": own} for other, own in zip(bare, whole, strict=True)],
        "bare_seconds": statistics.median(bare),
        "seconds": statistics.median(whole),
        "ratio": spread(ratios),
        "peak_anonymous_megabytes": max(held[1] for held in peaks) / 1e6 if LINUX else None,
        "anonymous_megabytes_before": min(held[0] for held in peaks) / 1e6 if LINUX else None,
    }


MET = {True: "met", False: "MISSED", None: "unknown"}


def command(result: Mapping[str, Any]) -> str:
    """The command of a result, with the options that differ from their defaults."""
    line = "sphereface bench megaface --out results"
    for option, default in (("probes", PROBES), ("people", PEOPLE), ("features", FEATURES), ("rounds", ROUNDS)):
        line += "" if result[option] == default else f" --{option} {result[option]}"
    sizes = [row["size"] for row in result["rows"]]
    return line + ("" if sizes == list(SIZES) else "".join(f" --size {size}" for size in sizes))


def _megabytes(memory: float | None) -> str:
    return "not measured" if memory is None else f"{memory:,.0f} MB"


def markdown(result: Mapping[str, Any], command: str) -> str:
    """The result as Markdown, as in `results/`."""
    lines = []
    for row in result["rows"]:
        ratio, memory = row["ratio"], row["peak_anonymous_megabytes"]
        tar = row["tar_at_far"].get("1e-06")
        cells = [
            f"{row['size']:,}", f"{row['negatives']:,}", f"{row['rank1']:.2%}", "" if tar is None else f"{tar:.2%}",
            f"rank {row['exact_ranks']:,}, FAR {row['exact_far']:.1g}", f"{row['bare_seconds']:.1f} s",
            f"{row['seconds']:.1f} s", f"{ratio['median']:.2f} ({ratio['lowest']:.2f} to {ratio['highest']:.2f})",
            _megabytes(memory),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    table, checked, fewest = "\n".join(lines), result["sorted"], result["fewest_photos_of_a_person"]
    verdict = "are equal" if checked["equal"] else "DIFFER"
    wanted, disk = result["goals"], result["gigabytes_on_disk"]
    peak = wanted["peak_anonymous_megabytes"]
    goal_lines = "\n".join(
        f"| {what} | {limit} | {found} | {MET[goal['met']]} |"
        for what, limit, found, goal in (
            ("rank 1", f"{RANK1[0]:.0%} to {RANK1[1]:.0%}", f"{wanted['rank1']['found']:.2%}", wanted["rank1"]),
            ("ratio", f"at most {RATIO:g}", f"{wanted['ratio']['found']:.2f}", wanted["ratio"]),
            ("memory", f"under {MEMORY / 1e6:,.0f} MB", _megabytes(peak["found"]), peak),
        )
    )
    return f"""# MegaFace at full scale

`{command}` on {result["cpu"]}, {result["cores"]} cores, NumPy {result["numpy"]}.

{result["probes"]:,} probes of {result["people"]} people, at least {fewest} photos each, and distractors of
{result["features"]:,} numbers in a memory-mapped file of {disk:.2g} GB, all synthetic: the rates show that the task is
neither empty nor trivial, and nothing about faces. *Exact to* says up to which rank the CMC and up to which FAR the
ROC is exact. *Bare* is the matrix product alone, over the same blocks of the same file; *all* is the evaluation.
Medians of {result["rounds"]} rounds, in each of which both run once, in turns; *ratio* is that of all to bare within a
round, with its range. *Memory* is the peak of anonymous memory of the whole process, libraries included.

| distractors | negatives | rank 1 | TAR at FAR 1e-6 | exact to | bare | all | ratio | memory |
|--:|--:|--:|--:|:--|--:|--:|--:|--:|
{table}

At the largest size:

| | wanted | found | |
|---|---|---|---|
{goal_lines}

With {checked["distractors"]:,} distractors, where all {checked["negatives"]:,} negatives can be sorted, every rank, the
kept negatives and TAR at FAR 1e-6 {verdict}.
"""
