"""Cells and columns of plain-text tables."""

from collections.abc import Sequence

from sphereface.metrics.rates import Rate


def shown(rate: Rate | None) -> str:
    """A rate in percent, or a dash where it cannot be measured."""
    return "-" if rate is None else rate.percent()


def percent(value: float | None) -> str:
    """A share in percent, or a dash where there is none."""
    return "-" if value is None else f"{100 * value:.2f}"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines of text, all cells of a column at one width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
