"""Every protocol from synthetic faces in its shape, through `embed`, to its numbers, which are found a second way."""

import json

import numpy as np
import pytest

from sphereface.data.lists.devkit import collect_features, read_distractors, spread_features, write_matrix
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.data.synthetic.shapes import write_shape
from sphereface.embed.run import embed_set
from sphereface.embed.store import open_features
from sphereface.evaluation import evaluate_lfw
from sphereface.evaluation.protocols.ijb import evaluate_ijb
from sphereface.evaluation.protocols.megaface_files import load_megaface
from sphereface.evaluation.protocols.ytf import evaluate_ytf
from sphereface.metrics import tar_at_far
from tests.evaluation import transcriptions
from tests.evaluation.networks import tiles

QUICK = {"rounds": 10}


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    return tiles(tmp_path_factory.mktemp("model") / "tiles.onnx")


def made(tmp_path, shape, people, photos):
    write_shape(SyntheticPeople(seed=5), tmp_path / shape, people, photos, shape=shape)
    return tmp_path / shape


def rows_by_path(folder):
    """What `embed` stored, read by numpy alone."""
    paths = (folder / "paths.txt").read_text().splitlines()
    return dict(zip(paths, np.load(folder / "features.npy").astype(float), strict=True))


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def test_lfw_both_views(tmp_path, embedder):
    root = made(tmp_path, "lfw", 20, 2)
    features = open_features(embed_set(root, tmp_path / "features", embedder).folder)
    for view, pairs in ((2, 40), (1, 12)):
        result = evaluate_lfw(features, root, view=view, **QUICK)
        assert (result.listed, result.scored, result.notes) == (pairs, pairs, ())
        assert result.as_dict() == evaluate_lfw(embedder, root, view=view, **QUICK).as_dict()
    rows = rows_by_path(tmp_path / "features")
    lines = [line.split("\t") for line in (root / "pairs.txt").read_text().splitlines()[1:]]
    whole = [(line[0], line[1], line[-2] if len(line) == 4 else line[0], line[-1]) for line in lines]
    left, right = (
        np.stack([rows[f"{pair[side]}/{pair[side]}_{int(pair[side + 1]):04d}.png"] for pair in whole])
        for side in (0, 2)
    )
    same = np.array([1 if len(line) == 3 else -1 for line in lines])
    accuracies, _ = transcriptions.authors(left, right, same, np.arange(40) // 4)
    np.testing.assert_allclose(evaluate_lfw(features, root, **QUICK).report.accuracies, accuracies)


def test_ytf(tmp_path, embedder):
    root = made(tmp_path, "ytf", 20, 3)
    features = open_features(embed_set(root, tmp_path / "features", embedder).folder)
    result = evaluate_ytf(features, root, **QUICK)
    rows = rows_by_path(tmp_path / "features")
    lines = [line.split(", ") for line in (root / "splits.txt").read_text().splitlines()[1:]]
    mean = {
        video: np.mean([row for path, row in rows.items() if path.startswith(f"{video}/")], 0)
        for video in {video for line in lines for video in line[2:4]}
    }
    left, right = (np.stack([mean[line[side]] for line in lines]) for side in (2, 3))
    same, split = np.array([1 if line[4] == "1" else -1 for line in lines]), np.array([int(line[0]) for line in lines])
    accuracies, thresholds = transcriptions.authors(left, right, same, split)
    np.testing.assert_allclose(result.report.accuracies, accuracies)
    np.testing.assert_allclose(result.report.thresholds, thresholds, atol=1e-9)
    assert (result.scored, result.embedded) == (len(lines), 3 * result.videos)


def test_megaface_with_and_without_noise_by_way_of_the_devkits_files(tmp_path, embedder):
    root = made(tmp_path, "megaface", 3, 8)
    lists = root / "templatelists"
    sizes = {size: lists / f"megaface_features_list.json_{size}_1" for size in (10, 30)}
    named = {"probes": lists / "facescrub_features_list.json", "distractors": sizes[30]}
    units = {}
    for home, listed in named.items():
        features = open_features(embed_set(root / home, tmp_path / home, embedder).folder)
        images = read_distractors(listed)
        rows = features.rows[features.find([image.path for image in images])]
        spread_features(rows, images, tmp_path / "devkit" / home, "_tiles.bin")  # a matrix for each image, as its tools
        collect_features(images, tmp_path / "devkit" / home, "_tiles.bin", tmp_path / f"{home}.npy")
        write_matrix(tmp_path / f"{home}.bin", np.load(tmp_path / f"{home}.npy"))
        stored = rows_by_path(tmp_path / home)
        units[home] = unit(np.stack([stored[path] for path in json.loads(listed.read_text())["path"]]))
    result = load_megaface(
        named["probes"],
        named["distractors"],
        tmp_path / "probes.npy",
        tmp_path / "distractors.bin",
        probe_noise=root / "noise/facescrub_noises.txt",
        distractor_noise=root / "noise/megaface_noises.txt",
        size_lists=sizes,
    ).evaluate()
    assert (result.probes, result.people, result.noisy_probes, result.noisy_distractors) == (24, 3, 1, 1)
    mates, rivals = units["probes"] @ units["probes"].T, units["probes"] @ units["distractors"].T
    for results, left_out in ((result.raw, ()), (result.cleaned, (10,))):
        kept = [k for k in range(24) if k not in left_out]
        pairs = [(i, j) for i in kept for j in kept if i != j and i // 8 == j // 8]
        assert len(results) == 2
        for found in results:
            against = [k for k in range(found.size) if k not in left_out]
            ranked = [mates[i, j] > rivals[i, against].max() for i, j in pairs]
            assert (found.pairs, found.distractors) == (len(pairs), len(against))
            assert found.rank1 == pytest.approx(np.mean(ranked))


def test_ijb_one_to_one_and_one_to_many(tmp_path, embedder):
    root = made(tmp_path, "ijb", 8, 6)
    embed_set(root, tmp_path / "features", embedder)
    result = evaluate_ijb(tmp_path / "features", root, **QUICK)
    assert result.as_dict() == evaluate_ijb(embedder, root, faces=root, **QUICK).as_dict()
    rows = rows_by_path(tmp_path / "features")
    members = [line.split() for line in (root / "meta/ijbc_face_tid_mid.txt").read_text().splitlines()]
    templates = {}
    for template in {int(member[1]) for member in members}:
        ours = [member for member in members if int(member[1]) == template]
        media = [[rows[f"loose_crop/{name}"] for name, _, of in ours if of == each] for each in {m[2] for m in ours}]
        templates[template] = unit(np.mean([np.mean(frames, 0) for frames in media], 0))
    pairs = np.loadtxt(root / "meta/ijbc_template_pair_label.txt", dtype=int)
    scores = np.array([templates[a] @ templates[b] for a, b, _ in pairs])
    assert result.verification.tar[0.1].value == pytest.approx(tar_at_far(pairs[:, 2] == 1, scores, far=0.1))
    subjects = {}
    for home in ("gallery_G1", "gallery_G2", "probe_mixed"):
        listed = (root / f"meta/ijbc_1N_{home}.csv").read_text().splitlines()[1:]
        subjects[home] = {int(line.split(",")[0]): int(line.split(",")[1]) for line in listed}
    for gallery in result.galleries:
        known = subjects[f"gallery_{gallery.name}"]
        first = []
        for probe, who in subjects["probe_mixed"].items():
            if who in known.values():
                best = max(known, key=lambda template: templates[template] @ templates[probe])
                first.append(known[best] == who)
        assert gallery.rank[1].value == pytest.approx(np.mean(first))
        assert (gallery.mated, gallery.strangers) == (len(first), len(subjects["probe_mixed"]) - len(first))
