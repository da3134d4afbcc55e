"""The result of a protocol as one HTML file: the rule, the tables, the curves, and the command to repeat it.

A page has measured curves only.
"""

from pathlib import Path
from typing import assert_never

from sphereface import __version__
from sphereface.evaluation.groups.result import GroupReport
from sphereface.evaluation.pages.groups import add_groups
from sphereface.evaluation.pages.pairs import add_hardest, add_pairs, add_videos
from sphereface.evaluation.pages.searches import add_identification, add_ijb, add_megaface
from sphereface.evaluation.protocols.folder import FolderResult
from sphereface.evaluation.protocols.ijb import IjbResult
from sphereface.evaluation.protocols.megaface import MegaFaceResult
from sphereface.evaluation.protocols.ytf import VideosResult
from sphereface.evaluation.rules.pairs import PairsResult
from sphereface.reports.figures import require_matplotlib
from sphereface.reports.html import Report

__all__ = ["PAGE", "Result", "make_report", "write_report"]

PAGE = "report.html"
Result = PairsResult | VideosResult | MegaFaceResult | IjbResult | FolderResult


def write_report(
    result: Result, folder: str | Path, *, title: str, command: str, groups: GroupReport | None = None
) -> Path:
    """Write the result of a protocol as `report.html` into a folder, which is made if needed.

    `command` is the command line that repeats the result; `groups`, if given, follow below.

    >>> write_report(evaluate_lfw(embedder, "lfw-112x96"), "out", title="LFW", command="sphereface evaluate lfw ...")
    """
    path = Path(folder) / PAGE
    make_report(result, title=title, command=command, groups=groups).write(path)
    return path


def make_report(result: Result, *, title: str, command: str, groups: GroupReport | None = None) -> Report:
    """The page that `write_report` writes."""
    require_matplotlib()
    page = Report(title, _lead(result))
    match result:
        case PairsResult():
            add_pairs(page, result)
        case VideosResult():
            add_videos(page, result)
        case MegaFaceResult():
            add_megaface(page, result)
        case IjbResult():
            add_ijb(page, result)
        case FolderResult():
            add_pairs(page, result.verification)
            add_identification(page, result.identification)
            add_hardest(page, result.hardest, result.faces)
            groups = groups or result.groups
        case _:
            assert_never(result)
    if groups is not None:
        add_groups(page, groups)
    page.heading("How to repeat this")
    page.code(f"{command}\nsphereface {__version__}")
    return page


def _lead(result: Result) -> str:
    if isinstance(result, MegaFaceResult):
        return f"MegaFace, {result.probe_set}, {result.protocol} protocol"
    if isinstance(result, IjbResult):
        return f"{result.name}, {result.model}"
    pairs = result.verification if isinstance(result, FolderResult) else result
    return f"{pairs.data}, {pairs.model}"
