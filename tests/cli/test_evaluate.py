"""sphereface evaluate, every protocol on small sets, with a small ONNX embedder and without torch."""

import html
import inspect
import json
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest

from sphereface.cli import main
from sphereface.cli.evaluate import folder, ijb, lfw, megaface, ytf
from sphereface.contract import Card
from sphereface.data.lists.devkit import read_curves, read_distractors, read_probes, write_matrix
from sphereface.data.lists.megaface import write_megaface
from sphereface.data.lists.pairs import pairs_to_bin, read_pairs
from sphereface.data.manifest import SetManifest, write_manifest
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.data.synthetic.shapes import write_shape
from sphereface.embed.embedder import Embedder
from sphereface.embed.ensemble import Ensemble
from sphereface.embed.run import embed_set
from sphereface.embed.store import open_features
from sphereface.evaluation.groups.compare import evaluate_groups
from sphereface.evaluation.protocols.folder import evaluate_folder
from sphereface.evaluation.protocols.ijb import evaluate_ijb
from sphereface.evaluation.protocols.lfw import evaluate_lfw
from sphereface.evaluation.protocols.megaface import evaluate_megaface
from sphereface.evaluation.protocols.ytf import evaluate_ytf
from sphereface.faces.images import encode_png
from tests.evaluation.networks import tiles

QUICK = ("--rounds", 20, "--threads", 1)


@pytest.fixture(autouse=True)
def without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)


@pytest.fixture
def run(capsys):
    """Run a verb: its exit code, standard output and standard error."""

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["evaluate", *map(str, arguments)])
        out, said = capsys.readouterr()
        return ended.value.code or 0, out, said

    return call


@pytest.fixture
def payload(run):
    """Run a verb with --json: the object on standard output, which has nothing else."""

    def call(*arguments):
        code, out, said = run(*arguments, "--json")
        assert code == 0, said
        return json.loads(out)

    return call


@pytest.fixture
def refused(run):
    """Run a verb that fails: its last line on standard error."""

    def call(*arguments):
        code, out, said = run(*arguments)
        assert (code, out) == (2, ""), said
        assert said.count("sphereface: ") == 1
        return said.splitlines()[-1]

    return call


def plain(result):
    """As JSON has it: tuples are lists, and names are text."""
    return json.loads(json.dumps(result))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiles.onnx"
    tiles(path)
    return path


@pytest.fixture(scope="module")
def embedder(model):
    return Embedder.load(model, threads=1)


def shaped(tmp_path_factory, shape, people, photos):
    root = tmp_path_factory.mktemp(shape) / shape
    write_shape(SyntheticPeople(seed=4), root, people, photos, shape=shape)
    return root


@pytest.fixture(scope="module")
def pairs_set(tmp_path_factory):
    return shaped(tmp_path_factory, "lfw", 20, 2)


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    return shaped(tmp_path_factory, "ytf", 20, 2)


@pytest.fixture(scope="module")
def templates(tmp_path_factory, embedder):
    root = shaped(tmp_path_factory, "ijb", 6, 6)
    embed_set(root, root.parent / "features", embedder)
    return root


@pytest.fixture(scope="module")
def strangers(tmp_path_factory, embedder):
    """MegaFace in small, with the features of its faces."""
    root = shaped(tmp_path_factory, "megaface", 4, 6)
    for part in ("probes", "distractors"):
        embed_set(root / part, root.parent / part, embedder)
    return root


SHAKY = ["steady" if person % 2 else "shaky" for person in range(44)]


@pytest.fixture(scope="module")
def own(tmp_path_factory, embedder):
    """People with patterns as faces: photos of a steady person are alike, those of a shaky person are not."""
    root = tmp_path_factory.mktemp("own") / "people"
    rng = np.random.default_rng(5)
    for person, group in enumerate(SHAKY):
        pattern = rng.integers(0, 200, (7, 6, 3))
        (root / f"p{person:02d}").mkdir(parents=True)
        for photo in range(3):
            if group == "shaky":
                pattern = rng.integers(0, 200, (7, 6, 3))
            face = (pattern + rng.integers(0, 40, (7, 6, 3))).astype(np.uint8).repeat(16, 0).repeat(16, 1)
            (root / f"p{person:02d}" / f"{photo}.png").write_bytes(encode_png(face))
    write_manifest(root, SetManifest(made_by="a test"))
    embed_set(root, root.parent / "features", embedder)
    table(root.parent / "groups.csv", SHAKY)
    return root


