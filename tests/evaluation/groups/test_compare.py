"""Groups at one threshold: rates against loops over all pairs, and verdicts on simulated people."""

import json
from itertools import combinations

import numpy as np
import pytest

from sphereface.contract import Card
from sphereface.data.aligning.run import AlignReport
from sphereface.data.lists.attributes import read_attributes
from sphereface.data.lists.landmarks import write_landmarks
from sphereface.errors import DataFormatError
from sphereface.evaluation.groups.compare import evaluate_groups, groups_of_set
from sphereface.evaluation.groups.detection import read_detection
from sphereface.evaluation.sources import WholeSet
from sphereface.metrics.intervals import wilson

QUICK = {"far": 1e-2, "rounds": 100}


def people_of(groups):
    return [f"p{number:03d}" for number in range(len(groups))]


def simulated(seed, groups, *, photos=4, noise=None, likeness=None, size=24):
    """A set of people around random points; `noise` (FNMR) and `likeness` to each other (FMR) by group.

    Photos of some people are noisier than those of others, as in life.
    """
    rng = np.random.default_rng(seed)
    noise, likeness = noise or {}, likeness or {}
    common = {group: rng.normal(size=size) for group in sorted(set(groups))}
    points = rng.normal(size=(len(groups), size))
    points = np.array([p + likeness.get(g, 0) * common[g] for p, g in zip(points, groups, strict=True)])
    spread = np.array([noise.get(group, 1.0) for group in groups]) * np.exp(0.3 * rng.normal(size=len(groups)))
    labels = np.repeat(np.arange(len(groups)), photos)
    features = points[labels] + spread[labels, None] * rng.normal(size=(len(labels), size))
    people = people_of(groups)
    paths = [f"{people[label]}/{place:05d}.png" for place, label in enumerate(labels)]
    return WholeSet("simulated", features.astype(np.float32), labels, people, paths, Card(name="none"), {})


def table(path, rows, header="person,group"):
    path.write_text("\n".join([header, *(",".join(row) for row in rows)]) + "\n")
    return read_attributes(path)


@pytest.fixture
def by_person(tmp_path):
    def write(groups):
        return table(tmp_path / "groups.csv", zip(people_of(groups), groups, strict=True))

    return write


THREE = ["a"] * 20 + ["b"] * 20 + ["c"] * 20


# Rates


def by_loops(whole, groups, far):
    """Threshold, FMR of each two groups and FNMR of each, from every pair, one at a time."""
    unit = whole.features.astype(float)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosine = unit @ unit.T
    pairs = list(combinations(range(len(unit)), 2))
    different = [pair for pair in pairs if whole.labels[pair[0]] != whole.labels[pair[1]]]
    same = [pair for pair in pairs if whole.labels[pair[0]] == whole.labels[pair[1]]]
    falling = sorted((cosine[pair] for pair in different), reverse=True)
    refused = falling[int(far * len(falling))]  # all above it pass
    names = sorted({group for group in groups if group})
    fmr = {}
    for one in names:
        for two in names:
            among = [p for p in different if {(groups[p[0]], groups[p[1]])} & {(one, two), (two, one)}]
            fmr[one, two] = np.mean([cosine[pair] > refused for pair in among])
    fnmr = {}
    for name in names:
        among = [pair for pair in same if groups[pair[0]] == groups[pair[1]] == name]
        fnmr[name] = np.mean([cosine[pair] <= refused for pair in among])
    return refused, fmr, fnmr


def test_rates_and_matrix_are_those_of_every_pair_looked_at_alone(by_person):
    whole = simulated(0, THREE, photos=3)
    report = groups_of_set(whole, by_person(THREE), **QUICK)
    refused, fmr, fnmr = by_loops(whole, [THREE[label] for label in whole.labels], 1e-2)
    found = report.attributes[0]
    for line, row in zip(found.groups, found.matrix, strict=True):
        assert line.fnmr.value == pytest.approx(fnmr[line.name])
        assert line.fmr.value == pytest.approx(fmr[line.name, line.name])
        assert [rate.value for rate in row] == pytest.approx([fmr[line.name, other] for other in "abc"])
        assert (line.people, line.photos, line.same) == (20, 60, 60)
        assert line.different == 60 * 57 / 2
    assert report.threshold > refused
    assert report.different == 180 * 177 / 2
    assert report.fmr == pytest.approx(int(1e-2 * report.different) / report.different)


