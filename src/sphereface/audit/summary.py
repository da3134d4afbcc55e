"""The findings of an audit as a page of plain text."""

from collections.abc import Sequence

from sphereface.audit.findings import Audit, SamePerson

SHOWN = 30  # rows of a table; the rest is counted


def markdown(audit: Audit, command: str) -> str:
    """What was found, with the command that finds it again."""
    parts = [
        "# What is wrong with this set",
        f"`{command}`",
        f"{audit.faces:,} faces of {audit.people:,} people.",
        _table(
            ("finding", "count"),
            [
                ("photos that do not look like their name", f"{len(audit.wrong_labels):,}"),
                ("one person under two names", f"{len(audit.two_names):,}"),
                ("people of the test set", f"{len(audit.in_test):,}"),
                ("pairs of copies", f"{len(audit.duplicates):,}"),
                ("of these under two names", f"{sum(not copy.same_person for copy in audit.duplicates):,}"),
                ("of these mirrored", f"{sum(copy.mirrored for copy in audit.duplicates):,}"),
                ("copies of photos of the test set", f"{len(audit.copies_in_test):,}"),
                ("people with few photos", f"{len(audit.few):,}"),
                ("unreadable", f"{len(audit.unreadable) + len(audit.unreadable_in_test):,}"),
            ],
        ),
    ]
    if audit.chance:
        chances = ", ".join(f"{chance:.1%} by {count}" for count, chance in audit.chance.items())
        parts.append(f"Chance to find a person who is there twice, by number of photos: {chances}.")
    sections = (
        (
            "Photos that do not look like their name",
            ("photo", "name", "looks like", "likeness with its name", "with the likest other"),
            [
                (d.path, d.person, d.looks_like or "nobody", f"{d.own:.2f}", f"{d.other:.2f}")
                for d in audit.wrong_labels
            ],
        ),
        ("One person under two names", ("first", "second", "by", "likeness"), [_pair(p) for p in audit.two_names]),
        ("People of the test set", ("ours", "theirs", "by", "likeness"), [_pair(p) for p in audit.in_test]),
        (
            "Copies",
            ("first", "second", "correlation", "mirrored"),
            [(c.first, c.second, f"{c.correlation:.3f}", "yes" if c.mirrored else "") for c in audit.duplicates],
        ),
    )
    for title, head, rows in sections:
        if rows:
            parts += [f"## {title}", _table(head, rows[:SHOWN])]
            if len(rows) > SHOWN:
                parts.append(f"And {len(rows) - SHOWN:,} more, in `audit.json`.")
    return "\n\n".join([*parts, *audit.notes]) + "\n"


def _pair(pair: SamePerson) -> tuple[str, ...]:
    return pair.first, pair.second, pair.how, "" if pair.score is None else f"{pair.score:.2f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
