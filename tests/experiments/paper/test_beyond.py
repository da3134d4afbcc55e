"""The project's own experiments, as results of the same command."""

from sphereface.experiments.paper.beyond import from_page, real_faces
from sphereface.experiments.paper.setting import Setting

PAGE = """# Title

**Found** it,
on two lines.

## Rates

| loss | TAR |
|---|---|
| softmax | 1.00% |

The end.
"""


def test_a_page_becomes_findings_and_tables_and_stays_a_file():
    result = from_page("synthetic", Setting(scale="tiny"), PAGE, {"a": (1, 2)})
    assert result.findings == ["Found it, on two lines.", "The end."]
    (table,) = result.tables
    assert (table.title, list(table.head)) == ("Rates", ["loss", "TAR"])
    assert table.stamped == [["softmax", "1.00%", "tiny"]]
    assert result.pages == {"synthetic.md": PAGE}
    assert result.numbers == {"a": [1, 2]}


def test_real_faces_say_what_they_need_where_there_are_none():
    result = real_faces(Setting(scale="tiny"))
    assert "--faces" in result.findings[0]
    assert result.tables == []
