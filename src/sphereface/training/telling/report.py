"""The report of a run: one page, from its log."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sphereface.metrics import roc
from sphereface.reports import figures
from sphereface.reports.figures import Line, Panel
from sphereface.reports.html import Report
from sphereface.training.telling.live import clock_time
from sphereface.training.telling.log import Entry, read_log
from sphereface.training.validation import NEVER_SEEN, TRAINED_ON, Hardest, ValidationScores

PAGE, CONFIG = "report.html", "config.toml"
SHARES = ("accuracy", "TAR")  # names of measures in percent start so
ROWS = 20  # of a table over steps; longer ones show evenly spaced rows
COLUMNS = ("loss", "lr", "lambda", "agreement", "gradient_norm", "images_per_second")  # of the table over steps
LETTERS = 200  # of an event's text; the log has it in full
NO_PICTURES = "Curves need matplotlib, which is not installed: pip install 'sphereface[plot]'"


def can_draw() -> bool:
    """True if matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def write_report(
    run: str | Path,
    *,
    scores: ValidationScores | None = None,
    hardest: Hardest | None = None,
    config: str | None = None,
) -> Path:
    """Write a run's `report.html` from its log, also of an unfinished run or one without validation.

    `scores` and `hardest` are those of the last validation, which the log holds in part only; `config` is the text of
    the run's `config.toml` by default.
    """
    run = Path(run)
    if config is None and (run / CONFIG).is_file():
        config = (run / CONFIG).read_text(encoding="utf-8")
    page = make_report(read_log(run), scores=scores, hardest=hardest, config=config)
    page.write(run / PAGE)
    return run / PAGE


def make_report(
    history: Sequence[Entry],
    *,
    scores: ValidationScores | None = None,
    hardest: Hardest | None = None,
    config: str | None = None,
) -> Report:
    """The report of a run, from the entries of its log."""
    start = next((entry for entry in history if entry["kind"] == "start"), {})
    settings = _mapping(start, "config")
    done = f"{max((entry['step'] for entry in history), default=0):,}"
    done += f" of {settings['steps']:,}" if "steps" in settings else ""
    names = [str(settings[name]) for name in ("model", "loss") if name in settings]
    time = f"{clock_time(seconds_running(history))} of running time"
    page = Report("A training run", ", ".join([*names, f"{done} steps", time]))
    _add_end(page, history, done)
    if not can_draw():
        page.text(NO_PICTURES, note=True)
    _add_result(page, history, scores)
    _add_validations(page, history)
    if scores is not None and can_draw():
        _add_pairs(page, scores)
    _add_curves(page, history)
    if hardest is not None:
        _add_faces(page, hardest)
    _add_events(page, history)
    _add_repeat(page, start, config)
    return page


def seconds_running(history: Iterable[Entry]) -> float:
    """The running time of a run, by the times of its log entries, without pauses before a resume."""
    times = [(datetime.fromisoformat(entry["time"]), entry["kind"]) for entry in history]
    return sum((after - before).total_seconds() for (before, _), (after, kind) in pairwise(times) if kind != "resume")


def _add_end(page: Report, history: Sequence[Entry], done: str) -> None:
    """Add a note on how an unfinished run ended."""
    last = next((entry for entry in reversed(history) if entry["kind"] in ("start", "resume", "end")), None)
    if last is None or last["kind"] != "end":
        page.text(f"This run has not ended, or was killed: the numbers below are those at step {done}.", note=True)
    elif last.get("outcome") != "finished":
        page.text(f"This run did not finish: {last.get('outcome', 'it ended')} at step {done}.", note=True)
        if last.get("reason"):
            page.code(str(last["reason"]))  # code blocks scroll, also with a long path


