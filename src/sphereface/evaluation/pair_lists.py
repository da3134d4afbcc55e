"""What a list of pairs names, and whether a set has it: images or videos, people."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from sphereface.data.pairs import Pair
from sphereface.errors import DataFormatError


def names_of(pairs: Iterable[Pair]) -> list[str]:
    """All that is named, each once, in the order of the list."""
    return list(dict.fromkeys(name for pair in pairs for name in (pair.left, pair.right)))


PLAIN = (
    "leave one of these lines out; of LFW's own list, whose first line counts all, by writing it as a plain list, "
    "left<TAB>right<TAB>same<TAB>fold on each line"
)


def refuse_repeats(
    pairs: Iterable[Pair], source: str, what: str, way_out: str = "leave one of these lines out"
) -> None:
    """A pair that counts twice, or as same and as different, is a slip in a list; so is anything with itself."""
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
    """Raise if anything that is listed is not there, and say how many pairs that costs."""
    names = names_of(pairs)
    absent = [name for name in names if name not in there]
    if absent:
        lost = sum(pair.left not in there or pair.right not in there for pair in pairs)
        raise DataFormatError(
            f"{where}: {len(absent):,} of {len(names):,} listed {what} are not there, such as {absent[0]}, which "
            f"{lost:,} of {len(pairs):,} pairs need: {way_out}"
        )


def people_of(pairs: Sequence[Pair]) -> tuple[list[str], list[str]] | None:
    """Who is left and right in each pair, by their folders; None if the folders are no people's.

    They are if same pairs, and only these, have one folder.
    """
    left, right = ([getattr(pair, side).split("/", 1)[0] for pair in pairs] for side in ("left", "right"))
    agree = all((a == b) == pair.same for a, b, pair in zip(left, right, pairs, strict=True))
    return (left, right) if agree else None


def find_images(names: Iterable[str], paths: Sequence[str], *, anywhere: bool = False) -> dict[str, int]:
    """The places of listed images among paths, as far as they are there, whatever the suffix.

    A list may say `.jpg` where a face is `.png`; `anywhere`: and `5.jpg` where it is `loose_crop/5.png`. A name that
    may be two images is an error, and so are two names for one.
    """
    exact = {path: place for place, path in enumerate(paths)}
    alike: dict[str, list[int]] = {}
    for path, place in exact.items():
        alike.setdefault(_key(path, anywhere=anywhere), []).append(place)
    found: dict[str, int] = {}
    owners: dict[int, str] = {}
    for name in names:
        places = [exact[name]] if name in exact else alike.get(_key(name, anywhere=anywhere), [])
        if anywhere:
            places = [place for place in places if f"/{_bare(paths[place])}".endswith(f"/{_bare(name)}")]
        if len(places) > 1:
            raise DataFormatError(f"{name} may be {' and '.join(paths[place] for place in places)}; keep one of them")
        for place in places:
            found[name] = place
            if owners.setdefault(place, name) != name:
                raise DataFormatError(f"{paths[place]} may be {owners[place]} and {name}; wanted one of each")
    return found


def _key(path: str, *, anywhere: bool) -> str:
    bare = _bare(path)
    return bare.rpartition("/")[2] if anywhere else bare


def _bare(path: str) -> str:
    """A path without its suffix."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{name.rpartition('.')[0] or name}"


def some_of(missing: Mapping[str, str]) -> str:
    """A few of what is missing, and why, for a line of text."""
    shown = ", ".join(f"{name} ({reason})" for name, reason in list(missing.items())[:3])
    return shown + (f", and {len(missing) - 3:,} more" if len(missing) > 3 else "")
