"""The end of the demo: enrolling and identifying drawn people through the real steps."""

from dataclasses import replace

import pytest
import torch

from sphereface import create_model
from sphereface.experiments import demo
from sphereface.experiments.demo import Findings, report
from sphereface.experiments.demo_recognition import (
    COMMANDS,
    FPIR,
    KNOWN,
    LEAST,
    SEARCHED,
    STRANGERS,
    recognise,
)
from sphereface.experiments.openset import FULL, NET, QUICK
from sphereface.progress import silent
from tests.experiments.test_openset import TINY


@pytest.fixture(scope="module")
def found():
    torch.manual_seed(0)
    net = create_model("sphereface4", features=64, **NET)
    steps = []
    answer = recognise(net, replace(TINY, test_people=LEAST), begin=lambda step: steps.append(step) or silent)
    assert steps == ["calibrating the network", "enrolling and identifying"]
    return answer


def test_every_photo_has_one_answer(found):
    assert found.enrolled == KNOWN
    lost = KNOWN * SEARCHED + STRANGERS * SEARCHED - (found.right + found.wrong + found.unknown + found.strangers)
    assert 0 <= lost <= found.failed
    assert found.threshold.people == KNOWN
    assert found.as_json()["fpir"] == FPIR


def test_few_strangers_get_a_name_even_with_an_untrained_network(found):
    assert found.named <= found.strangers / 2


def test_the_report_shows_the_photos_and_the_commands_for_photos_of_ones_own(found):
    page = report(Findings(seed=0, scale=TINY, recognised=found)).html()
    assert found.text().split(".")[0] in page
    assert "with a box around each face" in page
    assert COMMANDS[2].split("--")[0] in page


def test_the_demo_ends_with_it_at_both_of_its_sizes():
    assert min(FULL.test_people, QUICK.test_people) >= LEAST > TINY.test_people
    assert demo.recognise is recognise
