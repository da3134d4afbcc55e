"""Features gathered a few images at a time are those of all at once, and a broken model is noticed early."""

import numpy as np
import pytest

from sphereface.contract import Card
from sphereface.data.formats.sets import open_set
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.embed.embedder import Embedder
from sphereface.embed.run import embed_set
from sphereface.embed.store import open_features
from sphereface.errors import JobFailed, UnreadableImage
from sphereface.evaluation.sources import NoneUsable, Stored, gather
from tests.evaluation.networks import tiles


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Eight faces, of which the third and the last are no images."""
    root = tmp_path_factory.mktemp("gather") / "faces"
    SyntheticPeople(seed=3).write(root, 2, 4)
    for path in (root / "p0000" / "0002.png", root / "p0001" / "0003.png"):
        path.write_bytes(b"no image")
    return root


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    return tiles(tmp_path_factory.mktemp("model") / "tiles.onnx")


@pytest.mark.parametrize("piece", [1, 2, 3, 100])
def test_neither_the_piece_nor_what_is_left_out_changes_a_feature(root, embedder, piece):
    faces, heard = open_set(root), []
    found = gather(
        embedder, faces, [7, 5, 2, 0, 5, 3], missing="skip", piece=piece, progress=lambda *done: heard.append(done)
    )
    assert found.rows == {5: 0, 0: 1, 3: 2}
    assert list(found.unreadable) == [faces.paths[7], faces.paths[2]]
    for place, row in found.rows.items():
        alone = gather(embedder, faces, [place]).features
        np.testing.assert_allclose(found.features[row], alone[0], atol=1e-6)
    assert found.features.shape == (3, 252)
    assert heard[-1] == (5, 5)


def test_stored_features_are_gathered_as_a_model_would(root, embedder, tmp_path):
    faces = open_set(root)
    embed_set(root, tmp_path / "features", embedder, missing="skip")
    stored = Stored(open_features(tmp_path / "features"))
    asked = [stored.paths.index(faces.paths[place]) for place in (7, 5, 2, 0)]
    read, made = stored.gather(asked, missing="skip"), gather(embedder, faces, [7, 5, 2, 0], missing="skip")
    np.testing.assert_allclose(read.features, made.features, atol=1e-6)
    assert [stored.paths[place] for place in read.rows] == [faces.paths[place] for place in made.rows]
    assert read.unreadable == made.unreadable
    assert stored.name == "faces"
    with pytest.raises(
        UnreadableImage, match=r'^p0001/0003\.png: .*left out when the set was embedded.*missing="skip"'
    ):
        stored.gather(asked)


def test_a_broken_model_is_noticed_at_its_first_piece(root):
    calls = []

    def network(inputs):
        calls.append(len(inputs))
        return np.full((len(inputs), 3), np.nan, np.float32)

    broken = Embedder(network, Card(feature_rule="image"))
    with pytest.raises(JobFailed, match=r"2 of 2 features are not finite, such as that of p0000/0000\.png"):
        gather(broken, open_set(root), [0, 1, 3, 4], piece=2)
    assert calls == [2]


def test_nothing_that_can_be_used_is_said_with_a_reason(root, embedder):
    with pytest.raises(NoneUsable, match=r"none of the listed images can be used \(p0000/0002\.png: .*\)"):
        gather(embedder, open_set(root), [2, 7], missing="skip")