def table(path, groups, *more):
    path.write_text("person,group\n" + "".join(f"p{k:02d},{group}\n" for k, group in enumerate(groups)) + "".join(more))
    return path


# Every protocol prints what its function finds


def test_pairs_by_every_rule_are_those_of_the_function(payload, run, pairs_set, model, embedder):
    expected = evaluate_lfw(embedder, pairs_set, all_rules=True, rounds=20, fars=(0.1, 0.2))
    arguments = ("lfw", pairs_set, "--model", model, "--all-rules", "--at-far", 0.1, "--at-far", 0.2, *QUICK)
    assert payload(*arguments) == plain({**expected.as_dict(), "groups": None})
    code, out, said = run(*arguments)
    assert (code, out) == (0, expected.table() + "\n")
    assert "embedding faces" in said


def test_view_1_takes_its_two_lists_or_their_folder(payload, pairs_set, model, embedder):
    expected = plain(evaluate_lfw(embedder, pairs_set, view=1, rule="insightface", rounds=20).as_dict())
    arguments = ("lfw", pairs_set, "--model", model, "--view", 1, "--rule", "insightface", *QUICK)
    for lists in ((), (pairs_set,), (pairs_set / "pairsDevTrain.txt", pairs_set / "pairsDevTest.txt")):
        given = [word for path in lists for word in ("--pairs", path)]
        assert payload(*arguments, *given) == {**expected, "groups": None}


def test_a_bin_holds_its_own_pairs(payload, refused, pairs_set, model, tmp_path, embedder):
    pairs = read_pairs(pairs_set / "pairs.txt")
    stored = [replace(pair, left=f"{pair.left[:-4]}.png", right=f"{pair.right[:-4]}.png") for pair in pairs]
    pairs_to_bin(stored, pairs_set, tmp_path / "few.bin")
    found = payload("lfw", tmp_path / "few.bin", "--model", model, *QUICK)
    expected = evaluate_lfw(embedder, pairs_set, rounds=20)
    assert found["rules"]["authors"]["accuracies"] == list(expected.report.accuracies)
    assert found["pairs_scored"] == len(pairs)
    assert "has no names of people" in refused("lfw", tmp_path / "few.bin", "--model", model, "--groups", "groups.csv")


def test_several_models_are_an_ensemble_of_one_feature_rule(payload, refused, pairs_set, model, tmp_path):
    tiles(tmp_path / "other.onnx", card=Card(name="other", feature_rule="image"))
    both = Ensemble.load([model, tmp_path / "other.onnx"], feature_rule="sum")
    given = ("lfw", pairs_set, "--model", model, "--model", tmp_path / "other.onnx", *QUICK)
    assert "load them all under one" in refused(*given)
    found = payload(*given, "--feature-rule", "sum")
    assert found["model"] == "tiles + other"
    assert found == plain({**evaluate_lfw(both, pairs_set, rounds=20).as_dict(), "groups": None})
    assert found["rules"]["authors"]["features"] == "image and mirror image, summed"


def test_missing_faces_are_left_out_only_if_that_is_asked_for(payload, refused, pairs_set, model, tmp_path):
    root = shutil.copytree(pairs_set, tmp_path / "faces")
    gone = next(root.glob("*/*.png"))
    gone.unlink()
    arguments = ("lfw", root, "--model", model, *QUICK)
    said = refused(*arguments)
    assert gone.stem in said
    assert said.endswith("with --missing skip")
    found = payload(*arguments, "--missing", "skip")
    assert found["pairs_scored"] < found["pairs_listed"]
    assert [name.split("/")[1].split(".")[0] for name in found["missing"]] == [gone.stem]


