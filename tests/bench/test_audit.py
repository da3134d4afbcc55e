"""The memory benchmark of the audit at a size for which it was not made."""

import json

import numpy as np
import pytest

from sphereface.audit.duplicates import thumbnail
from sphereface.bench.audit import MadeUpPeople, bench_audit, goals, made_up_embedder
from sphereface.cli import main
from sphereface.faces.images import decode


@pytest.fixture(scope="module")
def measured():
    return bench_audit(people=70, photos=4, features=96)


def test_planted_faults_are_found_and_no_others(measured):
    assert measured["planted"] == {
        kind: {"planted": 10, "found": 10, "others": 0} for kind in ("two_names", "wrong_labels", "duplicates")
    }
    assert measured["goals"] == {"memory": True, "faults": True}
    assert list(measured["seconds"]) == ["reading faces", "comparing pictures", "comparing people"]


def test_memory_is_that_of_a_process_of_its_own(measured):
    assert 20 < measured["before_megabytes"] <= measured["peak_megabytes"] < 300
    assert measured["features_megabytes"] == 70 * 4 * 96 * 4 / 1e6
    assert json.loads(json.dumps(measured)) == measured


def test_a_result_over_the_limit_or_with_a_fault_missed_is_called_so(measured):
    assert not goals(measured, measured["peak_megabytes"])["memory"]
    for wrong in ({"found": 9}, {"others": 1}):
        planted = measured["planted"] | {"two_names": {"planted": 10, "found": 10, "others": 0} | wrong}
        assert goals(measured | {"planted": planted}, 3_000) == {"memory": True, "faults": False}


def test_photos_of_a_person_are_alike_and_those_of_others_are_not():
    faces = MadeUpPeople(12, 3, faults=0)
    pictures = np.stack([decode(faces.read(row)) for row in range(36)])
    same = faces.labels[:, None] == faces.labels
    for rows in (made_up_embedder(512).embed(pictures), [thumbnail(picture).ravel() for picture in pictures]):
        alike = np.corrcoef(rows)
        assert alike[same & ~np.eye(36, dtype=bool)] == pytest.approx(0.64, abs=0.15)
        assert np.abs(alike[~same]).max() < 0.3
    assert faces.two_names == faces.wrong_labels == faces.duplicates == set()


def test_the_verb_fails_where_the_audit_holds_more_than_it_may(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bench", "audit", "--people", "12", "--photos", "3", "--features", "8", "--limit", "10", "--json"])
    assert ended.value.code == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["limit_megabytes"] == 10
    assert "wanted less than 10 MB" in printed.err.splitlines()[-1]


def test_too_few_photos_are_refused_before_the_work():
    with pytest.raises(ValueError, match="3 people with 2 photos each; wanted at least 6 people with 3"):
        bench_audit(people=3, photos=2)
