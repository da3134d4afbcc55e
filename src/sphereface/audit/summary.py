"""The findings of an audit as Markdown."""

from collections.abc import Sequence

from sphereface.audit.findings import Audit

SHOWN = 30  # rows of a table; a line counts the rest


def markdown(audit: Audit, command: str) -> str:
    """The findings, with the command that repeats the audit."""
    parts = [
        "# Audit of a set of faces",
        f"`{command}`",
        f"{audit.faces:,} faces of {audit.people:,} people.",
        _table(
            ("finding", "count"),
            [
                ("photos that do not look like their label", f"{len(audit.wrong_labels):,}"),
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
        parts.append(f"Probability that a person with two names is found, by number of photos: {chances}.")
    labels = ("photo", "label", "looks like", "likeness with its label", "with the most similar other")
    sections = (
        ("Photos that do not look like their label", labels, [doubt.row() for doubt in audit.wrong_labels]),
        ("One person under two names", ("first", "second", "by", "likeness"), [p.row() for p in audit.two_names]),
        ("People of the test set", ("ours", "theirs", "by", "likeness"), [p.row() for p in audit.in_test]),
        ("Copies", ("first", "second", "correlation", "mirrored"), [copy.row()[:4] for copy in audit.duplicates]),
    )
    for title, head, rows in sections:
        if rows:
            parts += [f"## {title}", _table(head, rows[:SHOWN])]
            if len(rows) > SHOWN:
                parts.append(f"And {len(rows) - SHOWN:,} more, in `audit.json`.")
    return "\n\n".join([*parts, *audit.notes]) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