def _add_result(page: Report, history: Sequence[Entry], scores: ValidationScores | None) -> None:
    steps = _of_kind(history, "step")
    speeds = [entry["images_per_second"] for entry in steps if entry.get("images_per_second")]
    _, losses = smooth(steps, "loss")
    rows = [["training loss, smoothed", f"{losses[-1]:.4g}"]] if losses else []
    rows += [["images per second, median", f"{np.median(speeds):,.0f}"]] if speeds else []
    found = scores.as_dict() if scores else next(iter(_of_kind(history, "validation")[-1:]), None)
    if found:
        rows += [[name, _shown(name, value)] for name, value in _measures(found).items()]
        rows.append(["pairs", f"{found.get('same', 0):,} same, {found.get('different', 0):,} different"])
    page.heading("Results")
    if rows:
        page.table(["", "at the end"], rows)
    else:
        page.text("No step was logged yet.")
    if found:
        if found.get("rule", "authors") == "authors":
            page.text("Accuracy: each fold in turn is held out, mean and threshold come from the others.")
        else:  # "best"; "best threshold" in older logs
            page.text("Accuracy: the threshold is fitted to these very pairs, because there are no folds to hold out.")
        page.text(
            f"All pairs are of {found.get('whose', NEVER_SEEN)}. TAR at FAR: share of same pairs accepted, FAR being "
            "that of different pairs. Angular Fisher score: scatter within over between people, lower is better."
        )


def _measures(entry: Mapping[str, Any]) -> dict[str, float | None]:
    """The measures of a validation, by their names in the report."""
    return {
        "accuracy": entry.get("accuracy"),
        **{f"TAR at FAR {far}": value for far, value in _mapping(entry, "tar").items()},
        "AUC": entry.get("auc"),
        "angular Fisher score": entry.get("fisher"),
        "threshold": entry.get("threshold"),
    }


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:.2%}" if name.startswith(SHARES) else f"{value:.4g}"


def _add_validations(page: Report, history: Sequence[Entry]) -> None:
    found = list({entry["step"]: entry for entry in _of_kind(history, "validation")}.values())  # the last of a step
    if not found:
        return
    people = found[-1].get("whose", NEVER_SEEN)
    page.heading(f"{people[:1].upper()}{people[1:]}, over the steps")
    table = [_measures(entry) for entry in found]
    names = list(dict.fromkeys(name for row in table for name in row if name != "threshold"))
    if can_draw() and len(found) > 1:
        steps = [entry["step"] for entry in found]
        lines = {name: Line(name, steps, [row.get(name) for row in table]) for name in names}
        panels = [
            Panel("share", [line for name, line in lines.items() if name.startswith(SHARES)]),
            Panel("angular Fisher score", [lines["angular Fisher score"]]),
        ]
        _draw(page, panels, says="Validation over the steps of the run", caption="Every validation has the same pairs.")
    best = max(range(len(found)), key=lambda place: table[place]["accuracy"] or 0.0)
    kept = thinned(len(found), keep=(best,))
    rows = [[f"{found[place]['step']:,}", *(_shown(name, table[place].get(name)) for name in names)] for place in kept]
    page.table(["step", *names], rows, best=[(kept.index(best), 1)])


def _add_pairs(page: Report, scores: ValidationScores) -> None:
    page.heading(f"Angles between photos of {scores.whose}")
    angles = [np.arccos(np.clip(some, -1, 1)) for some in (scores.same_scores, scores.different_scores)]
    page.figure(
        figures.pair_angles(angles[0], angles[1], threshold=math.acos(max(-1.0, min(1.0, scores.threshold)))),
        "The less the two distributions overlap, the better.",
    )
    same = np.repeat([True, False], [len(angles[0]), len(angles[1])])
    curve = roc(same, np.concatenate([scores.same_scores, scores.different_scores]))
    name = "at the end" if scores.whose == TRAINED_ON else "the last validation"
    page.figure(figures.roc_curves({name: (curve.far, curve.tar)}), "True accept rate over false accept rate.")


