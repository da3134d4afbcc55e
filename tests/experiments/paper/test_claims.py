"""The text against the tables: what is counted as agreement, and what is known to disagree."""

from collections.abc import Sequence
from functools import cache

import pytest

from sphereface.contract import STAGES
from sphereface.experiments.paper import claims, published
from sphereface.experiments.paper.claims import (
    NO,
    NOWHERE,
    YES,
    Claim,
    all_claims,
    differences,
    millions,
    number,
    rises,
)
from sphereface.experiments.paper.published import MegaFace, Pairs
from sphereface.experiments.paper.setting import Setting
from sphereface.losses import LOSSES
from sphereface.models import MODELS
from sphereface.training.recipes import RECIPES, paper, prototxt


@cache
def listed() -> tuple[Claim, ...]:
    return tuple(all_claims())


def answer(says: str, among: Sequence[Claim] | None = None) -> str:
    (found,) = [claim for claim in among or listed() if says in claim.says]
    return found.agrees


@pytest.mark.parametrize(
    ("text", "found", "agrees"),
    [("4.8", 4.783, YES), ("4.8", 4.851, NO), ("0.64", 0.639, YES), ("3,424", 3425, NO), ("95.0", 95.0, YES),
     ("97.75", 97.88, NO), ("2", 2.6, NO)],
)  # fmt: skip
def test_a_number_agrees_if_it_is_the_other_one_rounded_to_its_digits(text, found, agrees):
    assert number("", "", text, found, "").agrees == agrees


def test_the_rounding_of_the_numbers_behind_a_difference_is_allowed_for():
    assert number("", "", "1.91", 1.9, "").agrees == NO
    assert number("", "", "1.91", 1.9, "", slack=0.1).agrees == YES


@pytest.mark.parametrize(
    "says",
    ["softmax on LFW: to 97.75", "gains of 1.54 to 1.91: 4 layers on YTF", "VGGFace (2M)", "YTF includes 3,424 videos",
     "softmax on LFW: from 96.60", "only worse than Google FaceNet: YTF", "better than Google and NTechLAB"],
)  # fmt: skip
def test_known_disagreements_are_found(says):
    assert answer(says) == NO


@pytest.mark.parametrize(
    "says",
    ["by 4.8 in identification", "by 6.3 in verification", "large protocol by 0.64", "large protocol by 1.4",
     "gains of 1.54 to 1.91: lower end", "m_min >= 3", "while m becomes larger", "YTF includes 1,595"],
)  # fmt: skip
def test_sentences_that_the_tables_bear_out_agree(says):
    assert answer(says) == YES


def test_figures_without_numbers_leave_two_accuracies_in_no_table():
    assert answer("A-Softmax on YTF: from 93.4") == answer("softmax on YTF: from 91.1 (4") == NOWHERE


def test_a_changed_table_changes_the_answers(monkeypatch):
    monkeypatch.setitem(published.TABLE_3, "softmax", Pairs(97.75, 93.1))
    monkeypatch.setitem(published.TABLE_5, "ensemble", MegaFace("small", 75.0, 89.142))
    changed = all_claims()
    assert answer("softmax on LFW: to 97.75", changed) == YES
    assert answer("gains of 1.54 to 1.91: lower end", changed) == NO
    assert answer("by 4.8 in identification", changed) == NO
    assert answer("by 6.3 in verification", changed) == YES


def test_every_sentence_with_a_number_prints_it():
    for claim in listed():
        for text in claim.text.split(" to ") if " to " in claim.text else [claim.text]:
            plain = text.removeprefix("> ").replace(",", "").removesuffix("M")
            if text != "-" and "," not in claim.text and not claim.says.startswith(("Property 2", "Conv1")):
                assert plain.rstrip("K") in claim.says.replace(",", ""), claim


def test_no_sentence_is_listed_twice():
    sentences = [claim.says for claim in listed()]
    assert len(set(sentences)) == len(sentences)


def test_training_images_are_read_in_millions():
    assert millions("Deep FR") == 2.6
    assert millions("DeepID2+") == pytest.approx(0.3)


def test_numbers_rise_only_if_each_is_above_the_one_before():
    assert rises([1, 2, 3])
    assert not rises([1, 1, 2])


def test_every_setting_in_which_the_two_recipes_differ_is_in_the_table():
    ours, theirs = paper().model_dump(), prototxt().model_dump()
    differ = {name for name in ours if ours[name] != theirs[name]}
    assert differ == {"recipe", "batch", "caffe_momentum", "loss_options"}
    rows = {row[0]: " ".join(row[3:]) for row in differences()}
    assert f"{paper().batch} in all" in rows["batch"]
    assert f"{prototxt().batch} in all" in rows["batch"]
    assert "caffe_momentum = True" in rows["rate in the momentum"]
    assert "gradient = 'caffe'" in rows["gradient of features"]


def test_what_the_table_tells_to_choose_is_there():
    text = " ".join(" ".join(row[3:]) for row in differences())
    assert {"paper", "prototxt"} <= RECIPES.keys()
    for name in ("sphereface64", "sphereface64_caffe"):
        assert name in text
        assert name in MODELS
    assert sum(1 + 2 * units for units in STAGES["sphereface64_caffe"]) == 62
    assert LOSSES["a_softmax"](4, 3, gradient="caffe").gradient == "caffe"
    assert LOSSES["a_softmax"](4, 3, annealing=None).annealing is None


def test_the_result_names_every_disagreement_and_where_its_numbers_are_from():
    result = claims.run(Setting())
    sentences, code = result.tables
    wrong = [row for row in sentences.rows if row.cells[-1] == NO]
    assert len(result.findings) == len(wrong) + 2
    assert result.numbers["counts"][NO] == len(wrong)
    assert {row.stamp for row in sentences.rows} == {"derived", "published"}
    assert all(len(row.cells) == len(code.head) for row in code.rows)
