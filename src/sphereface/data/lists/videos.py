"""Lists of video pairs: YouTube Faces' `splits.txt`."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sphereface.data.files.lines import Line, read_lines, whole_number
from sphereface.data.files.writing import write_lines
from sphereface.data.names import checked
from sphereface.errors import DataFormatError

HEADER = "split_num, pair_num, first name, second name, is_same"


@dataclass(frozen=True)
class VideoPair:
    """Two videos, `Name/0` and `Name/3`, whether they show one person, and the split that they belong to."""

    split: int
    first: str
    second: str
    same: bool


def read_video_pairs(path: str | Path) -> tuple[VideoPair, ...]:
    """The pairs of a `splits.txt`: `split, pair, first, second, same` on each line, below a header."""
    lines = list(read_lines(Path(path)))
    if lines and whole_number(lines[0].text.split(",")[0].strip()) is None and lines[0].text.count(",") == 4:
        del lines[0]
    if not lines:
        raise DataFormatError(f"{path}: no pair in it; wanted a splits.txt of video pairs")
    return tuple(_parse(line) for line in lines)


def _parse(line: Line) -> VideoPair:
    fields = [field.strip() for field in line.text.split(",")]
    if len(fields) != 5 or fields[4] not in ("0", "1"):
        raise line.wrong("`split, pair, first name, second name, same` with same 0 or 1")
    split, pair = whole_number(fields[0]), whole_number(fields[1])
    if split is None or pair is None:
        raise line.wrong("numbers for the split and the pair")
    return VideoPair(split, checked(fields[2], line), checked(fields[3], line), fields[4] == "1")


def write_video_pairs(path: str | Path, pairs: Iterable[VideoPair]) -> None:
    """Write what `read_video_pairs` reads, pairs counted from 1 in each split."""
    counts: Counter[int] = Counter()
    lines = [HEADER]
    for pair in pairs:
        counts[pair.split] += 1
        first, second = checked(pair.first, "a video"), checked(pair.second, "a video")
        lines.append(f"{pair.split}, {counts[pair.split]}, {first}, {second}, {pair.same:d}")
    write_lines(path, lines)