def test_groups_of_images_count_only_pairs_of_images_that_are_both_in_the_group(tmp_path):
    whole = simulated(1, ["x"] * 40, photos=6)
    groups = ["young" if place % 2 else "old" for place in range(len(whole.paths))]
    groups[::7] = [""] * len(groups[::7])  # not stated
    listed = table(tmp_path / "groups.csv", zip(whole.paths, groups, strict=True), "path,age")
    report = groups_of_set(whole, listed, **QUICK)
    _, fmr, fnmr = by_loops(whole, groups, 1e-2)
    found = report.attributes[0]
    assert [line.name for line in found.groups] == ["old", "young"]
    for line, row in zip(found.groups, found.matrix, strict=True):
        assert line.fnmr.value == pytest.approx(fnmr[line.name])
        assert [rate.value for rate in row] == pytest.approx([fmr[line.name, other] for other in ("old", "young")])
    assert found.unstated == groups.count("")


def test_a_path_may_have_another_suffix_in_the_table(tmp_path, by_person):
    whole = simulated(0, THREE)
    rows = [(path.replace(".png", ".jpg"), THREE[label]) for path, label in zip(whole.paths, whole.labels, strict=True)]
    listed = groups_of_set(whole, table(tmp_path / "paths.csv", rows, "path,group"), **QUICK)
    assert listed.attributes == groups_of_set(whole, by_person(THREE), **QUICK).attributes


def test_a_threshold_may_be_given(by_person):
    whole = simulated(0, THREE)
    stated = groups_of_set(whole, by_person(THREE), **QUICK)
    given = groups_of_set(whole, by_person(THREE), threshold=stated.threshold, rounds=100)
    assert given.attributes == stated.attributes
    assert given.fmr == stated.fmr
    assert given.as_dict()["threshold_from"] == "given"
    with pytest.raises(ValueError, match="FMR 0 lets 0 pass, wanted 10: a lower threshold"):
        groups_of_set(whole, by_person(THREE), threshold=1.5)


# Verdicts


def test_a_group_that_is_not_recognised_is_found_and_only_that(by_person):
    for seed in range(5):
        report = groups_of_set(simulated(seed, THREE, noise={"c": 1.9}), by_person(THREE), **QUICK)
        assert [(found.group, found.which, found.others) for found in report.findings] == [("c", "FNMR", ("a", "b"))]
        assert report.findings[0].ratio > 1.3
        assert report.findings[0].p <= 0.01


def test_a_group_whose_people_look_alike_to_the_model_is_found_and_only_that(by_person):
    for seed in range(5):
        report = groups_of_set(simulated(seed, THREE, likeness={"b": 1.2}), by_person(THREE), **QUICK)
        found = [finding for finding in report.findings if finding.which == "FMR"]
        assert [(finding.group, finding.others) for finding in found] == [("b", ("a", "c"))]
        assert found[0].ratio > 3
        assert "found: group b: FMR" in report.table()


def test_of_two_groups_the_worse_one_is_named(by_person):
    two = ["a"] * 30 + ["b"] * 30
    report = groups_of_set(simulated(0, two, noise={"a": 1.9}), by_person(two), **QUICK)
    assert [(found.group, found.which) for found in report.findings] == [("a", "FNMR")]
    assert report.tests == 2


@pytest.mark.parametrize(("error", "most"), [(0.01, 2), (0.05, 5)])
def test_of_100_balanced_sets_no_more_have_a_finding_than_the_stated_error_lets_expect(by_person, error, most):
    listed = by_person(THREE)
    sets = [simulated(1000 + seed, THREE) for seed in range(100)]
    reports = [groups_of_set(each, listed, far=1e-2, rounds=60, error=error) for each in sets]
    assert sum(bool(report.findings) for report in reports) <= most
    assert all(found.p <= error for report in reports for found in report.findings)
    assert f"{100 * error:g} % at most" in reports[0].table()
    assert "found: nothing" in next(report for report in reports if not report.findings).table()


