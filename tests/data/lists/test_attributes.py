"""Tables of the groups of people and images."""

import pytest

from sphereface.data.lists.attributes import read_attributes
from sphereface.errors import DataFormatError


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty; wanted a header"),
        ("p000,a\np001,b\n", r"groups\.csv:1: 'p000,a'; wanted a header `person,group`"),
        ("person\np000\n", "wanted a header"),
        ("person,sex,sex\n", "a column without a name or one twice"),
        ("person,group\np000,a\np001\n", r"groups\.csv:3: 'p001'; wanted person,group"),
        ("person,group\np000,a\n\np000,b\n", r"groups\.csv:4: p000 stands in line 2 already"),
        ('person,group\np000,"a\n', r"groups\.csv:\d: .*wanted a table in CSV"),
        ("person,group\np000,\udcff\n", r"groups\.csv:\d: .*wanted a table in CSV and UTF-8"),
    ],
)
def test_a_table_that_is_none_is_an_error_that_names_the_line(tmp_path, text, problem):
    path = tmp_path / "groups.csv"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DataFormatError, match=problem):
        read_attributes(path)


def test_names_may_hold_commas_and_a_file_may_come_from_a_spreadsheet(tmp_path):
    path = tmp_path / "groups.csv"
    path.write_bytes('\ufeffperson,sex,age\r\n"Lovelace, Ada",f,36\r\nCharles, m ,\r\n'.encode())
    found = read_attributes(path)
    assert found.columns == {"sex": {"Lovelace, Ada": "f", "Charles": "m"}, "age": {"Lovelace, Ada": "36"}}
    assert found.names == ("Lovelace, Ada", "Charles")


def test_two_photos_that_differ_by_their_suffix_alone_have_a_line_each(tmp_path):
    rows = [("p/1.jpg", "old"), ("p/1.png", ""), ("p/2.jpg", "old"), ("q.jpg", "young")]
    path = tmp_path / "groups.csv"
    path.write_text("\n".join(["path,age", *(",".join(row) for row in rows)]))
    listed = read_attributes(path)
    paths = ["p/1.jpg", "p/1.png", "p/1.jpg.png", "p/2.webp", "q.png"]
    assert listed.groups_of("age", [], paths) == ["old", None, "old", "old", "young"]
    assert listed.lacking([], [*paths, "p/1.webp", "p/3.jpg"]) == ["p/1.webp", "p/3.jpg"]  # the one could be either
    assert listed.strangers([], ["p/1.jpg", "p/2.png"]) == ["p/1.png", "q.jpg"]
