"""The drawings of Figure 1: both protocols with examples side by side, and bars of both accuracies."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sphereface.arrays import Image
from sphereface.experiments.paper.sheet import Sheet
from sphereface.reports.figures import COLOURS, Picture, Theme, blank, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

CLOSED, OPEN = COLOURS[3], COLOURS[1]
RIGHT, WRONG = COLOURS[2], COLOURS[4]


class Answer(NamedTuple):
    """Two faces with a network's answer: a probe and what was found, or a pair."""

    faces: tuple[Image, Image]
    words: str
    right: bool


class Column(NamedTuple):
    """One protocol: its tasks, with the share of right answers in their names, and what it asks of features."""

    title: str
    tasks: Mapping[str, Sequence[Answer]]  # identification, then verification
    asks: str


def draw_protocols(training: Sequence[Image], people: int, columns: Sequence[Column]) -> Picture:
    """Both protocols side by side, below the training that they share."""

    def draw(theme: Theme) -> "Drawing":
        sheet = Sheet(10.6, 5.8, theme)
        sheet.text(0.25, 5.4, f"training set:\n{people:,} people", size=9, ha="left")
        for place, face in enumerate(training):
            sheet.image(face, 1.5 + 0.62 * place, 5.08, 0.54, 0.63)
        sheet.arrow((1.5 + 0.62 * len(training), 5.4), (7.1, 5.4))
        sheet.box(7.15, 5.08, 1.6, 0.64, "network:\nfeatures, classes", size=9)
        for column, left, colour in zip(columns, (0.1, 5.4), (CLOSED, OPEN), strict=True):
            sheet.arrow((7.95, 5.06), (7.95, 4.82), (left + 2.55, 4.82), (left + 2.55, 4.57))
            _draw_column(sheet, left, column, colour)
        return sheet.figure

    says = "Closed-set and open-set face recognition with one network: examples with their answers, and accuracies"
    return picture(draw, says, pdf=True)


def _draw_column(sheet: Sheet, left: float, column: Column, colour: str) -> None:
    sheet.frame(left, 0.1, 5.1, 4.45, edge=colour, line=1.6)
    sheet.text(left + 2.55, 4.31, column.title, size=11, weight="bold")
    for row, (task, answers) in enumerate(column.tasks.items()):
        top = 3.97 - 1.72 * row
        sheet.text(left + 0.15, top, task, ha="left", size=8.5)
        for place, answer in enumerate(answers):
            _draw_answer(sheet, left + 0.15 + 1.65 * place, top - 1.35, answer, arrow=row == 0)
    sheet.text(left + 2.55, 0.42, column.asks, size=9, style="italic")


def _draw_answer(sheet: Sheet, x: float, y: float, answer: Answer, *, arrow: bool) -> None:
    """Two faces with words below, in a frame that is green if the answer is right and red if it is wrong."""
    for place, face in enumerate(answer.faces):
        sheet.image(face, x + 0.1 + 0.72 * place, y + 0.35, 0.6, 0.7)
    if arrow:
        sheet.arrow((x + 0.7, y + 0.7), (x + 0.82, y + 0.7))
    sheet.frame(x, y, 1.52, 1.15, edge=RIGHT if answer.right else WRONG, line=1.8)
    sheet.text(x + 0.76, y + 0.17, f"{answer.words}: {'right' if answer.right else 'wrong'}", size=7.5)


def draw_accuracy(tasks: Mapping[str, str], found: Mapping[str, Sequence[Sequence[float]]]) -> Picture:
    """Bars by task, a panel for each network; shares in the closed and in the open set, nan where there is none."""

    def draw(_: Theme) -> "Drawing":
        figure = blank(9.6, 3.4)
        first: Axes | None = None
        for place, (name, both) in enumerate(found.items(), start=1):
            axes = figure.add_subplot(1, len(found), place, sharey=first)
            first = first or axes
            for side, (title, colour) in enumerate((("closed set", CLOSED), ("open set", OPEN))):
                heights = 100 * np.nan_to_num(both[side])
                at = np.arange(len(tasks)) + 0.4 * side - 0.2
                axes.bar(at, heights, 0.38, color=colour, label=title)
            axes.set_title(name)
            axes.set_xticks(range(len(tasks)), list(tasks.values()), rotation=90, fontsize=7.5)
            axes.grid(axis="y", alpha=0.2)
            axes.set_axisbelow(True)
            axes.set_ylim(0, 100)
        assert first is not None, "no network to draw"
        first.set_ylabel("%")
        figure.legend(*first.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
        return figure

    return picture(draw, "Closed-set and open-set accuracy by task, after training and before", pdf=True)