def test_several_attributes_are_judged_together(tmp_path):
    sex = ["f", "m"] * 30
    rows = [(person, age, each) for person, age, each in zip(people_of(sex), THREE, sex, strict=True)]
    listed = table(tmp_path / "groups.csv", rows, "person,age,sex")
    report = groups_of_set(simulated(0, THREE, noise={"c": 1.9}), listed, **QUICK)
    assert [each.attribute for each in report.attributes] == ["age", "sex"]
    assert report.tests == 6 + 2
    assert {found.attribute for found in report.findings} == {"age"}
    alone = table(tmp_path / "age.csv", [row[:2] for row in rows], "person,age")
    once = groups_of_set(simulated(0, THREE, noise={"c": 1.9}), alone, **QUICK)
    assert report.findings[0].p == pytest.approx(once.findings[0].p * 8 / 6)


def test_a_report_is_json_without_nan(by_person):
    report = groups_of_set(simulated(0, THREE, likeness={"b": 3.0}), by_person(THREE), **QUICK)
    content = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert content["attributes"]["group"]["cross_group_fmr"]["a"]["b"]["value"] == 0
    assert content["family_wise_error"] == 0.01
    assert any(found["sentence"].startswith("group b: FMR") for found in content["findings"])


# Groups that are too small


def test_groups_that_are_too_small_are_refused_by_name_with_what_they_need(by_person):
    groups = ["a"] * 30 + ["b"] * 30 + ["few"] * 5
    whole = simulated(0, groups)
    with pytest.raises(ValueError, match=r"few: 5 people with two photos, wanted 20 and 160 pairs .* wanted 10: 1,000"):
        groups_of_set(whole, by_person(groups), **QUICK)
    with pytest.raises(ValueError, match=r"a: 6,960 pairs of different people, of which FMR 0\.001 lets 6\.96 pass"):
        groups_of_set(whole, by_person(groups), far=1e-3)


def test_they_can_be_left_out_and_are_listed(by_person):
    groups = ["a"] * 30 + ["b"] * 30 + ["few"] * 5
    report = groups_of_set(simulated(0, groups), by_person(groups), small="leave-out", **QUICK)
    found = report.attributes[0]
    assert [line.name for line in found.groups] == ["a", "b"]
    assert [*found.left_out] == ["few"]
    assert "left out: few, 5 people with two photos" in report.table()


def test_one_group_is_nothing_to_compare(by_person):
    groups = ["a"] * 30 + ["few"] * 5
    with pytest.raises(ValueError, match=r"1 of 2 groups are large enough; wanted 2 to compare \(few: 5 people"):
        groups_of_set(simulated(0, groups), by_person(groups), small="leave-out", **QUICK)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"small": "drop"}, "small is 'drop'; choose one of refuse"),
        ({"missing": "drop"}, "missing is 'drop'; choose one of fail, skip"),
        ({"far": 0.0}, "far is 0.0"),
        ({"threshold": float("nan")}, "threshold is nan; wanted a cosine"),
    ],
)
def test_unknown_choices_are_refused(by_person, options, said):
    with pytest.raises(ValueError, match=said):
        groups_of_set(simulated(0, THREE), by_person(THREE), **options)


def test_more_pairs_than_can_be_held_are_refused(by_person):
    whole, listed = simulated(0, THREE), by_person(THREE)  # 28,320 pairs of different people
    for options in ({"far": 0.02}, {"threshold": 0.1}):
        with pytest.raises(ValueError, match=r"of 28,320 pairs .* would pass; wanted at most 300: state a lower rate"):
            groups_of_set(whole, listed, **options, most=300)
    groups_of_set(whole, listed, **QUICK, most=300)


def test_without_two_photos_of_anyone_there_is_nothing_to_judge(by_person):
    with pytest.raises(ValueError, match="wanted people with two photos each"):
        groups_of_set(simulated(0, THREE, photos=1), by_person(THREE), **QUICK)


# Failure to detect


@pytest.fixture
def aligned(tmp_path):
    """What align leaves behind: of everybody's eight photos, one of each `c` and of one `a` had no face."""
    folder = tmp_path / "aligned"
    folder.mkdir()
    photos = [f"{person}/{number}.jpg" for person in people_of(THREE) for number in range(8)]
    none = [f"{person}/0.jpg" for person, group in zip(people_of(THREE), THREE, strict=True) if group == "c"]
    none.append("p000/3.jpg")
    found = [path for path in photos if path not in none]
    report = AlignReport(
        photos=481,
        found=len(found),
        faces=len(found),
        none=tuple(none),
        several={},
        unreadable={"p001/x.jpg": "cut off"},
    )
    (folder / "report.json").write_text(report.model_dump_json())
    write_landmarks(folder / "landmarks.txt", {path: np.zeros((5, 2)) for path in found})
    return folder


