"""A small version of the benchmark: every face is really loaded and trained on; how fast is for `make bench`."""

import cv2
import numpy as np
import pytest

from sphereface.bench import loading


@pytest.fixture
def data(tmp_path):
    for person in range(2):
        (tmp_path / f"p{person}").mkdir()
        for photo in range(2):
            face = np.random.default_rng([person, photo]).integers(0, 256, (112, 112, 3), np.uint8)
            cv2.imwrite(str(tmp_path / f"p{person}" / f"{photo}.png"), face)
    return tmp_path


def test_the_ratio_is_that_of_the_faces_a_second(data, monkeypatch):
    monkeypatch.setattr(
        loading, "interleaved", lambda candidates, **_: {name: run() or 0.5 for name, run in candidates.items()}
    )
    said = []
    result = loading.bench_loading(
        data, workers=0, batch=4, repeats=1, loading_steps=6, training_steps=1, say=said.append
    )
    assert (result["faces"], result["people"]) == (4, 2)
    assert result["faces_per_second"] == {"loading": 48, "training": 8, "loading_from_memory": 48}
    assert result["loading_to_training"] == 6
    assert len(said) == 2


def test_a_turn_of_training_moves_the_network(data, monkeypatch):
    nets = []
    create = loading.create_model
    monkeypatch.setattr(loading, "create_model", lambda name: nets.append(create(name)) or nets[-1])
    faces = loading.prepare(loading.PeopleFolder(data))
    run = loading.train(faces, steps=1, batch=4)
    before = [parameter.detach().clone() for parameter in nets[0].parameters()]
    run()
    assert any(not parameter.equal(old) for parameter, old in zip(nets[0].parameters(), before, strict=True))
