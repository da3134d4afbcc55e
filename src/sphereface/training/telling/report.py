"""A run as one page, from its log."""

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
ROWS = 20  # of a table over steps; longer ones are thinned
LETTERS = 200  # of an event's story; the log has it in full
NO_PICTURES = "matplotlib is not installed, so there are tables and no curves: pip install 'sphereface[plot]'"


def can_draw() -> bool:
    """Whether matplotlib is there."""
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
    """Write a run's `report.html` from its log, whatever there is: a few steps, no validation, no end.

    `scores` and `hardest` are those of the last validation, which the log does not hold in full; `config` is text, the
    run's `config.toml` if it is not given.
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
    """The page of a run with such a history."""
    start = next((entry for entry in history if entry["kind"] == "start"), {})
    settings = _mapping(start, "config")
    page = Report("A training run", _lead(history, settings))
    _add_end(page, history, settings)
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


def _lead(history: Sequence[Entry], settings: Mapping[str, Any]) -> str:
    parts = [f"{settings[name]}" for name in ("model", "loss") if name in settings]
    done = max((entry["step"] for entry in history), default=0)
    parts.append(f"{done:,} of {settings['steps']:,} steps" if "steps" in settings else f"{done:,} steps")
    parts.append(f"{clock_time(seconds_running(history))} of running time")
    return ", ".join(parts)


def seconds_running(history: Iterable[Entry]) -> float:
    """How long a run ran, by the times of its lines; the pause before it was resumed does not count."""
    times = [(datetime.fromisoformat(entry["time"]), entry["kind"]) for entry in history]
    return sum((after - before).total_seconds() for (before, _), (after, kind) in pairwise(times) if kind != "resume")


def _add_end(page: Report, history: Sequence[Entry], settings: Mapping[str, Any]) -> None:
    """What a reader must know before the numbers; nothing of a run that finished."""
    last = next((entry for entry in reversed(history) if entry["kind"] in ("start", "resume", "end")), None)
    step = max((entry["step"] for entry in history), default=0)
    where = f"step {step:,}" + (f" of {settings['steps']:,}" if "steps" in settings else "")
    if last is None or last["kind"] != "end":
        page.text(f"This run has not ended, or was killed: what follows is what was known at {where}.", note=True)
    elif last.get("outcome") != "finished":
        page.text(f"This run did not finish: {last.get('outcome', 'it ended')} at {where}.", note=True)
        if last.get("reason"):
            page.code(str(last["reason"]))  # which scrolls where a path is long


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
    page.heading("What came out")
    if rows:
        page.table(["", "at the end"], rows)
    else:
        page.text("Nothing yet: no step was logged.")
    if found and found.get("rule") == "best threshold":
        page.text("Accuracy has its threshold from the very pairs it counts: there are no folds to hold out.")
    elif found:
        page.text("Accuracy: each fold in turn is held out, mean and threshold come from the others.")
    if found:
        page.text(
            f"All pairs are of {found.get('whose', NEVER_SEEN)}. TAR: same pairs accepted when such a share of the "
            "different ones is. Angular Fisher score: scatter within over scatter between people, lower is better."
        )


def _measures(entry: Mapping[str, Any]) -> dict[str, float | None]:
    """The numbers of a validation, by the name that a reader knows."""
    tar = {f"TAR at FAR {far}": value for far, value in _mapping(entry, "tar").items()}
    return {
        "accuracy": entry.get("accuracy"),
        **tar,
        "AUC": entry.get("auc"),
        "angular Fisher score": entry.get("fisher"),
        "threshold": entry.get("threshold"),
    }


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:.2%}" if name == "accuracy" or name.startswith("TAR") else f"{value:.4g}"


def _add_validations(page: Report, history: Sequence[Entry]) -> None:
    found = list({entry["step"]: entry for entry in _of_kind(history, "validation")}.values())  # the last of a step
    if not found:
        return
    page.heading(f"{_capital(found[-1].get('whose', NEVER_SEEN))}, over the steps")
    table = [_measures(entry) for entry in found]
    names = list(dict.fromkeys(name for row in table for name in row if name != "threshold"))
    if can_draw() and len(found) > 1:
        steps = [entry["step"] for entry in found]
        lines = {name: Line(name, steps, [row.get(name) for row in table]) for name in names}
        panels = [
            Panel("share", [line for name, line in lines.items() if name == "accuracy" or name.startswith("TAR")]),
            Panel("angular Fisher score", [lines["angular Fisher score"]]),
        ]
        _draw(page, panels, says="Validation over the steps of the run", caption="The same pairs each time.")
    best = max(range(len(found)), key=lambda place: table[place]["accuracy"] or 0.0)
    kept = thinned(len(found), keep=(best,))
    page.table(
        ["step", *names],
        [[f"{found[place]['step']:,}", *(_shown(name, table[place].get(name)) for name in names)] for place in kept],
        best=[(kept.index(best), 1)],
    )


def _add_pairs(page: Report, scores: ValidationScores) -> None:
    page.heading(f"Angles between photos of {scores.whose}")
    angles = [np.arccos(np.clip(some, -1, 1)) for some in (scores.same_scores, scores.different_scores)]
    page.figure(
        figures.pair_angles(angles[0], angles[1], threshold=math.acos(max(-1.0, min(1.0, scores.threshold)))),
        "The less the two hills overlap, the better.",
    )
    same = np.repeat([True, False], [len(angles[0]), len(angles[1])])
    curve = roc(same, np.concatenate([scores.same_scores, scores.different_scores]))
    page.figure(
        figures.roc_curves(
            {"at the end" if scores.whose == TRAINED_ON else "the last validation": (curve.far, curve.tar)}
        ),
        "How many are let in, how many wrongly.",
    )


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
            Panel("gradient norm", [Line("norm", at, _column(steps, "gradient_norm"))], logarithmic=True),
        ]
        turns = [entry["step"] for entry in history if entry["kind"] in ("resume", "rollback")]
        caption = "Dotted: where the run was resumed or taken back." if turns else "Loss, smoothed, and the schedule."
        _draw(page, panels, says="Loss and schedule over the steps of the run", caption=caption, marks=turns)
    names = [name for name in ("loss", "lr", "lambda", "gradient_norm", "images_per_second") if _told(steps, name)]
    page.table(
        ["step", *(name.replace("_", " ") for name in names)],
        [
            [f"{steps[place]['step']:,}", *(_number(steps[place].get(name)) for name in names)]
            for place in thinned(len(steps))
        ],
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def _add_faces(page: Report, hardest: Hardest) -> None:
    page.heading("The hardest pairs")
    for faces, says in (
        (hardest.same, "Two photos of one person each, least alike first."),
        (hardest.different, "Two people each, most alike first."),
    ):
        if len(faces):
            page.figure(figures.contact_sheet(faces, 8, says=f"Faces side by side: {says}"), says)


def _add_events(page: Report, history: Sequence[Entry]) -> None:
    rows = [
        [f"{entry['step']:,}", entry["time"][:19].replace("T", " "), entry["kind"], _story(entry)]
        for entry in history
        if entry["kind"] not in ("step", "validation", "checkpoint")
    ]
    if rows:
        page.heading("What happened")
        page.table(["step", "time (UTC)", "event", ""], rows[:500])


def _story(entry: Entry) -> str:
    skipped = ("kind", "step", "time", "config", "versions", "command")
    story = ", ".join(
        str(value) if name in ("text", "reason", "outcome") else f"{name} {value}"
        for name, value in entry.items()
        if name not in skipped and value is not None
    )
    return story if len(story) <= LETTERS else f"{story[:LETTERS]} ..."


def _add_repeat(page: Report, start: Mapping[str, Any], config: str | None) -> None:
    page.heading("How to repeat this")
    versions = ", ".join(f"{name} {version}" for name, version in _mapping(start, "versions").items())
    told = [str(start["command"])] if start.get("command") else []
    page.code("\n".join([*told, *([versions] if versions else []), *(["", config] if config else [])]))


def _of_kind(history: Iterable[Entry], kind: str) -> list[Entry]:
    return [entry for entry in history if entry["kind"] == kind]


def _mapping(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = entry.get(name)
    return value if isinstance(value, Mapping) else {}


def _column(entries: Iterable[Entry], name: str) -> list[float | None]:
    return [entry.get(name) for entry in entries]


def _told(entries: Iterable[Entry], name: str) -> bool:
    return any(value is not None for value in _column(entries, name))


def _draw(page: Report, panels: Iterable[Panel], *, says: str, caption: str, marks: Sequence[float] = ()) -> None:
    """Add the panels that have anything to show."""
    told = [panel for panel in panels if any(value is not None for line in panel.lines for value in line.values)]
    if told:
        page.figure(figures.over_steps(told, says=says, marks=marks), caption)


def smooth(entries: Sequence[Entry], name: str) -> tuple[list[float], list[float]]:
    """A column's running mean over a fiftieth of its length, and the steps at which it is known; gaps are left out."""
    known = [(float(entry["step"]), float(entry[name])) for entry in entries if entry.get(name) is not None]
    if not known:
        return [], []
    steps, values = np.array(known).T
    sums = np.cumsum(np.append(0.0, values))
    first = np.maximum(0, np.arange(1, len(values) + 1) - max(1, len(values) // 50))
    last = np.arange(1, len(values) + 1)
    return steps.tolist(), ((sums[last] - sums[first]) / (last - first)).tolist()


def thinned(count: int, *, keep: Sequence[int] = ()) -> list[int]:
    """At most about ROWS of `count` places, evenly, the first, the last and those to keep among them."""
    even = np.linspace(0, count - 1, min(count, ROWS)).round().astype(int).tolist()
    return sorted({*even, *keep})
