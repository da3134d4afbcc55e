"""People by name: spellings of one name that differ in word order, case or accents."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable


def key(name: str) -> tuple[str, ...] | None:
    """The words of a name, sorted, in lower case and without accents; None for a code such as p012 or n000001."""
    plain = unicodedata.normalize("NFKD", name).casefold()
    words = re.findall(r"[^\W\d_]+", "".join(letter for letter in plain if not unicodedata.combining(letter)))
    if any(letter.isdigit() for letter in plain) or sum(map(len, words)) < 3:
        return None
    return tuple(sorted(words))


def spelled_twice(people: Iterable[str]) -> list[tuple[str, ...]]:
    """Groups of names that differ in spelling only."""
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name in people:
        if (words := key(name)) is not None:
            groups[words].append(name)
    return [tuple(names) for names in groups.values() if len(names) > 1]


def in_both(people: Iterable[str], others: Iterable[str]) -> list[tuple[str, str]]:
    """Names that are in both lists, with both spellings."""
    known = {words: name for name in others if (words := key(name)) is not None}
    return [(name, known[words]) for name in people if (words := key(name)) is not None and words in known]