@pytest.mark.parametrize("policy", ["mean-feature", "mean-score", "max-score"])
def test_videos_are_judged_by_the_policy_that_is_named(payload, videos, model, embedder, policy):
    expected = evaluate_ytf(embedder, videos, frames=1, policy=policy, rounds=20)
    given = ("--splits", videos / "splits.txt", "--frames", 1, "--policy", policy)
    assert payload("ytf", videos, "--model", model, *given, *QUICK) == plain(expected.as_dict())


def test_stored_features_serve_as_well_as_a_model(payload, videos, pairs_set, own, model, embedder, tmp_path):
    for name, faces in (("videos", videos), ("pairs", pairs_set)):
        embed_set(faces, tmp_path / name, embedder)
    for stored, verb, faces, *given in (
        (tmp_path / "videos", "ytf", videos, "--splits", videos),
        (tmp_path / "pairs", "lfw", pairs_set, "--pairs", pairs_set),
        (own.parent / "features", "folder", own, "--pairs", 40, "--splits", 2),
    ):
        from_model = payload(verb, faces, "--model", model, *given, *QUICK)
        assert payload(verb, "--features", stored, *given, *QUICK) == from_model


def test_templates_are_scored_from_features_or_from_faces(payload, refused, templates, model, tmp_path):
    stored = templates.parent / "features"
    expected = plain(evaluate_ijb(stored, templates / "meta", rounds=20, fars=(0.1,), ranks=(1, 2)).as_dict())
    asked = ("--at-far", 0.1, "--at-rank", 1, "--at-rank", 2, *QUICK)
    assert payload("ijb", templates / "meta", "--features", stored, *asked) == expected
    faces = ("--faces", templates / "loose_crop")
    assert payload("ijb", templates, "--model", model, *faces, *asked) == expected
    weighted = payload("ijb", templates, "--features", stored, "--score-weights", "--unit-length", *asked)
    assert "at length one, times the detection score" in weighted["pooling"]
    pairs = tmp_path / "meta" / "ijbc_template_pair_label.txt"
    shutil.copytree(templates / "meta", pairs.parent)
    pairs.write_text(pairs.read_text() + pairs.read_text().splitlines(keepends=True)[0])
    twice = ("ijb", pairs.parent, "--features", stored, *asked)
    assert str(pairs) in refused(*twice)
    assert payload(*twice, "--repeats", "keep")["pairs_listed"] == expected["pairs_listed"] + 1
    assert "ijbb_face_tid_mid.txt" in refused("ijb", templates, "--features", stored, "--set", "ijbb")
    assert "--model without --faces" in refused("ijb", templates, "--model", model)


def lists(root, size=40):
    return (
        "--probe-list", root / "templatelists" / "facescrub_features_list.json",
        "--distractor-list", root / "templatelists" / f"megaface_features_list.json_{size}_1",
    )  # fmt: skip


def stored(root):
    return "--probe-features", root.parent / "probes", "--distractor-features", root.parent / "distractors"


def rows_by_path(folder, images):
    """Features in the order of a list, one at a time."""
    features = open_features(folder)
    return np.stack([features.rows[features.paths.index(image.path)] for image in images])


def test_strangers_are_counted_from_folders_files_and_lists_in_any_order(payload, run, strangers, tmp_path):
    probes, people = read_probes(strangers / "templatelists" / "facescrub_features_list.json")
    distractors = read_distractors(strangers / "templatelists" / "megaface_features_list.json_40_1")
    order = np.random.default_rng(0).permutation(40)
    distractors = [distractors[place] for place in order]
    write_megaface(tmp_path / "shuffled.json", distractors)
    arrays = (
        rows_by_path(strangers.parent / "probes", probes),
        rows_by_path(strangers.parent / "distractors", distractors),
    )
    expected = evaluate_megaface(
        arrays[0], people, arrays[1], sizes=[10, 30], protocol="large", probe_set="FGNet", far=0.1
    )
    given = (
        "megaface", *lists(strangers)[:2], "--distractor-list", tmp_path / "shuffled.json", "--size", 10, "--size", 30,
        "--training-images", 500_000, "--probe-set", "fgnet", "--up-to-far", 0.1,
    )  # fmt: skip
    assert payload(*given, *stored(strangers)) == plain(expected.summary())
    np.save(tmp_path / "probes.npy", arrays[0])
    write_matrix(tmp_path / "distractors.bin", arrays[1])
    files = ("--probe-features", tmp_path / "probes.npy", "--distractor-features", tmp_path / "distractors.bin")
    assert payload(*given, *files) == plain(expected.summary())
    _, out, _ = run(*given, *files)
    last = out.splitlines()[-1].split()
    assert last[:3] == ["30", "120", "720"]
    assert float(last[3]) == pytest.approx(100 * expected.raw[1].rank1, abs=0.005)


