"""Balanced networks on many crowds: the network's part, the people's part, and the counts."""

import math

import numpy as np
import pytest

from sphereface.contract import Card
from sphereface.data.manifest import SetManifest, write_manifest
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.embed.embedder import Embedder
from sphereface.evaluation.groups.compare import evaluate_groups
from sphereface.experiments.accusations import Accusations, Crowd, Verdict, judge, named_at, try_crowds
from sphereface.experiments.openset import TEST
from sphereface.experiments.two_looks import dressed, every_other_family
from sphereface.faces.images import encode_png
from sphereface.progress import silent

FEW = {"people": 40, "photos": 2, "far": 0.05, "rounds": 20, "workers": 1}


def network(*, blue_noise=0.0):
    """Small pictures as features; to those of faces more blue than red noise is added."""
    rng = np.random.default_rng(0)

    def run(inputs):
        features = inputs[:, :, ::8, ::8].mean(1).reshape(len(inputs), -1)
        blue = inputs[:, 2].mean((1, 2)) > inputs[:, 0].mean((1, 2))
        return (features + blue_noise * blue[:, None] * rng.normal(size=features.shape)).astype(np.float32)

    return Embedder(run, Card(name="small pictures"))


def crowd_of(network, people):
    """A crowd whose ratios are these parts, by construction."""
    both = {which: (math.exp(network + people), math.exp(network - people)) for which in ("FMR", "FNMR")}
    return Crowd(*(Verdict({which: ends[turn] for which, ends in both.items()}, None) for turn in (0, 1)))


def test_what_stays_when_the_colours_are_exchanged_is_the_networks_and_what_turns_round_is_the_peoples():
    crowd = crowd_of(0.3, -0.2)
    assert crowd.network("FMR") == pytest.approx(0.3)
    assert crowd.people("FNMR") == pytest.approx(-0.2)


def test_a_networks_own_ratio_is_the_geometric_mean_over_crowds_with_two_standard_errors():
    parts = [0.1, 0.4, -0.2, 0.3]
    found = Accusations(
        0, tuple(crowd_of(part, people) for part, people in zip(parts, (0.5, -0.5, 0.5, -0.5), strict=True))
    )
    error = np.sqrt(np.sum((np.array(parts) - 0.15) ** 2) / 3) / 2
    assert np.log(found.network("FMR")) == pytest.approx([0.15, 0.15 - 2 * error, 0.15 + 2 * error])
    assert found.people("FMR") == pytest.approx(math.exp(0.5))


def test_both_tests_of_a_crowd_count_and_only_those_at_or_below_the_level():
    def crowd(*ps):
        return Crowd(*(Verdict({"FMR": 1.0, "FNMR": 1.0}, p) for p in ps))

    networks = [Accusations(0, (crowd(0.03, None), crowd(0.01, 0.002))), Accusations(1, (crowd(None, 0.05),))]
    assert named_at(0.01, networks) == (2, 6)
    assert named_at(0.05, networks) == (4, 6)


def test_a_crowd_in_memory_is_judged_as_evaluate_groups_judges_it_on_disk(tmp_path):
    faces, labels = SyntheticPeople(seed=0).faces(range(TEST, TEST + 40), 2)
    blue = every_other_family(40)
    for place, (face, person) in enumerate(zip(dressed(faces, blue[labels]), labels, strict=True)):
        path = tmp_path / f"faces/p{person:04d}/{place:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_png(face))
    write_manifest(tmp_path / "faces", SetManifest(made_by="a test"))
    looks = np.array(["red", "blue"])[blue.astype(int)]
    rows = [f"p{person:04d},{look}\n" for person, look in enumerate(looks)]
    (tmp_path / "groups.csv").write_text("person,look\n" + "".join(rows))
    options = {"far": 0.05, "rounds": 20, "error": 0.2}
    on_disk = evaluate_groups(network(), tmp_path / "faces", tmp_path / "groups.csv", **options).as_dict()
    in_memory = judge(network(), faces, labels, blue, **options).as_dict()
    assert in_memory["attributes"] == on_disk["attributes"]
    assert in_memory["findings"] == on_disk["findings"]
    assert in_memory["family_wise_error"] == 0.2


def test_a_network_that_sees_no_colour_has_no_part_in_the_ratio_whoever_is_in_the_test():
    found = try_crowds(network(), 0, 2, progress=silent, **FEW)
    for which in ("FMR", "FNMR"):
        assert found.network(which) == pytest.approx((1, 1, 1), abs=1e-3)
        assert found.people(which) > 1.02
    assert found.crowds[0] != found.crowds[1]


def test_a_network_that_sees_blue_people_badly_is_distinguished_from_a_crowd_that_happens_to_be_hard():
    found = try_crowds(network(blue_noise=1.0), 0, 2, progress=silent, **FEW)
    own, _, high = found.network("FMR")  # with noise, blue people resemble no other person
    assert own * found.people("FMR") < 0.1
    assert high < 1
    assert found.network("FNMR")[0] > 1.1


def test_crowds_that_would_reach_the_distractors_are_refused():
    with pytest.raises(ValueError, match=r"300 crowds of 40 people; only 9,960 people are left"):
        try_crowds(network(), 0, 300, progress=silent, **FEW)
