"""Synthetic sets in published shapes: right files, right people in right lists, the same bytes each time."""

import json
from collections import Counter, defaultdict
from itertools import combinations

import cv2
import numpy as np
import pytest

from sphereface.contract import Alignment
from sphereface.data.formats.sets import open_set
from sphereface.data.lists.devkit import find_noise, read_distractors, read_noise, read_probes
from sphereface.data.lists.pairs import read_pairs
from sphereface.data.lists.videos import read_video_pairs
from sphereface.data.manifest import require_faces
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.data.synthetic.shape_plans import _balanced, _two
from sphereface.data.synthetic.shapes import frame, num_faces, write_ijb, write_shape
from sphereface.faces.warp import align

POPULATION = SyntheticPeople(seed=5)
SMALLEST = {"folder": (1, 1), "lfw": (20, 2), "ytf": (20, 1), "megaface": (2, 6), "ijb": (2, 4)}
HOMES = {"lfw": ["."], "ytf": ["."], "megaface": ["probes", "distractors"], "ijb": ["loose_crop"]}


def make(tmp_path, shape, people=0, photos=0, *, seed=5, workers=1):
    root = tmp_path / f"{shape}-{seed}-{workers}"
    least = SMALLEST[shape]
    write_shape(
        SyntheticPeople(seed=seed), root, people or least[0], photos or least[1], shape=shape, workers=workers
    )  # fmt: skip
    return root


def contents(root):
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def pixels(path):
    return cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)


@pytest.mark.parametrize("shape", SMALLEST)
def test_a_shape_depends_on_its_seed_alone_and_is_as_large_as_it_says(tmp_path, shape):
    first, again = contents(make(tmp_path / "a", shape)), contents(make(tmp_path / "b", shape))
    assert first == again
    assert sum(name.endswith((".png", ".jpg")) for name in first) == num_faces(shape, *SMALLEST[shape])
    assert contents(make(tmp_path, shape, seed=6)) != first


def test_two_processes_write_what_one_writes(tmp_path):
    assert contents(make(tmp_path, "megaface")) == contents(make(tmp_path, "megaface", workers=2))


@pytest.mark.parametrize("shape", HOMES)
def test_every_folder_of_faces_is_accepted_as_aligned(tmp_path, shape):
    root = make(tmp_path, shape)
    for home in HOMES[shape]:
        place = root if shape == "ijb" else root / home
        assert require_faces(root / home, open_set(place), Alignment()) is None


@pytest.mark.parametrize("shape", HOMES)
def test_too_few_are_refused_with_what_is_wanted(tmp_path, shape):
    people, photos = SMALLEST[shape]
    for wrong in ((people - 1, photos), (people, photos - 1)):
        with pytest.raises(ValueError, match=f"shape {shape} wants at least {people} and {photos}"):
            write_shape(POPULATION, tmp_path / "new", *wrong, shape=shape)
    assert not (tmp_path / "new").exists()