def test_noise_is_left_out_of_cleaned_results_and_lists_name_sizes(payload, strangers):
    noise = ("--probe-noise", strangers / "noise" / "facescrub_noises.txt")
    noise += ("--distractor-noise", strangers / "noise" / "megaface_noises.txt")
    small = strangers / "templatelists" / "megaface_features_list.json_10_1"
    found = payload(
        "megaface", *lists(strangers), *stored(strangers), *noise, "--size-list", small, "--protocol", "small"
    )
    assert found["protocol"] == "MegaFace, FaceScrub, small"
    assert [each["distractors"] for each in found["raw"]] == [10]
    assert (found["noisy_probes"], found["noisy_distractors"]) == (1, 2)
    assert found["cleaned"][0]["pairs"] < found["raw"][0]["pairs"]


def test_names_of_noise_that_are_of_no_listed_image_are_counted_and_told(run, payload, refused, strangers, tmp_path):
    whole = (strangers / "noise" / "facescrub_noises.txt").read_text()
    (tmp_path / "noises.txt").write_text(whole + "b/2.png\na/1.png\n")
    given = ("megaface", *lists(strangers), *stored(strangers), "--protocol", "small", "--probe-noise")
    _, out, _ = run(*given, tmp_path / "noises.txt")
    assert out.splitlines()[-1] == "note: 2 of 3 names in noises.txt are of no listed probe, such as a/1.png"
    (unmatched,) = payload(*given, tmp_path / "noises.txt")["unmatched_noise"]
    assert (unmatched["of"], unmatched["names"], unmatched["unmatched"]) == ("probe", 3, 2)
    said = refused(*given, strangers / "noise" / "megaface_noises.txt")
    assert "megaface_noises.txt: none of its 2 names" in said
    assert "'p0000/0000.png'" in said


def test_features_of_several_models_are_joined(payload, strangers, tmp_path):
    """Twice the same model, at length one, scores as that model alone."""
    twice = [word for name, path in zip(stored(strangers)[::2], stored(strangers)[1::2], strict=True)
             for word in (name, path) * 2]  # fmt: skip
    arguments = ("megaface", *lists(strangers), "--protocol", "small")
    once, joined = payload(*arguments, *stored(strangers)), payload(*arguments, *twice)
    assert [each["rank1"] for each in joined["raw"]] == [each["rank1"] for each in once["raw"]]


# Your own people, and groups


def test_own_people_are_verified_looked_up_and_drawn(payload, run, own, model, embedder, tmp_path):
    expected = evaluate_folder(embedder, own, pairs=40, folds=5, seed=3, splits=2, hardest=2, rounds=20)
    arguments = ("folder", own, "--model", model, "--pairs", 40, "--folds", 5, "--seed", 3, "--splits", 2, *QUICK)
    arguments += ("--hardest-pairs", 2, "--hardest", tmp_path / "look")
    assert payload(*arguments) == plain(expected.as_dict())
    (tmp_path / "look" / "hardest.png").unlink()
    _, out, _ = run(*arguments)
    assert out == f"{expected.table()}\n\nHardest pairs: {tmp_path / 'look' / 'hardest.png'}\n"
    assert (tmp_path / "look" / "hardest.png").read_bytes().startswith(b"\x89PNG")


FOLDER = ("--pairs", 40, "--splits", 2, "--far", 0.01, *QUICK)


