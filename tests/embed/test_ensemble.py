"""Several models as one embedder."""

import json

import numpy as np
import pytest

from sphereface.contract import Card, Preprocessing, Threshold
from sphereface.embed.embedder import Embedder
from sphereface.embed.ensemble import Ensemble, Patches, join_features, joined
from sphereface.embed.run import embed_set
from sphereface.embed.store import FeatureStore, card_hash, open_features
from sphereface.errors import ContractMismatch, DataFormatError, UserError
from sphereface.evaluation.sources import gather
from sphereface.faces.warp import align
from tests.embed.sets import write_faces


def model(seed, *, width=5, length=1.0, name="", sha="", rule="concatenate", **how):
    """An embedder whose features are random sums of a coarse picture."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(3 * 4 * 4, width)).astype(np.float32) * length

    def network(inputs):
        coarse = inputs[:, :, 7::28, 5::24][:, :, :4, :4]
        return coarse.reshape(len(inputs), -1) @ weights

    return Embedder(network, Card(name=name, feature_rule=rule, preprocessing=Preprocessing(**how)), model=sha * 64)


def faces(count=6, width=96, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 112, width, 3), dtype=np.uint8)


def cosines(features):
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    return unit @ unit.T


@pytest.mark.parametrize("rule", ["concatenate", "sum", "image"])
def test_its_score_is_the_mean_of_its_models_scores_however_long_their_features_are(rule):
    members = [model(1, rule=rule), model(2, width=9, length=1000.0, rule=rule), model(3, length=1e-3, rule=rule)]
    found = Ensemble(members).embed(faces())
    mean = np.mean([cosines(each.embed(faces())) for each in members], axis=0)
    np.testing.assert_allclose(cosines(found), mean, atol=1e-5)
    assert Ensemble(members).dimension == found.shape[1] == sum(each.dimension for each in members)
    assert Ensemble(members).embed(faces(0)).shape == (0, found.shape[1])


def test_its_halves_are_image_and_mirror_image():
    members = [model(1), model(2, width=9)]
    found = Ensemble(members).embed(faces())
    mirrored = Ensemble(members).embed(faces()[:, :, ::-1])
    half = found.shape[1] // 2
    np.testing.assert_allclose(np.roll(found, half, axis=1), mirrored, atol=1e-5)


def test_faces_of_112_by_112_serve_models_of_both_crops():
    square, narrow = model(1, crop="112x112", colour="BGR"), model(2)
    both = Ensemble([square, narrow])
    stored = faces(width=112)
    assert both.card.preprocessing.crop == "112x112"
    mean = (cosines(square.embed(stored)) + cosines(narrow.embed(stored[:, :, 8:104]))) / 2
    np.testing.assert_allclose(cosines(both.embed(stored)), mean, atol=1e-5)
    with pytest.raises(ContractMismatch, match="96 wide, wanted 112 and 112"):
        both.embed(faces())


def test_crops_that_no_stored_face_holds_are_refused_by_name_with_the_way_out():
    with pytest.raises(ContractMismatch, match=r"112x96, wide, upper.*not wide, upper.*--crop wide.*join_features"):
        Ensemble([model(1), model(2, crop="wide"), model(3, crop="upper")])
    assert Ensemble([model(1, crop="wide"), model(2, crop="wide")]).card.preprocessing.crop == "wide"


def test_models_that_cannot_stand_side_by_side_are_refused():
    with pytest.raises(ContractMismatch, match=r"feature rules: a concatenate, model 2 image; load them all under one"):
        Ensemble([model(1, name="a"), model(2, rule="image")])
    with pytest.raises(ContractMismatch, match="templates: model 1 sphereface, model 2 matlab"):
        Ensemble([model(1), model(2, template="matlab")])
    with pytest.raises(ValueError, match="no models"):
        Ensemble([])


def test_its_card_and_its_hash_change_with_every_member():
    a, b, c = model(1, name="a", sha="a"), model(2, name="b", sha="b"), model(2, name="b", sha="c")
    ensembles = [Ensemble(each) for each in ([a, b], [b, a], [a, c], [a], [a, model(2, name="b", sha="b", scale=64)])]
    assert ensembles[0].card.name == "a + b"
    assert len({each.model for each in ensembles}) == len({card_hash(each.card) for each in ensembles}) == 5
    assert Ensemble([a, b]).model == ensembles[0].model
    assert Card.model_validate_json(ensembles[0].card.model_dump_json()) == ensembles[0].card


def test_thresholds_of_one_model_do_not_pass_for_the_ensembles():
    card = Card(name="a", thresholds=(Threshold(score=0.3, far=1e-3, measured_on="lfw"),), licences={"weights": "MIT"})
    found = Ensemble([Embedder(lambda x: x.mean(axis=(2, 3)), card)]).card
    assert found.thresholds == ()
    assert found.licences == {"a: weights": "MIT"}


def test_another_rule_is_another_rule_of_every_member():
    members = [model(1), model(2)]
    found = Ensemble(members).with_rule("sum")
    expected = Ensemble([each.with_rule("sum") for each in members])
    np.testing.assert_array_equal(found.embed(faces()), expected.embed(faces()))
    assert found.with_rule("sum") is found


def test_a_model_without_an_opinion_leaves_the_others_theirs():
    blind = Embedder(lambda inputs: np.zeros((len(inputs), 4), np.float32), Card())
    np.testing.assert_allclose(
        cosines(Ensemble([model(1), blind]).embed(faces())), cosines(model(1).embed(faces())), atol=1e-5
    )


def test_an_ensemble_embeds_a_set_and_goes_through_the_protocols_gathering(tmp_path):
    root = write_faces(tmp_path / "faces", people=2, photos=5)
    both = Ensemble([model(1, name="a", sha="a"), model(2, name="b", sha="b")])
    embedded = embed_set(root, tmp_path / "out", both)
    stored = open_features(embedded.folder)
    assert stored.card == both.card
    assert embedded.manifest.model == both.model
    from sphereface.data.formats.sets import open_set

    gathered = gather(both, open_set(root), range(10))
    np.testing.assert_allclose(stored.rows[:], gathered.features, atol=1e-6)


def test_sets_aligned_once_a_patch_join_by_path_whatever_their_order(tmp_path):
    """Two sets with the same names; the second is written in another order of rows."""
    front, wide = model(1, name="front", sha="a"), model(2, name="wide", sha="b", crop="wide")
    for name, seed in (("front", 0), ("wide", 1)):
        write_faces(tmp_path / name, people=3, photos=4, seed=seed)
    (tmp_path / "wide" / "manifest.json").write_text(
        json.dumps({"alignment": {"template": "sphereface", "crop": "wide"}, "made_by": "test"})
    )
    parts = [
        open_features(embed_set(tmp_path / name, tmp_path / f"{name}-out", each).folder)
        for name, each in (("front", front), ("wide", wide))
    ]
    shuffled = np.random.default_rng(0).permutation(12)
    second = parts[1]
    other = FeatureStore(
        [second.paths[place] for place in shuffled],
        second.people[::-1],
        2 - second.labels[shuffled],
        second.rows[:][shuffled],
        second.card,
        second.manifests,
    )
    expected = joined([part.rows[:] for part in parts], "concatenate")
    for pair in (parts, [parts[0], other]):
        whole = join_features(pair)
        assert whole.card.preprocessing.crop == "112x96+wide"
        assert whole.paths == parts[0].paths
        for key in (slice(None), slice(2, 7), np.array([5, 0, 5]), np.arange(12) % 3 == 0, 4, -1):
            np.testing.assert_array_equal(whole.rows[key], expected[key])
        np.testing.assert_array_equal(np.asarray(whole.rows), expected)
    with pytest.raises(DataFormatError, match=r"2 are in one of them only, such as p0/000\.png"):
        join_features([parts[0], _without_first(other, "p0/000.png", "p0/001.png")])
    stranger = FeatureStore(second.paths, ["p0", "p1", "x"], second.labels, second.rows, second.card, second.manifests)
    with pytest.raises(DataFormatError, match=r"other people for p2/000\.png"):
        join_features([parts[0], stranger])


def _without_first(features, *names):
    kept = [place for place, path in enumerate(features.paths) if path not in names]
    return FeatureStore(
        [features.paths[place] for place in kept], features.people, features.labels[kept], features.rows[kept],
        features.card, features.manifests,
    )  # fmt: skip


def test_patches_are_cut_from_the_photo_each_by_its_own_crop():
    rng = np.random.default_rng(0)
    photo = rng.integers(0, 256, (200, 220, 3), dtype=np.uint8)
    points = np.array([[[80, 90], [120, 88], [101, 110], [84, 135], [118, 134]], [[90, 80], [130, 82], [110, 103], [93, 126], [127, 128]]], float)  # fmt: skip  # noqa: E501
    members = [model(1), model(2, crop="wide"), model(3, crop="upper", width=7)]
    found = Patches(members).embed(photo, points)
    for row, landmarks in zip(found, points, strict=True):
        parts = [
            each.embed(align(photo, landmarks, "sphereface", crop)[None])
            for each, crop in zip(members, ("112x96", "wide", "upper"), strict=True)
        ]
        np.testing.assert_allclose(row, joined(parts, "concatenate")[0], atol=1e-5)
    assert Patches(members).embed(photo, points[:0]).shape == (0, found.shape[1])
    with pytest.raises(UserError, match=r"float64 \(200, 220, 3\); wanted uint8"):
        Patches(members).embed(photo / 255, points)
    with pytest.raises(UserError, match=r"landmarks \(5, 2\); wanted \(N, 5, 2\).*landmarks\[None\]"):
        Patches(members).embed(photo, points[0])