def test_what_is_there_is_not_written_over(tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(ValueError, match="is not overwritten"):
        write_shape(POPULATION, tmp_path, 2, 6, shape="megaface")
    assert contents(tmp_path) == {"mine": b"mine"}
    with pytest.raises(ValueError, match="unknown shape 'round'; choose one of folder, lfw"):
        write_shape(POPULATION, tmp_path / "new", 20, 6, shape="round")
    with pytest.raises(ValueError, match="unknown set 'ijba'"):
        write_ijb(POPULATION, tmp_path / "new", 4, 4, name="ijba")


def test_pairs_are_numbered_without_gaps():
    assert [_two(place) for place in range(45)] == sorted(combinations(range(10), 2), key=lambda pair: pair[::-1])


def test_pairs_are_balanced_distinct_and_stay_in_their_group():
    groups = [range(4), range(4, 9)]
    for pairs in (chosen := list(_balanced(groups, 3, 10, seed=0))):
        assert [pair.same for pair in pairs] == [True] * 10 + [False] * 10
        assert len({frozenset((pair.left, pair.right)) for pair in pairs}) == 20
        for (a, i), (b, j), same in pairs:
            assert (a == b) == same
            assert max(i, j) < 3
            assert not same or i != j
    for pairs, group in zip(chosen, groups, strict=True):
        assert {person for pair in pairs for person, _ in (pair.left, pair.right)} <= {*group}
    assert [len(pairs) for pairs in _balanced(groups, 2, 300, seed=0)] == [8, 8]  # as many as four people have


def test_lfw_has_ten_folds_of_people_and_two_views(tmp_path):
    root = make(tmp_path, "lfw", 30, 3)
    pairs, train, test = (read_pairs(root / f"pairs{part}.txt", suffix=".png") for part in ("", "DevTrain", "DevTest"))
    folds = defaultdict(set)
    for pair in pairs:
        folds[pair.fold] |= {pair.left[:5], pair.right[:5]}
    assert len(folds) == 10
    assert not any(folds[a] & folds[b] for a, b in combinations(folds, 2))
    people = [{path[:5] for pair in part for path in (pair.left, pair.right)} for part in (train, test)]
    assert not people[0] & people[1]
    assert len(people[0]) > len(people[1])
    for listed in (pairs, train, test):
        assert all((root / path).is_file() for pair in listed for path in (pair.left, pair.right))
        assert Counter(pair.same for pair in listed)[True] == len(listed) / 2
    np.testing.assert_array_equal(pixels(root / "p0007" / "p0007_0003.png"), POPULATION.face(7, 2))


def test_ytf_has_ten_splits_of_people_and_names_videos_that_are_there(tmp_path):
    root = make(tmp_path, "ytf", 20, 2)
    splits = defaultdict(set)
    for pair in read_video_pairs(root / "splits.txt"):
        splits[pair.split] |= {pair.first[:5], pair.second[:5]}
        assert pair.same == (pair.first[:5] == pair.second[:5])
        for video in (pair.first, pair.second):
            assert sorted(path.name for path in (root / video).iterdir()) == [f"{video[6:]}.{k}.png" for k in (1, 2)]
    assert sorted(splits) == list(range(1, 11))
    assert not any(splits[a] & splits[b] for a, b in combinations(splits, 2))
    np.testing.assert_array_equal(pixels(root / "p0003/1/1.2.png"), frame(POPULATION, 3, 1, 1))


def test_frames_of_a_video_differ_and_differ_less_than_photos_do():
    def apart(images):
        return np.mean([np.abs(a.astype(int) - b).mean() for a, b in combinations(images, 2)])

    for person in range(3):
        video = [frame(POPULATION, person, 0, number) for number in (0, 1, 10, 20)]
        photos = [POPULATION.face(person, number) for number in range(4)]
        assert min(np.abs(a.astype(int) - b).max() for a, b in combinations(video, 2)) > 0
        assert apart(video) < apart(photos) / 2
        assert apart([video[0], POPULATION.face(person, 0)]) < apart(photos) / 2  # the scene is that of the photo


def test_megaface_lists_name_its_files_and_its_noise_is_noise(tmp_path):
    root = make(tmp_path, "megaface", 3, 8)
    probes, people = read_probes(root / "templatelists/facescrub_features_list.json")
    lists = {size: read_distractors(root / f"templatelists/megaface_features_list.json_{size}_1") for size in (10, 30)}
    assert Counter(people) == {f"p{person:04d}": 8 for person in range(3)}
    assert [image.path for image in probes] == list(open_set(root / "probes").paths)  # the order of features
    assert [image.path for image in lists[30]] == list(open_set(root / "distractors").paths)
    assert {*lists[10]} < {*lists[30]}
    assert not {*people} & {image.id for image in lists[30]}
    noisy, elsewhere = find_noise(probes, read_noise(root / "noise/facescrub_noises.txt"))
    astray, missed = find_noise(lists[30], read_noise(root / "noise/megaface_noises.txt"))
    assert (noisy.sum(), astray.sum(), elsewhere, missed) == (1, 1, [], [])
    for image, is_noise in zip(probes, noisy, strict=True):
        person, photo = int(image.path[1:5]), int(image.path[6:10])
        shown = pixels(root / "probes" / image.path)
        assert np.array_equal(shown, POPULATION.face(person, photo)) != is_noise
    for image, is_noise in zip(lists[30], astray, strict=True):
        shown = pixels(root / "distractors" / image.path)
        assert np.array_equal(shown, POPULATION.face(int(image.path[1:5]), 0)) != is_noise
    place = int(np.flatnonzero(astray)[0])
    assert np.array_equal(pixels(root / "distractors" / lists[30][place].path), POPULATION.face(place % 3, 8 + place))


@pytest.mark.parametrize(("name", "galleries"), [("ijbc", ("G1", "G2")), ("ijbb", ("S1", "S2"))])
def test_ijb_metadata_agree_with_each_other(tmp_path, name, galleries):
    people, photos = 5, 7
    write_ijb(POPULATION, tmp_path / "ijb", people, photos, name=name)
    meta = tmp_path / "ijb" / "meta"
    rows = [line.split() for line in (meta / f"{name}_face_tid_mid.txt").read_text().splitlines()]
    assert [row[0] for row in rows] == [f"{k}.jpg" for k in range(1, people * photos + 1)]
    assert {path.name for path in (tmp_path / "ijb" / "loose_crop").glob("*.jpg")} == {row[0] for row in rows}
    template = {image: tid for image, tid, _ in rows}
    media = defaultdict(set)
    for _, tid, mid in rows:
        media[mid].add(tid)
    assert all(len(tids) == 1 for tids in media.values())
    frames = Counter(mid for _, _, mid in rows)
    assert Counter(frames.values()) == {1: people * 3, 4: people}  # two stills to enrol, one to probe, a video

    subject, listed = {}, {}
    for part in (*(f"gallery_{gallery}" for gallery in galleries), "probe_mixed"):
        header, *lines = (meta / f"{name}_1N_{part}.csv").read_text().splitlines()
        assert header == "TEMPLATE_ID,SUBJECT_ID,FILENAME"
        for tid, sid, file in (line.split(",") for line in lines):
            assert template[file.removeprefix("img/")] == tid
            assert subject.setdefault(tid, sid) == sid
        listed[part] = {line.split(",")[0] for line in lines}
    enrolled = [{subject[tid] for tid in listed[f"gallery_{gallery}"]} for gallery in galleries]
    assert not enrolled[0] & enrolled[1]
    assert enrolled[0] | enrolled[1] == {subject[tid] for tid in listed["probe_mixed"]} == {*map(str, range(1, 6))}
    assert {*subject} == {*template.values()}

    pairs = [line.split() for line in (meta / f"{name}_template_pair_label.txt").read_text().splitlines()]
    assert all((subject[a] == subject[b]) == (label == "1") for a, b, label in pairs)
    assert len({(a, b) for a, b, _ in pairs}) == len(pairs) == people * people * 2

    points = [line.split() for line in (meta / f"{name}_name_5pts_score.txt").read_text().splitlines()]
    assert [row[0] for row in points] == [row[0] for row in rows]
    assert all(0 < float(row[11]) <= 1 for row in points)
    face = pixels(tmp_path / "ijb" / "loose_crop" / "1.jpg")
    landmarks = np.array(points[0][1:11], dtype=float).reshape(5, 2)
    assert np.abs(align(face, landmarks).astype(int) - face).max() <= 1  # aligning these changes nothing
    assert np.abs(face.astype(int) - POPULATION.face(0, 0)).mean() < 4  # JPEG


def test_the_command_writes_every_shape(tmp_path):
    from typer.testing import CliRunner

    from sphereface.cli.data import app

    command = ["synth", str(tmp_path / "ijb"), "--people", "2", "--photos", "4", "--shape", "ijb", "--workers", "1"]
    ran = CliRunner().invoke(app, [*command, "--seed", "5", "--json"])
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert (found["shape"], found["faces"]) == ("ijb", 8)
    assert contents(tmp_path / "ijb") == contents(make(tmp_path, "ijb"))