def test_a_group_that_stands_out_is_printed_and_so_is_that_none_does(run, payload, own, tmp_path):
    given = ("folder", "--features", own.parent / "features", *FOLDER)
    code, out, _ = run(*given, "--groups", own.parent / "groups.csv")
    assert code == 0
    assert "found: group shaky: FNMR" in out
    found = payload(*given, "--groups", own.parent / "groups.csv")["groups"]
    assert [(each["group"], each["which"]) for each in found["findings"]] == [("shaky", "FNMR")]
    even = table(tmp_path / "even.csv", ["one" if person % 4 < 2 else "two" for person in range(44)])
    assert "found: nothing" in run(*given, "--groups", even)[1]


def test_groups_of_own_people_are_judged_at_a_threshold_that_is_given(payload, own):
    given = ("folder", "--features", own.parent / "features", "--groups", own.parent / "groups.csv", *FOLDER)
    found = payload(*given)["groups"]
    again = payload(*given, "--threshold", found["threshold"])["groups"]
    assert again["threshold_from"] == "given"
    assert [again[name] for name in ("threshold", "attributes")] == [
        found[name] for name in ("threshold", "attributes")
    ]
    lower = payload(*given, "--threshold", found["threshold"] - 0.1)["groups"]
    assert lower["fmr"] > found["fmr"]


def test_groups_that_are_too_small_are_refused_by_name_or_left_out_and_listed(run, refused, own, tmp_path):
    few = table(tmp_path / "few.csv", [*SHAKY[:40], *["rare"] * 4])
    given = ("folder", "--features", own.parent / "features", "--groups", few, *FOLDER)
    assert all(word in refused(*given) for word in ("rare: 4 people with two photos", "--small leave-out"))
    assert "left out: rare, 4 people with two photos" in run(*given, "--small", "leave-out")[1]


def test_groups_of_pairs_are_those_of_the_whole_folder(payload, run, own, model, embedder, tmp_path):
    lines = [f"p{a:02d}/{i}.png\tp{b:02d}/{j}.png\t{int(a == b)}\t{a % 2}" for a in range(6) for b, i, j in
             ((a, 0, 1), ((a + 6), 0, 1))]  # fmt: skip
    (tmp_path / "pairs.txt").write_text("\n".join(lines) + "\n")
    given = ("lfw", own, "--model", model, "--pairs", tmp_path / "pairs.txt", "--groups", own.parent / "groups.csv")
    expected = evaluate_groups(embedder, own, own.parent / "groups.csv", far=0.01, rounds=20)
    found = payload(*given, "--far", 0.01, *QUICK)
    assert found["groups"] == plain(expected.as_dict())
    assert found["pairs_scored"] == 12
    given_threshold = payload(*given, "--threshold", expected.threshold, *QUICK)["groups"]
    assert (given_threshold["threshold"], given_threshold["threshold_from"]) == (expected.threshold, "given")


# A folder for the result


def test_out_holds_the_same_object_and_a_page_that_names_its_command(run, payload, strangers, tmp_path):
    pytest.importorskip("matplotlib")
    arguments = ("megaface", *lists(strangers), *stored(strangers), "--protocol", "small")
    code, out, said = run(*arguments, "--out", tmp_path / "a b")
    assert code == 0, said
    assert out.endswith(f"Report: {tmp_path / 'a b' / 'report.html'}\n")
    assert json.loads((tmp_path / "a b" / "result.json").read_text()) == payload(*arguments)
    cmc, far, tar = read_curves(tmp_path / "a b" / "cmc_FaceScrub_megaface_40.json")
    at_all = payload(*arguments)["raw"][-1]
    assert (at_all["size"], at_all["rank1"], at_all["rank10"]) == (40, cmc[0], cmc[9])
    assert len(far) == len(tar)
    assert [line for line in out.splitlines() if line.startswith("Curves: ")] == [
        f"Curves: {tmp_path / 'a b' / f'cmc_FaceScrub_megaface_{size}.json'}" for size in (10, 40)
    ]
    page = (tmp_path / "a b" / "report.html").read_text()
    assert "sphereface evaluate megaface --probe-list" in page
    assert html.escape(f"--out '{tmp_path / 'a b'}'") in page


