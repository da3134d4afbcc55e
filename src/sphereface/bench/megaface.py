"""MegaFace at full scale: the whole evaluation against the matrix product that nobody can do without."""

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sphereface.bench.timing import LINUX, machine
from sphereface.data.writing import whole_file
from sphereface.evaluation.megaface import AtSize, MegaFaceResult, evaluate_megaface
from sphereface.evaluation.streams import Features, Scores, dots, map_features, unit_rows

PROBES, PEOPLE, FEATURES = 3_530, 80, 1_024  # FaceScrub's share in MegaFace; image and mirror of a SphereFace net
SIZES = (10_000, 100_000, 1_000_000)
SORTED = 1_000  # distractors with which every score can be sorted
QUALITY = (0.2, 0.7)  # cosine of a photo with its person's mean; gives 65 % at rank 1 among a million strangers
WRITTEN = 4_096  # distractors drawn and written at a time
PAUSE = 0.01  # seconds between two looks at the memory
Say = Callable[[str], None]


def draw_probes(count: int, people: int, features: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Photos of varied quality, the same number of each person but for one, and whom they show."""
    rng = np.random.default_rng(0)
    who = np.arange(count) % people
    means, others = (unit_rows(rng.standard_normal((number, features))) for number in (people, count))
    quality = rng.uniform(*QUALITY, size=(count, 1))
    photos = quality * means[who] + np.sqrt(1 - quality**2) * others
    return photos.astype(np.float32), who


def write_distractors(path: Path, count: int, features: int) -> None:
    """Strangers of many lengths, block by block; a file that holds as many already stays."""
    if path.exists() and map_features(path).shape == (count, features):
        return
    rng = np.random.default_rng(1)
    with whole_file(path) as file:
        layout = {"descr": "<f4", "fortran_order": False, "shape": (count, features)}
        np.lib.format.write_array_header_1_0(file, layout)
        for start in range(0, count, WRITTEN):
            rows = rng.standard_normal((min(WRITTEN, count - start), features), dtype=np.float32)
            rows *= rng.uniform(0.5, 2.0, size=(len(rows), 1)).astype(np.float32)
            file.write(rows.astype("<f4").tobytes())


def multiply(probes: Features, distractors: Features) -> None:
    """The bare matrix product over the blocks that the evaluation takes, from the same file."""
    scores = Scores(probes, distractors)
    held = np.empty((len(probes), scores.block), dtype=np.float32)
    for start in range(0, len(distractors), scores.block):
        block = distractors[start : start + scores.block]
        np.matmul(scores.probes, block.T, out=held[:, : len(block)])


@contextmanager
def anonymous_peak() -> Iterator[list[int]]:
    """Bytes without a file behind them: what this process held at first, and at most; empty where no one tells."""
    seen: list[int] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(PAUSE):
            seen[1] = max(seen[1], _anonymous())

    if not LINUX:
        yield seen
        return
    seen += [_anonymous()] * 2
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        stop.set()
        watcher.join()
        seen[1] = max(seen[1], _anonymous())


def _anonymous() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("RssAnon"))) * 1024


def sort_everything(found: AtSize, probes: Features, people: NDArray[np.int64], distractors: Features) -> bool:
    """Whether ranks and rates are those of all scores, computed a probe at a time and sorted."""
    unit, strangers = unit_rows(probes), unit_rows(distractors)
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
    rounds: int = 3,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Seconds of the evaluation and of the bare product in turns, peak memory, and what came out, at each size.

    The distractors are written to `folder`, and stay there; by default to one that is removed.
    """
    with tempfile.TemporaryDirectory() as room:
        path = (folder or Path(room)) / f"distractors-{max(sizes)}x{features}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        say(f"writing {max(sizes):,} distractors of {features:,} numbers")
        write_distractors(path, max(sizes), features)
        seen, who = draw_probes(probes, people, features)
        strangers = map_features(path)
        say(f"sorting every score with {min(SORTED, *sizes):,} distractors")
        few = strangers[: min(SORTED, *sizes)]
        (small,) = evaluate_megaface(seen, who, few, sizes=[len(few)]).raw
        is_exact = sort_everything(small, seen, who, few)
        rows = [_bench_size(seen, who, strangers[:size], rounds, say) for size in sorted(sizes)]
    return {
        "what": "MegaFace, CMC to rank 1,000 and ROC to FAR 1e-3, from a memory-mapped file; bare: the matrix product "
        "alone over the same blocks of the same file; medians of rounds in turns, ratios within each round",
        **machine(),
        "cores": os.cpu_count(),
        "numpy": np.__version__,
        "rounds": rounds,
        "probes": probes,
        "people": people,
        "fewest_photos_of_a_person": int(np.bincount(who).min()),
        "features": features,
        "sorted": {"distractors": len(few), "negatives": small.verification.total, "equal": is_exact},
        "rows": rows,
    }


def _bench_size(
    probes: Features, people: NDArray[np.int64], distractors: Features, rounds: int, say: Say
) -> dict[str, Any]:
    """One size: in each round the bare product, then the evaluation, so that both meet the same weather."""
    size = len(distractors)
    bare, whole, peaks = [], [], []
    found: MegaFaceResult | None = None
    for number in range(rounds):
        start = time.perf_counter()
        multiply(probes, distractors)
        bare.append(time.perf_counter() - start)
        with anonymous_peak() as held:
            start = time.perf_counter()
            found = evaluate_megaface(probes, people, distractors, sizes=[size])
            whole.append(time.perf_counter() - start)
        peaks.append(held)
        say(f"{size:,} distractors, round {number + 1} of {rounds}: {bare[-1]:.1f} s bare, {whole[-1]:.1f} s in all")
    if found is None:
        raise ValueError(f"rounds is {rounds}; wanted at least 1")
    ratios = [own / other for own, other in zip(whole, bare, strict=True)]
    return {
        **found.raw[0].summary(),
        "cmc_ranks": len(found.raw[0].cmc),
        "bare_seconds": statistics.median(bare),
        "seconds": statistics.median(whole),
        "ratio": {"median": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)},
        "peak_anonymous_megabytes": max(held[1] for held in peaks) / 1e6 if LINUX else None,
        "anonymous_megabytes_before": min(held[0] for held in peaks) / 1e6 if LINUX else None,
    }


