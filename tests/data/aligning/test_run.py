"""Folders of photos become folders of faces: nothing lost, nothing half-written, the same after any interruption."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import cv2
import numpy as np
import pytest
from skimage import data as samples

from sphereface import Detector, align
from sphereface.data.aligning.run import CHUNK, Job, align_folder
from sphereface.data.lists.landmarks import read_landmarks
from sphereface.data.manifest import read_manifest
from sphereface.errors import ContractMismatch, DataFormatError, JobFailed, UserError
from sphereface.evaluation.groups.detection import read_detection
from sphereface.faces.images import decode, encode_png, read_photo

LATIN = [os.fsdecode(name) for name in (b"caf\xe9.png", b"\xe9/1.png")] if sys.platform != "darwin" else []


@pytest.fixture(scope="module")
def astronaut():
    return cv2.resize(samples.astronaut(), (256, 256), interpolation=cv2.INTER_AREA)


@pytest.fixture
def photos(tmp_path, astronaut):
    """One face, none, two, an unreadable file, a file that is no image, names that collide."""
    root = tmp_path / "photos"
    two = np.hstack([astronaut[:, 40:200], astronaut[:, 40:200]])
    for name, image in {
        "ann/1.jpg": astronaut, "ann/2.png": astronaut[:, ::-1], "bob/deep/3.png": two,
        "bob/4.jpg": np.full((100, 120, 3), 99, np.uint8), "bob/4.png": astronaut, "flat.png": astronaut,
    }.items():  # fmt: skip
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_png(np.ascontiguousarray(image)))
    (root / "bob" / "5.jpg").write_bytes(b"\xff\xd8\xff no photo")
    (root / "bob" / "notes.txt").write_text("hello")
    return root


def tree(root):
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }


def test_every_photo_is_accounted_for(photos, tmp_path):
    report = align_folder(Job(photos, tmp_path / "faces", format="png"))
    assert (report.photos, report.found, report.faces) == (7, 5, 5)
    assert report.none == ("bob/4.jpg",)
    assert report.several == {"bob/deep/3.png": 2}
    assert list(report.unreadable) == ["bob/5.jpg"]
    assert report.ignored == ("bob/notes.txt",)
    assert report.found + len(report.none) + len(report.unreadable) == report.photos
    written = set(tree(tmp_path / "faces")) - {"report.json", "landmarks.txt", "manifest.json"}
    assert written == {"ann/1.png", "ann/2.png", "bob/deep/3.png", "bob/4.png.png", "flat.png"}
    assert json.loads((tmp_path / "faces" / "report.json").read_text())["none"] == ["bob/4.jpg"]


def test_a_face_is_what_detect_and_align_give(photos, tmp_path, astronaut):
    align_folder(Job(photos, tmp_path / "faces", format="png"))
    points = Detector(threads=1).detect(astronaut).landmarks[0].astype(float)
    face = read_photo(tmp_path / "faces" / "ann" / "1.png")
    assert np.abs(face.astype(int) - align(astronaut, points.round(3))).max() <= 1
    listed = read_landmarks(tmp_path / "faces" / "landmarks.txt")
    np.testing.assert_allclose(listed["ann/1.jpg"], points[None], atol=0.02)


def test_its_own_landmarks_give_the_same_faces_again(photos, tmp_path):
    align_folder(Job(photos, tmp_path / "a", format="png", choice="all"))
    align_folder(Job(photos, tmp_path / "b", format="png", choice="all", landmarks=tmp_path / "a" / "landmarks.txt"))
    first, second = tree(tmp_path / "a"), tree(tmp_path / "b")
    assert "bob/deep/3-2.png" in first
    assert {n: h for n, h in first.items() if n.endswith("png")} == {
        n: h for n, h in second.items() if n.endswith("png")
    }


def test_a_list_that_names_other_photos_is_refused(photos, tmp_path):
    (tmp_path / "points.txt").write_text("ann/9.jpg 1 1 2 1 1.5 2 1 3 2 3\n")
    with pytest.raises(DataFormatError, match=r"1 of its lines name no photo .* such as ann/9\.jpg"):
        align_folder(Job(photos, tmp_path / "faces", landmarks=tmp_path / "points.txt"))


def test_the_manifest_says_how_and_stops_a_second_alignment(photos, tmp_path):
    align_folder(Job(photos, tmp_path / "faces", template="matlab", crop="112x112"))
    manifest = read_manifest(tmp_path / "faces")
    assert (manifest.alignment.template, manifest.alignment.crop) == ("matlab", "112x112")
    assert manifest.settings["found by"] == "mtcnn"
    with pytest.raises(ContractMismatch, match="faces already"):
        align_folder(Job(tmp_path / "faces", tmp_path / "again"))


@pytest.mark.parametrize(("misses", "crops"), [("skip", 0), ("centre", 1)])
def test_photos_without_a_face_follow_the_policy(photos, tmp_path, misses, crops):
    report = align_folder(Job(photos, tmp_path / "faces"), misses=misses)
    assert report.centre_crops == crops
    assert (tmp_path / "faces" / "bob" / "4.jpg.jpg").exists() == bool(crops)


def test_the_policy_fail_names_the_misses_and_keeps_the_work(photos, tmp_path):
    job = Job(photos, tmp_path / "faces")
    with pytest.raises(JobFailed, match=r"1 photos without a face and 1 unreadable, such as bob/4\.jpg.*--misses skip"):
        align_folder(job, misses="fail")
    assert read_manifest(tmp_path / "faces") is None
    written = (tmp_path / "faces" / "ann" / "1.jpg").stat().st_mtime_ns
    align_folder(job, misses="skip")
    assert (tmp_path / "faces" / "ann" / "1.jpg").stat().st_mtime_ns == written  # not made again
    assert read_manifest(tmp_path / "faces") is not None


def test_a_finished_run_is_not_done_again(photos, tmp_path):
    job = Job(photos, tmp_path / "faces")
    first = align_folder(job)
    before = tree(tmp_path / "faces")
    counts = []
    assert align_folder(job, progress=lambda done, total: counts.append((done, total))) == first
    assert counts == [(7, 7)]
    assert tree(tmp_path / "faces") == before


def test_other_choices_or_other_photos_never_mix(photos, tmp_path):
    align_folder(Job(photos, tmp_path / "faces"))
    with pytest.raises(ValueError, match="holds something else"):
        align_folder(Job(photos, tmp_path / "faces", template="matlab"))
    (photos / "ann" / "1.jpg").write_bytes(encode_png(np.zeros((9, 9, 3), np.uint8)))
    with pytest.raises(ValueError, match="holds something else"):
        align_folder(Job(photos, tmp_path / "faces"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.txt").write_text("dear diary")
    with pytest.raises(ValueError, match="holds something else"):
        align_folder(Job(photos, tmp_path / "mine"))
    assert (tmp_path / "mine" / "diary.txt").read_text() == "dear diary"


def test_source_and_target_may_not_contain_each_other(photos):
    for target in (photos, photos / "faces", photos.parent):
        with pytest.raises(ValueError, match="one contains the other"):
            align_folder(Job(photos, target))


def test_an_empty_or_missing_folder_is_a_clear_error(tmp_path):
    with pytest.raises(DataFormatError, match="no such folder"):
        align_folder(Job(tmp_path / "nowhere", tmp_path / "faces"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataFormatError, match="no photo below it"):
        align_folder(Job(tmp_path / "empty", tmp_path / "faces"))


def drawn(folder, names, *, number=2):
    """Photos of noise, and a list of made-up points, of some faces each."""
    points = np.array([[30.0, 40], [60, 40], [45, 55], [33, 70], [57, 70]])
    lines = []
    for place, name in enumerate(names):
        path = folder / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_png(np.random.default_rng(place).integers(0, 255, (90, 90, 3), dtype=np.uint8)))
        for face in range(number):
            lines.append(f"{name} {' '.join(map(str, (points + face).ravel().tolist()))}\n")
    (folder / "points.txt").write_text("".join(lines))
    return Job(folder / "photos", folder / "faces", landmarks=folder / "points.txt", choice="all", format="png")


def faces_of(job):
    return {name: digest for name, digest in tree(job.out).items() if name.endswith(f".{job.format}")}


def test_every_face_has_a_file_of_its_own_whatever_the_photos_are_called(tmp_path):
    names = [
        "a.png",
        "a-2.png",
        "a-3.jpg",
        "a-face2.png",
        "b.jpg",
        "b.png",
        "b.jpg.png",
        "c.jpg",
        "c.png/d.png",
        "E.png",
    ]
    job = drawn(tmp_path, [*names, "e-2.png"], number=3)
    report = align_folder(job)
    assert report.faces == 33
    assert len(set(faces_of(job).values())) == 33  # noise: no two faces are the same
    assert len({name.lower() for name in faces_of(job)}) == 33
    plain = {"a.png", "a-2.png", "a-3.png", "a-2-2.png", "b.jpg-2.png", "c.png/d.png", "c.png/d-2.png", "E.png"}
    assert plain < set(faces_of(job))


@pytest.fixture
def strange(tmp_path, astronaut):
    """A photo with a plain name among others with names that no list of lines can hold."""
    plain, names = "ann/1.png", ["a\\b.png", " a.png", "a\nb.png", "\ufeffa.png", "C:a.png", *LATIN]
    for name in [plain, *names]:
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_png(astronaut))
    return tmp_path / "photos", plain, names


@pytest.mark.parametrize("workers", [1, 2])
def test_a_strange_name_costs_no_face(strange, tmp_path, workers):
    root, plain, names = strange
    job = Job(root, tmp_path / "faces", format="png", preset="fast")
    report = align_folder(job, workers=workers)
    assert report.photos == report.found == report.faces == 1 + len(names)
    assert {os.fsencode(name) for name in faces_of(job)} == {os.fsencode(name) for name in [plain, *names]}
    listed = read_landmarks(job.out / "landmarks.txt")
    assert list(listed) == [plain]
    assert set(report.unlisted) == {name.replace("\udce9", "\\udce9") for name in names}
    for points in report.unlisted.values():
        np.testing.assert_array_equal(points, listed[plain])  # all of one photo
    assert json.loads((job.out / "report.json").read_text())["unlisted"].keys() == report.unlisted.keys()
    assert align_folder(job) == report
    assert set(read_detection(job.out).found) == {plain, *report.unlisted}


@pytest.mark.skipif(not LATIN, reason="names there are Unicode")
def test_strange_names_of_photos_without_a_face_are_reported(tmp_path):
    root = tmp_path / "photos"
    root.mkdir()
    (root / "nowhere.png").symlink_to(root / "gone")
    (root / os.fsdecode(b"\xe9.png")).write_bytes(b"no photo")
    (root / os.fsdecode(b"\xe8.png")).write_bytes(encode_png(np.zeros((50, 50, 3), np.uint8)))
    (root / os.fsdecode(b"\xe7.txt")).touch()
    report = align_folder(Job(root, tmp_path / "faces"), misses="centre")
    assert report.unreadable.keys() == {"nowhere.png", "\\udce9.png"}
    assert report.unreadable["nowhere.png"] == "cannot be read (No such file or directory)"
    assert (report.none, report.ignored, report.centre_crops) == (("\\udce8.png",), ("\\udce7.txt",), 1)
    assert (tmp_path / "faces" / os.fsdecode(b"\xe8.jpg")).is_file()


def test_names_as_long_as_a_file_system_takes_them_are_no_trouble(tmp_path):
    stem = "x" * 245 + "é" * 3
    names = [f"{stem}.png", f"{stem}.bmp", f"{'y' * 251}.png", f"{'y' * 250}z.png", f"{'w' * 240}.png"]
    job = drawn(tmp_path, names, number=3)
    assert align_folder(job).faces == 15
    assert len(set(faces_of(job).values())) == 15
    assert {f"{'y' * 251}.png", f"{'y' * 250}z.png", f"{'w' * 240}.png"} < set(faces_of(job))


def test_points_that_give_no_face_name_their_photo(tmp_path):
    job = drawn(tmp_path, ["a.png", "b.png"], number=1)
    job.landmarks.write_text(f"b.png{' 7' * 10}\n")
    with pytest.raises(UserError, match=r"^b\.png: points that all lie in one place"):
        align_folder(job)


@pytest.fixture(scope="module")
def crowd(tmp_path_factory, astronaut):
    """Enough photos for several chunks."""
    root = tmp_path_factory.mktemp("crowd") / "photos"
    small = cv2.resize(astronaut, (96, 96), interpolation=cv2.INTER_AREA)
    for number in range(4 * CHUNK + 3):
        path = root / f"p{number % 7}" / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_png(np.roll(small, number % 5, axis=1)))
    return root


def test_the_number_of_workers_changes_no_byte(crowd, tmp_path):
    align_folder(Job(crowd, tmp_path / "one"), workers=1)
    align_folder(Job(crowd, tmp_path / "two"), workers=2)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_a_killed_run_goes_on_and_ends_as_if_nothing_had_happened(crowd, tmp_path):
    align_folder(Job(crowd, tmp_path / "calm"))
    target = tmp_path / "killed"
    command = [sys.executable, "-m", "sphereface", "data", "align", str(crowd), str(target), "--workers", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while not list(target.glob(".align/*.json")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (target / "manifest.json").exists()
    for path in target.rglob("*.jpg"):
        assert decode(path.read_bytes()).shape == (112, 96, 3)  # whole, or not there
    done = len(list(target.glob(".align/*.json")))
    assert 1 <= done <= 5
    counts = []
    align_folder(Job(crowd, target), workers=2, progress=lambda count, _: counts.append(count))
    assert counts[0] >= CHUNK  # what was done is not done again
    assert tree(target) == tree(tmp_path / "calm")
