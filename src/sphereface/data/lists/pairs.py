"""Lists of pairs: LFW's `pairs.txt` and `pairsDevTrain.txt`, plain lists, and conversion to and from `.bin`."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal, get_args

from sphereface.data.files.lines import Line, read_lines, whole_number
from sphereface.data.files.writing import new_folder, write_lines
from sphereface.data.formats.bins import PairSet, read_bin, write_bin
from sphereface.data.names import checked, checked_person, suffix_of
from sphereface.errors import DataFormatError, UserError
from sphereface.faces.images import read_bytes

Layout = Literal["view2", "view1", "plain"]

FOLDS = 10  # of sets without folds, in the order of their pairs
LIST = "pairs.txt"  # the list of `bin_to_folder`

_LFW_PATH = re.compile(r"(?P<name>[^/]+)/(?P=name)_(?P<number>[0-9]{4,18})(\.[^./]+)?")


@dataclass(frozen=True)
class Pair:
    """Two images, whether they show one person, and the fold that they belong to, counted from 0."""

    left: str
    right: str
    same: bool
    fold: int = 0


def read_pairs(path: str | Path, *, suffix: str = ".jpg") -> tuple[Pair, ...]:
    """The pairs of a list; its first line tells the format.

    LFW: `10<TAB>300` announces ten folds of 300 same and 300 different pairs, `1100` one fold of 1100 each (view 1);
    `name i j` is `name/name_000i.jpg` and `name/name_000j.jpg`. Plain: `left<TAB>right<TAB>same<TAB>fold` on each line.
    """
    lines = list(read_lines(Path(path)))
    if not lines:
        raise DataFormatError(f"{path}: no pair in it")
    header = [number for number in map(whole_number, lines[0].text.split()) if number is not None]
    if not 1 <= len(header) == len(lines[0].text.split()) <= 2:
        return tuple(_plain(line) for line in lines)
    folds, count = header if len(header) == 2 else (1, header[0])
    if len(lines) - 1 != folds * 2 * count or len(lines) == 1:
        wanted = f"{folds:,} x ({count:,} same + {count:,} different)"
        raise DataFormatError(f"{path}: {len(lines) - 1:,} pairs; wanted {wanted}, as in its first line")
    return tuple(
        _lfw(line, same=place % (2 * count) < count, fold=place // (2 * count), suffix=suffix)
        for place, line in enumerate(lines[1:])
    )


def _lfw(line: Line, *, same: bool, fold: int, suffix: str) -> Pair:
    text = line.text.strip()
    fields = text.split("\t") if "\t" in text else text.split()
    if same and len(fields) == 3:
        fields.insert(2, fields[0])
    elif same or len(fields) != 4:
        raise line.wrong("`name i j`, two photos of one person" if same else "`name i name j`, photos of two people")
    left, i, right, j = fields
    if not same and left == right:
        raise line.wrong("two people: this pair is listed as different")
    return Pair(_photo(line, left, i, suffix), _photo(line, right, j, suffix), same, fold)


def _photo(line: Line, name: str, number: str, suffix: str) -> str:
    value = whole_number(number)
    if value is None:
        raise line.wrong(f"a photo's number in place of {number!r}")
    return f"{checked_person(name, line)}/{name}_{value:04d}{suffix}"


def _plain(line: Line) -> Pair:
    left, right, same, fold = (*line.text.split("\t"), "0", "", "", "")[:4]
    number = whole_number(fold)
    if line.text.count("\t") not in (2, 3) or same not in ("0", "1") or number is None:
        raise line.wrong("`left<TAB>right<TAB>same<TAB>fold` with same 0 or 1, or LFW's own list with its first line")
    return Pair(checked(left, line), checked(right, line), same == "1", number)


def write_pairs(path: str | Path, pairs: Sequence[Pair], *, layout: Layout = "plain") -> None:
    """Write a list that `read_pairs` reads; LFW's layouts want its names, and each fold's same pairs first."""
    if layout not in get_args(Layout):
        raise UserError(f"unknown layout {layout!r}; choose one of {', '.join(get_args(Layout))}")
    write_lines(path, _plain_lines(pairs) if layout == "plain" else _lfw_lines(pairs, layout))


def _plain_lines(pairs: Sequence[Pair]) -> Iterator[str]:
    for pair in pairs:
        left, right = checked(pair.left, "a pair"), checked(pair.right, "a pair")
        yield f"{left}\t{right}\t{pair.same:d}\t{pair.fold}"


def _lfw_lines(pairs: Sequence[Pair], layout: Layout) -> Iterator[str]:
    folds = [fold for fold, _ in groupby(pair.fold for pair in pairs)]
    count = len(pairs) // max(2 * len(folds), 1)
    wanted = [(fold, place < count) for fold in range(len(folds)) for place in range(2 * count)]
    if not pairs or [(pair.fold, pair.same) for pair in pairs] != wanted:
        rule = "folds 0, 1, ..., each n same and then n different pairs"
        raise UserError(f'{len(pairs):,} pairs in folds {folds[:12]}; wanted {rule}: write others with layout="plain"')
    if layout == "view1" and len(folds) != 1:
        raise UserError(f"{len(folds)} folds; wanted one for view 1")
    yield f"{count}" if layout == "view1" else f"{len(folds)}\t{count}"
    for pair in pairs:
        (name, i), (other, j) = _lfw_name(pair.left), _lfw_name(pair.right)
        yield f"{name}\t{i}\t{j}" if pair.same else f"{name}\t{i}\t{other}\t{j}"


def _lfw_name(path: str) -> tuple[str, int]:
    match = _LFW_PATH.fullmatch(path)
    if match is None:
        raise UserError(f'{path!r} is not named as in LFW, Name/Name_0001.jpg: write such a list with layout="plain"')
    return match["name"], int(match["number"])


def pairs_to_bin(pairs: Sequence[Pair], root: str | Path, out: str | Path) -> None:
    """Write the images of some pairs, with paths below `root`, and whether each is one person, to a `.bin` file."""
    images = tuple(read_bytes(Path(root) / path) for pair in pairs for path in (pair.left, pair.right))
    write_bin(out, PairSet(images, tuple(pair.same for pair in pairs)))


def folds_in_a_row(count: int) -> list[int]:
    """Folds for pairs without folds, ten in a row as in InsightFace: the first count % 10 have one pair more."""
    size, more = divmod(count, FOLDS)
    return [fold for fold in range(FOLDS) for _ in range(size + (fold < more))]


def bin_to_folder(path: str | Path, root: str | Path) -> tuple[Pair, ...]:
    """Write a `.bin` file's images to a new folder, `000000/left.jpg` and so on, with a plain list of the pairs.

    A `.bin` has no folds; the pairs become ten folds in a row, as in InsightFace.
    """
    found = read_bin(path)
    pairs, folds = [], folds_in_a_row(len(found))
    with new_folder(root) as folder:
        for number, same in enumerate(found.same):
            (folder / f"{number:06d}").mkdir()
            names = []
            for side, image in zip(("left", "right"), found.images[2 * number :][:2], strict=True):
                names.append(f"{number:06d}/{side}{suffix_of(image)}")
                (folder / names[-1]).write_bytes(image)
            pairs.append(Pair(names[0], names[1], same, folds[number]))
        write_pairs(folder / LIST, pairs)
    return tuple(pairs)