def test_a_file_in_the_place_of_the_folder_is_said_before_the_work(refused, tmp_path, own):
    (tmp_path / "out").write_text("")
    said = refused("folder", "--features", own.parent / "features", "--out", tmp_path / "out")
    assert "is a file; wanted a folder" in said
    assert "reading" not in said


# What cannot be is one line that names the file, and exit code 2


def test_a_model_that_is_not_there_or_not_named_is_refused(refused, pairs_set, own, tmp_path, model):
    assert "none.onnx: no such model" in refused("lfw", pairs_set, "--model", tmp_path / "none.onnx")
    assert "neither --model nor --features" in refused("lfw", pairs_set)
    assert "neither --model nor --features" in refused("ytf", pairs_set)
    stored_too = ("--features", own.parent / "features")
    assert "both given" in refused("folder", own, "--model", model, *stored_too)
    assert "--model without faces" in refused("folder", "--model", model)
    assert "--hardest without faces" in refused("folder", *stored_too, "--hardest", tmp_path)
    assert "--feature-rule sum with --features" in refused("folder", *stored_too, "--feature-rule", "sum")
    (tmp_path / "empty.onnx").write_bytes(b"")
    assert "empty.onnx" in refused("lfw", pairs_set, "--model", tmp_path / "empty.onnx")


def test_stored_features_that_are_cut_off_or_not_finite_are_named(refused, own, templates, tmp_path):
    folder = shutil.copytree(own.parent / "features", tmp_path / "own")
    whole = (folder / "features.npy").read_bytes()
    (folder / "features.npy").write_bytes(whole[:-1])
    assert f"{folder / 'features.npy'}: " in refused("folder", "--features", folder)
    (folder / "features.npy").write_bytes(whole[:-4] + np.float32("nan").tobytes())
    said = refused("folder", "--features", folder)
    assert said.startswith(f"sphereface: {folder}: the feature of p43/2.png")
    folder = shutil.copytree(templates.parent / "features", tmp_path / "ijb")
    whole = (folder / "features.npy").read_bytes()
    (folder / "features.npy").write_bytes(whole[:-4] + np.float32("nan").tobytes())
    assert refused("ijb", templates, "--features", folder).startswith(f"sphereface: {folder}: the feature of")


def test_features_of_other_images_are_not_joined(refused, own, templates):
    both = ("--features", own.parent / "features", "--features", templates.parent / "features")
    said = refused("folder", *both)
    assert str(templates.parent / "features") in said
    assert "other images" in said


def test_lists_with_repeats_and_tables_with_strangers_are_named(refused, pairs_set, videos, own, model, tmp_path):
    for name, verb, root, option in (
        ("pairs.txt", "lfw", pairs_set, "--pairs"),
        ("splits.txt", "ytf", videos, "--splits"),
    ):
        lines = (root / name).read_text().splitlines()
        (tmp_path / name).write_text("\n".join([*lines[:2], lines[1], *lines[3:]]) + "\n")
        said = refused(verb, root, "--model", model, option, tmp_path / name)
        assert str(tmp_path / name) in said
        assert "twice" in said
    given = ("folder", "--features", own.parent / "features", *FOLDER, "--groups")
    assert "far.csv: 1 of its people are not in" in refused(
        *given, table(tmp_path / "far.csv", SHAKY, "nobody,shaky\n")
    )
    said = refused(*given, table(tmp_path / "twice.csv", SHAKY, "p00,shaky\n"))
    assert f"{tmp_path / 'twice.csv'}:46: p00 stands in line 2 already" in said