def test_failures_to_detect_are_shares_of_a_groups_photos(by_person, aligned):
    for path in (aligned, aligned / "report.json"):
        report = groups_of_set(simulated(0, THREE), by_person(THREE), aligned=path, **QUICK)
        rates = {line.name: line.failure_to_detect for line in report.attributes[0].groups}
        assert [rates[name].value for name in "abc"] == pytest.approx([1 / 160, 0, 1 / 8])
        assert rates["b"].interval == pytest.approx(wilson(0, 20))
        assert rates["a"].interval.low == 0 < rates["a"].interval.high < 5 / 160


def test_who_was_never_detected_has_a_line_and_counts_as_failed(by_person, aligned):
    groups = [*THREE, "c"]
    report = AlignReport.model_validate_json((aligned / "report.json").read_text())
    none = (*report.none, *(f"p060/{number}.jpg" for number in range(8)))
    (aligned / "report.json").write_text(report.model_copy(update={"none": none}).model_dump_json())
    found = groups_of_set(simulated(0, THREE), by_person(groups), aligned=aligned, **QUICK).attributes[0]
    assert found.groups[2].failure_to_detect.value == pytest.approx((20 + 8) / (160 + 8))


def test_photos_without_a_face_need_a_line_too_lest_a_group_has_no_failures(tmp_path, aligned):
    whole = simulated(0, THREE)
    detection = read_detection(aligned)
    rows = [(path, THREE[int(path[1:4])]) for path in (*whole.paths, *detection.found)]
    without = table(tmp_path / "found.csv", rows, "path,group")
    with pytest.raises(DataFormatError, match=r"no line for 21 images of simulated, such as p000/3\.jpg"):
        groups_of_set(whole, without, aligned=aligned, **QUICK)
    everything = table(tmp_path / "all.csv", [*rows, *((path, THREE[int(path[1:4])]) for path in detection.none)],
                       "path,group")  # fmt: skip
    found = groups_of_set(whole, everything, aligned=aligned, **QUICK).attributes[0]
    assert [line.failure_to_detect.value for line in found.groups] == pytest.approx([1 / 160, 0, 1 / 8])


def test_a_report_that_is_none_or_of_another_run_is_refused(aligned):
    with pytest.raises(DataFormatError, match="no report of sphereface data align"):
        read_detection(aligned / "nowhere")
    write_landmarks(aligned / "landmarks.txt", {"p000/1.jpg": np.zeros((5, 2))})
    with pytest.raises(DataFormatError, match=r"1 photos, but report\.json has 459; the two are of different runs"):
        read_detection(aligned)


# Tables that do not fit


@pytest.mark.parametrize("error", [0, 1, -0.1, float("nan")])
def test_an_error_that_is_no_chance_is_refused(by_person, error):
    with pytest.raises(ValueError, match="wanted a chance between 0 and 1"):
        groups_of_set(simulated(0, THREE), by_person(THREE), error=error, **QUICK)


def test_an_unknown_option_is_a_type_error_before_anything_is_read():
    with pytest.raises(TypeError, match="unexpected keyword argument 'fmr'"):
        evaluate_groups(None, "nowhere", "nowhere.csv", fmr=0.1)


def test_unknown_people_are_an_error(by_person):
    with pytest.raises(DataFormatError, match="1 of its people are not in simulated, such as p060; correct or remove"):
        groups_of_set(simulated(0, THREE), by_person([*THREE, "a"]), **QUICK)


def test_people_without_a_line_are_an_error_or_left_out_and_counted(by_person):
    whole = simulated(0, [*THREE, "a"])
    with pytest.raises(DataFormatError, match=r"groups\.csv: no line for 1 people of simulated, such as p060"):
        groups_of_set(whole, by_person(THREE), **QUICK)
    report = groups_of_set(whole, by_person(THREE), missing="skip", **QUICK)
    assert [line.people for line in report.attributes[0].groups] == [20, 20, 20]
    assert report.attributes[0].unstated == 4
    assert report.notes == ("1 people have no line in groups.csv and are in no group",)
