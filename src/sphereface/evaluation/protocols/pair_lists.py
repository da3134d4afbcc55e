"""Checks of a list of pairs: repeated pairs, absent images or videos, and the people in it."""

from collections.abc import Collection, Iterable, Sequence

from sphereface.data.lists.pairs import Pair
from sphereface.errors import DataFormatError, Setting


def names_of(pairs: Iterable[Pair]) -> list[str]:
    """All names, each once, in the order of the list."""
    return list(dict.fromkeys(name for pair in pairs for name in (pair.left, pair.right)))


PLAIN = (
    "leave one of these lines out; of LFW's own list, with counts in its first line, by writing it as a plain list, "
    "left<TAB>right<TAB>same<TAB>fold on each line"
)


def refuse_repeats(
    pairs: Iterable[Pair], source: str, what: str, way_out: str = "leave one of these lines out"
) -> None:
    """Raise for a pair that is listed twice, as same and as different included, and for a pair of one name."""
    seen: dict[frozenset[str], tuple[int, Pair]] = {}
    for number, pair in enumerate(pairs, 1):
        both = frozenset((pair.left, pair.right))
        if len(both) == 1:
            raise DataFormatError(
                f"{source}: {pair.left} is listed with itself, as pair {number:,}; wanted two {what}: leave it out"
            )
        first, other = seen.setdefault(both, (number, pair))
        if first != number:
            how = "" if other.same == pair.same else ", once as same and once as different"
            raise DataFormatError(
                f"{source}: {pair.left} and {pair.right} are listed twice, as pairs {first:,} and {number:,}{how}; "
                f"{way_out}"
            )


def refuse_absent(pairs: Sequence[Pair], there: Collection[str], where: str, what: str, way_out: str) -> None:
    """Raise if a listed image or video is absent; the message has the number of pairs that need it."""
    names = names_of(pairs)
    absent = [name for name in names if name not in there]
    if absent:
        lost = sum(pair.left not in there or pair.right not in there for pair in pairs)
        raise DataFormatError(
            f"{where}: {len(absent):,} of {len(names):,} listed {what} are not there, such as {absent[0]}, which "
            f"{lost:,} of {len(pairs):,} pairs need: {way_out}, or leave these pairs out with ",
            Setting("missing", "skip"),
        )


def people_of(pairs: Sequence[Pair]) -> tuple[list[str], list[str]] | None:
    """The left and the right person of each pair, by their folders; None if the folders are not people.

    Folders are people if same pairs, and only these, have one folder.
    """
    left, right = ([getattr(pair, side).split("/", 1)[0] for pair in pairs] for side in ("left", "right"))
    agree = all((a == b) == pair.same for a, b, pair in zip(left, right, pairs, strict=True))
    return (left, right) if agree else None