def test_what_is_wrong_with_strangers_is_named(refused, strangers, model, tmp_path):
    given = ("megaface", *lists(strangers), "--protocol", "small")
    ours = stored(strangers)
    assert "sphereface embed" in refused(*given, "--model", model)
    assert "sphereface embed" in refused(*given)
    faces = ("--distractor-features", strangers / "distractors")
    said = refused(*given, *ours[:2], *faces)
    assert f"{strangers / 'distractors'}: no features here" in said
    assert f"sphereface embed {strangers / 'distractors'}" in said
    assert "--training-images and --protocol are both missing" in refused("megaface", *lists(strangers), *ours)
    strange = (*given, *ours, "--probe-set", "facescrub2")
    assert "unknown --probe-set 'facescrub2'; choose one of FaceScrub, FGNet" in refused(*strange)
    assert "--size and --size-list" in refused(*given, *ours, "--size", 10, "--size-list", "x.json")
    array = np.array(open_features(strangers.parent / "distractors").rows)

    def with_file(name, save):
        save(tmp_path / name)
        return refused(*given, *ours[:2], "--distractor-features", tmp_path / name)

    np.save(tmp_path / "whole.npy", array)
    cut = with_file("cut.npy", lambda path: path.write_bytes((tmp_path / "whole.npy").read_bytes()[:-1]))
    assert "cut.npy: no whole .npy file" in cut
    assert "few.npy: 39 features; wanted 40" in with_file("few.npy", lambda path: np.save(path, array[1:]))
    assert "thin.npy: features of 251 numbers" in with_file("thin.npy", lambda path: np.save(path, array[:, 1:]))
    array[7, 3] = np.nan
    said = with_file("nan.npy", lambda path: np.save(path, array))
    assert f"{tmp_path / 'nan.npy'}: the feature of distractor 7 has a number that is not finite" in said
    probes = read_distractors(lists(strangers)[1])
    write_megaface(tmp_path / "twice.json", [*probes[:-1], probes[0]])
    said = refused(
        "megaface", "--probe-list", tmp_path / "twice.json", *lists(strangers)[2:], *ours, "--protocol", "small"
    )
    assert "twice.json: images 0 and 23 are both" in said
    strange = ("--size-list", lists(strangers)[1])
    assert "facescrub_features_list.json: 'p0000/0000.png' is not among the 40 images" in refused(
        *given, *ours, *strange
    )


def test_listed_images_without_features_are_named_with_the_way_out(refused, strangers, tmp_path):
    probes = read_distractors(lists(strangers)[1])
    write_megaface(tmp_path / "more.json", [*probes, type(probes[0])("p0000/9999.png", "p0000")])
    said = refused(
        "megaface",
        "--probe-list",
        tmp_path / "more.json",
        *lists(strangers)[2:],
        *stored(strangers),
        "--protocol",
        "small",
    )
    assert f"{strangers.parent / 'probes'}: 1 of 25 images of {tmp_path / 'more.json'} have no features" in said
    assert "embed again" in said


@pytest.mark.parametrize("verb", ["lfw", "ytf", "ijb", "folder"])
def test_a_bootstrap_of_one_round_is_refused_before_the_work(run, verb, tmp_path):
    code, out, said = run(verb, tmp_path, "--model", "none.onnx", "--rounds", 1)
    assert (code, out) == (2, "")
    assert "--rounds" in said
    assert "none.onnx" not in said


def test_two_rounds_are_enough_to_go_through(payload, own, templates):
    given = ("folder", "--features", own.parent / "features", "--groups", own.parent / "groups.csv", *FOLDER)
    assert payload(*given, "--rounds", 2)["groups"]["findings"] is not None
    assert payload("ijb", templates, "--features", templates.parent / "features", "--rounds", 2)


# Help


@pytest.mark.parametrize("verb", ["lfw", "ytf", "megaface", "ijb", "folder"])
def test_help_has_an_example(run, verb):
    code, out, _ = run(verb, "--help")
    assert code == 0
    assert f"Example: sphereface evaluate {verb}" in out


SAME = {
    lfw.lfw: (evaluate_lfw, "rounds", "seed", "view"),
    ytf.ytf: (evaluate_ytf, "rounds", "seed", "frames"),
    ijb.ijb: (evaluate_ijb, "rounds", "seed"),
    folder.folder: (evaluate_folder, "rounds", "seed", "pairs", "folds", "gallery_photos", "ranks", "splits", "far"),
    megaface.megaface: (evaluate_megaface, "ranks", "probe_set"),
}


@pytest.mark.parametrize("verb", SAME, ids=lambda verb: verb.__name__)
def test_defaults_are_those_of_the_functions(verb):
    function, *names = SAME[verb]
    for name in names:
        ours = inspect.signature(verb).parameters[name].default
        assert getattr(ours, "default", ours) == inspect.signature(function).parameters[name].default, name