def _add_curves(page: Report, history: Sequence[Entry]) -> None:
    steps = _of_kind(history, "step")
    if not steps:
        return
    page.heading("Training")
    if can_draw():
        at = [entry["step"] for entry in steps]
        smooth_at, smoothed = smooth(steps, "loss")
        loss = [Line("each step", at, _column(steps, "loss"), faint=True), Line("smoothed", smooth_at, smoothed)]
        panels = [
            Panel("loss", loss),
            Panel("learning rate", [Line("lr", at, _column(steps, "lr"))], logarithmic=True),
            Panel("lambda", [Line("lambda", at, _column(steps, "lambda"))], logarithmic=True),
            Panel("agreement with the teacher", [Line("mean cosine", at, _column(steps, "agreement"))]),
            Panel("gradient norm", [Line("norm", at, _column(steps, "gradient_norm"))], logarithmic=True),
        ]
        turns = [entry["step"] for entry in history if entry["kind"] in ("resume", "rollback")]
        caption = "Dotted: where the run was resumed or rolled back." if turns else "Loss, smoothed, and the schedule."
        _draw(page, panels, says="Loss and schedule over the steps of the run", caption=caption, marks=turns)
    names = [name for name in COLUMNS if _known(_column(steps, name))]
    shown = [steps[place] for place in thinned(len(steps))]
    rows = [[f"{entry['step']:,}", *(_number(entry.get(name)) for name in names)] for entry in shown]
    page.table(["step", *(name.replace("_", " ") for name in names)], rows)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def _add_faces(page: Report, hardest: Hardest) -> None:
    page.heading("The hardest pairs")
    captions = "Two photos of one person each, least alike first.", "Two people each, most alike first."
    for faces, caption in zip(hardest, captions, strict=True):
        if len(faces):
            page.figure(figures.contact_sheet(faces, 8, says=f"Faces side by side: {caption}"), caption)


def _add_events(page: Report, history: Sequence[Entry]) -> None:
    rows = [
        [f"{entry['step']:,}", entry["time"][:19].replace("T", " "), entry["kind"], _details(entry)]
        for entry in history
        if entry["kind"] not in ("step", "validation", "checkpoint")
    ]
    if rows:
        page.heading("Events")
        page.table(["step", "time (UTC)", "event", ""], rows[:500])


def _details(entry: Entry) -> str:
    skipped = ("kind", "step", "time", "config", "versions", "command")
    text = ", ".join(
        str(value) if name in ("text", "reason", "outcome") else f"{name} {value}"
        for name, value in entry.items()
        if name not in skipped and value is not None
    )
    return text if len(text) <= LETTERS else f"{text[:LETTERS]} ..."


def _add_repeat(page: Report, start: Mapping[str, Any], config: str | None) -> None:
    page.heading("How to repeat this")
    versions = ", ".join(f"{name} {version}" for name, version in _mapping(start, "versions").items())
    lines = [str(line) for line in (start.get("command"), versions) if line]
    page.code("\n".join([*lines, *(["", config] if config else [])]))


def _of_kind(history: Iterable[Entry], kind: str) -> list[Entry]:
    return [entry for entry in history if entry["kind"] == kind]


def _mapping(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = entry.get(name)
    return value if isinstance(value, Mapping) else {}


def _column(entries: Iterable[Entry], name: str) -> list[float | None]:
    return [entry.get(name) for entry in entries]


def _known(values: Iterable[float | None]) -> bool:
    return any(value is not None for value in values)


def _draw(page: Report, panels: Iterable[Panel], *, says: str, caption: str, marks: Sequence[float] = ()) -> None:
    """Add those panels that have values."""
    shown = [panel for panel in panels if any(_known(line.values) for line in panel.lines)]
    if shown:
        page.figure(figures.over_steps(shown, says=says, marks=marks), caption)


def smooth(entries: Sequence[Entry], name: str) -> tuple[list[float], list[float]]:
    """Steps and running mean of a column, over a fiftieth of its length; missing values are left out."""
    known = [(float(entry["step"]), float(entry[name])) for entry in entries if entry.get(name) is not None]
    if not known:
        return [], []
    steps, values = np.array(known).T
    sums = np.cumsum(np.append(0.0, values))
    last = np.arange(1, len(values) + 1)
    first = np.maximum(0, last - max(1, len(values) // 50))
    return steps.tolist(), ((sums[last] - sums[first]) / (last - first)).tolist()


def thinned(count: int, *, keep: Sequence[int] = ()) -> list[int]:
    """About ROWS of `count` places, evenly spaced, with the first, the last and those to keep."""
    even = np.linspace(0, count - 1, min(count, ROWS)).round().astype(int).tolist()
    return sorted({*even, *keep})
