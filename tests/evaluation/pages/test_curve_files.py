"""MegaFace's curves as files: they say what the result says, whoever reads them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from sphereface.data.lists.devkit import read_curves
from sphereface.evaluation.pages.curve_files import staircase, write_megaface_curves
from sphereface.evaluation.protocols.megaface import evaluate_megaface
from sphereface.metrics.upper_tail import UpperTail


@pytest.fixture(scope="module")
def result():
    rng = np.random.default_rng(0)
    people = np.arange(24) % 6
    probes = rng.normal(size=(6, 8))[people] + rng.normal(size=(24, 8))
    noise = {"noisy_probes": np.arange(24) == 3, "noisy_distractors": np.arange(120) % 9 == 0}
    return evaluate_megaface(probes, people, rng.normal(size=(120, 8)), far=0.2, **noise)


def read_off(far, tar, rate):
    """The TAR at a FAR, as the documentation says: of the last point that is not above it."""
    return [t for f, t in zip(far, tar, strict=True) if f <= rate * (1 + 1e-9)][-1]


def test_every_size_has_a_file_from_which_every_rank_and_rate_is_read_off(result, tmp_path):
    written = write_megaface_curves(result, tmp_path / "new" / "folder")
    sizes = [f"cmc_FaceScrub_megaface_{size}" for size in (10, 100, 120)]
    assert [path.name for path in written] == [f"{s}.json" for s in sizes] + [f"{s}_cleaned.json" for s in sizes]
    for path, at_size in zip(written, result.raw + result.cleaned, strict=True):
        cmc, far, tar = read_curves(path)
        assert cmc == at_size.cmc.tolist()
        assert json.loads(path.read_text())["cmc"][0] == list(range(len(cmc)))
        tail = at_size.verification
        for accepted in range(len(tail.negatives)):
            rate = accepted / tail.total
            assert read_off(far, tar, rate) == np.mean(tail.positives > tail.negatives[accepted])
        assert far == sorted(set(far))  # one point a rate
        assert far[-1] == pytest.approx(0.2, abs=1 / tail.total)


def test_a_whole_curve_ends_where_everything_is_accepted():
    far, tar = staircase(UpperTail(np.array([0.9, 0.5, 0.5]), np.array([0.6, 0.5, 0.3, 0.1]), 4))
    assert (far.tolist(), tar.tolist()) == ([0, 0.5, 1], [1 / 3, 1, 1])


def test_of_too_many_corners_those_stay_that_decide_evenly_spaced_and_printed_rates():
    rng = np.random.default_rng(1)
    tail = UpperTail(-np.sort(-rng.normal(0.1, 1, 40_000)), -np.sort(-rng.normal(0, 1, 30_001)), 3_000_000)
    whole, few = staircase(tail), staircase(tail, most=500)
    assert len(whole[0]) > 10_000
    assert len(few[0]) <= 500 + 6
    assert {*zip(*few, strict=True)} < {*zip(*whole, strict=True)}
    for rate in (0, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, *(30_000 ** (np.arange(500) / 499) / 3_000_000)):
        assert read_off(*few, rate) == tail.tar_at_far(rate)


def test_a_name_of_probes_becomes_a_name_of_a_file(result, tmp_path):
    for name, wanted in (("my people/2024", "my-people-2024"), ("../..", "probes")):
        first, *_ = write_megaface_curves(replace(result, probe_set=name), tmp_path)
        assert first == tmp_path / f"cmc_{wanted}_megaface_10.json"