def markdown(result: Mapping[str, Any], command: str) -> str:
    """The result as a page of `results/`."""
    lines = []
    for row in result["rows"]:
        ratio, memory = row["ratio"], row["peak_anonymous_megabytes"]
        tar = row["tar_at_far"].get("1e-06")
        cells = [
            f"{row['size']:,}",
            f"{row['negatives']:,}",
            f"{row['rank1']:.2%}",
            "" if tar is None else f"{tar:.2%}",
            f"{row['bare_seconds']:.1f} s",
            f"{row['seconds']:.1f} s",
            f"{ratio['median']:.2f} ({ratio['lowest']:.2f} to {ratio['highest']:.2f})",
            "not measured" if memory is None else f"{memory:,.0f} MB",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    table, checked, fewest = "\n".join(lines), result["sorted"], result["fewest_photos_of_a_person"]
    verdict = "are equal" if checked["equal"] else "DIFFER"
    return f"""# MegaFace at full scale

`{command}` on {result["cpu"]}, {result["cores"]} cores, NumPy {result["numpy"]}.

{result["probes"]:,} probes of {result["people"]} people, at least {fewest} photos each, and distractors of
{result["features"]:,} numbers in a memory-mapped file, all synthetic: the rates show that the task is neither empty nor
trivial, and nothing about faces. *Bare* is the matrix product alone, over the same blocks of the same file; *all* is
the evaluation: exact CMC up to rank 1,000, exact ROC up to FAR 1e-3. Medians of {result["rounds"]} rounds in turns;
*ratio* is that of all to bare within a round, with its range. *Memory* is the peak of anonymous memory of the whole
process, libraries included.

| distractors | negatives | rank 1 | TAR at FAR 1e-6 | bare | all | ratio | memory |
|--:|--:|--:|--:|--:|--:|--:|--:|
{table}

With {checked["distractors"]:,} distractors, where all {checked["negatives"]:,} negatives can be sorted, every rank, the
kept negatives and TAR at FAR 1e-6 {verdict}.
"""
