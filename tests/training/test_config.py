"""Recipes and their files: what they say is checked, stretched and written down."""

import math
import tomllib

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from sphereface.losses import LOSSES, create_loss
from sphereface.training.config import AnnealingConfig, TrainConfig, check, read_config
from sphereface.training.recipes import RECIPES, load_recipe


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_comes_back_from_its_file(tmp_path, name):
    config = load_recipe(name)
    (tmp_path / "config.toml").write_text(config.toml())
    assert read_config(tmp_path / "config.toml") == config
    assert config.recipe == name
    create_loss(config.loss, 8, 5, **config.options())  # its options are ones that the loss takes


@given(
    recipe=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lr=st.floats(min_value=0, exclude_min=True, allow_nan=False),
    milestones=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
    sample=st.none() | st.floats(0, 1, exclude_min=True) | st.just(np.float32(0.5)),
    chunk=st.none() | st.integers(1, 2**63 - 1) | st.just(np.int64(3)),
)
@example(recipe="\x7f\u2028\\", lr=math.inf, milestones=[], sample=None, chunk=None)
def test_whatever_is_written_is_read_back(recipe, lr, milestones, sample, chunk):
    """By the standard library's reader, value by value; None is what TOML leaves out."""
    options = {"m": 3, "sample": sample, "chunk": chunk}
    config = TrainConfig(recipe=recipe, lr=lr, milestones=milestones, loss_options=options)
    found = check(tomllib.loads(config.toml()), source="this text")
    given = {name: value for name, value in options.items() if value is not None}
    assert found == config.changed(loss_options=given)
    assert (found.recipe, found.lr, found.loss_options) == (recipe, lr, given)


# What earlier versions wrote beside a run's checkpoints: arrays on one line, tables without an empty one.
EARLIER = """recipe = "größer \\"small\\""
model = "sphereface20"
features = 512
width = 1.0
last_relu = false
template = "sphereface"
crop = "112x96"
mirror = true
loss = "a_softmax"
classifier = "replicated"
batch = 128
accumulate = 1
steps = 28000
seed = 0
lr = 0.1
milestones = [16000, 24000]
lr_drop = 0.1
warmup = 0
momentum = 0.9
caffe_momentum = false
weight_decay = 0.0005
precision = "float32"
checkpoint_every = 1000
keep = 3
validation_people = 0
validate_every = 0

[loss_options]
m = 4

[annealing]
base = 1000.0
gamma = 0.12
power = 1.0
minimum = 5.0

[guard]
window = 200
rollbacks = 3
lr_factor = 0.5
gamma_factor = 0.25
"""


def test_settings_of_earlier_runs_are_read_as_they_were_meant():
    config = TrainConfig(recipe='größer "small"', loss_options={"m": 4}, annealing=AnnealingConfig())
    assert check(tomllib.loads(EARLIER), source="earlier") == config


def test_the_papers_run_is_as_printed():
    config = load_recipe("paper")
    assert (config.batch, config.lr, config.steps, config.weight_decay) == (128, 0.1, 28_000, 5e-4)
    rates = [config.lr_at(step) for step in (0, 15_999, 16_000, 23_999, 24_000, 27_999)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    assert config.annealing.build()(1659).item() == 5


def test_the_authors_solver_is_the_papers_run_with_what_caffe_does():
    printed, released = load_recipe("paper").model_dump(), load_recipe("prototxt").model_dump()
    assert {name for name in printed if printed[name] != released[name]} == {
        "recipe", "batch", "caffe_momentum", "loss_options",
    }  # fmt: skip
    assert released["loss_options"] == {"m": 4, "gradient": "caffe"}
    for mode in ({}, {"chunk": 3}, {"sample": 0.5}, {"shard": (0, 1)}):
        loss = create_loss("a_softmax", 8, 5, **released["loss_options"], **mode)
        assert loss(torch.randn(4, 8), torch.arange(4)).isfinite()


def test_there_is_a_recipe_for_every_rival():
    assert {load_recipe(name).loss for name in RECIPES if name.startswith("paper")} == set(LOSSES)


def test_warm_up_rises_to_the_full_rate():
    config = TrainConfig(warmup=4, lr=1.0)
    assert [config.lr_at(step) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]


@given(st.integers(1, 100_000))
def test_a_run_of_another_length_is_the_same_run_stretched(steps):
    config = load_recipe("paper")
    other = config.with_steps(steps)
    assert other.steps == steps
    for share in (0.1, 0.4, 0.7, 0.95):
        if abs(share * steps - round(share * steps)) < 1e-9 and steps > 1000:
            assert other.lr_at(round(share * steps)) == pytest.approx(config.lr_at(round(share * 28_000)))
    before, after = config.annealing.build(), other.annealing.build()
    assert after(steps).item() == pytest.approx(before(28_000).item(), rel=1e-3)
    assert after(max(1, steps // 2)).item() == pytest.approx(
        before(28_000 * max(1, steps // 2) // steps).item(), rel=0.01
    )


def test_the_running_mean_covers_the_same_share_of_a_run_of_another_length():
    config = load_recipe("mini")
    for steps in (500, 16_000, 100_000):
        weight_of_the_first = config.with_steps(steps).ema ** (steps / 16)
        assert weight_of_the_first == pytest.approx(config.ema ** (config.steps / 16), rel=1e-6)
    assert config.with_steps(1).ema > 0


def test_another_loss_brings_its_own_defaults():
    config = load_recipe("small")
    assert config.with_loss("softmax").annealing is None
    assert config.with_loss("softmax").loss_options == {}
    assert config.with_loss("softmax").with_loss("a_softmax").annealing == AnnealingConfig()
    assert config.with_loss("triplet").photos == 4
    assert config.with_loss("a_softmax") is config


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("mileston = [1]", "unknown key 'mileston'; did you mean milestones"),
        ("[annealing]\ngama = 1.0", r"unknown key 'annealing\.gama'; did you mean gamma"),
        ("[guard]\nwidow = 300", r"unknown key 'guard\.widow'; did you mean window"),
        ("zzzzqq = 1", "known are recipe, model"),
        ("batch = 'many'", "batch: .*integer"),
        ("batch = 0", "batch: .*greater"),
        ("model = 'sphere20'", "unknown model 'sphere20'; choose one of sphereface4"),
        ("loss = 'asoftmax'", "unknown loss 'asoftmax'"),
        ("crop = '96x112'", "unknown crop"),
        ("loss = 'softmax'\n[annealing]\ngamma = 0.1", "softmax has no annealing"),
        ("batch = 10\naccumulate = 3", "batch is 10, accumulate 3; wanted a divisor"),
        ("loss = 'triplet'\naccumulate = 2", "needs the whole batch at once"),
        ("batch = 10\nphotos = 4", "wanted a multiple of photos"),
        ("loss = 'triplet'\nclassifier = 'sharded'", "cannot be sharded"),
        ("batch = = 3", "not valid TOML"),
        ("[loss_options]\nm = 'four'", "loss_options: m is 'four'; a_softmax takes an integer"),
        ("[loss_options]\nsample = 'x'", "sample is 'x'; a_softmax takes a number of at least 0 or None"),
        ("[loss_options]\nsample = 2", "sample is 2; it takes a fraction"),
        ("[loss_options]\ngradiant = 'caffe'", "a_softmax has no option 'gradiant'; did you mean gradient"),
        ("[loss_options]\nm = 5\ngradient = 'caffe'", "m is 5; .* use gradient='exact'"),
        ("[loss_options]\nfeatures = 3", "a_softmax has no option 'features'"),
        ("[loss_options.annealing]\ngamma = 1", r"set it with the table \[annealing\]"),
        ("[loss_options]\nshard = [0, 2]", "set it with classifier = 'sharded'"),
        ("loss = 'arcface'\n[loss_options]\nm = 4", "ArcFace takes a margin on the angle"),
    ],
)
def test_what_is_wrong_with_a_recipe_is_said_in_one_line(tmp_path, text, complaint):
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ValueError, match=complaint) as caught:
        read_config(tmp_path / "mine.toml")
    assert "\n" not in str(caught.value)
    assert "mine.toml" in str(caught.value)


@pytest.mark.parametrize("loss", LOSSES)
def test_options_are_held_against_the_loss_when_a_recipe_is_read(tmp_path, loss):
    (tmp_path / "mine.toml").write_text(f"loss = '{loss}'\n[loss_options]\nzzzz = 1")
    with pytest.raises(ValueError, match=rf"mine\.toml: loss_options: {loss} has no option 'zzzz'; it takes "):
        read_config(tmp_path / "mine.toml")


def test_a_recipe_that_is_read_draws_no_random_numbers():
    before = torch.get_rng_state()
    load_recipe("paper_sphereface2")
    load_recipe("paper")
    assert torch.equal(torch.get_rng_state(), before)


def test_an_unknown_recipe_names_the_known():
    with pytest.raises(ValueError, match="unknown recipe 'papers'; choose one of small, mini, paper"):
        load_recipe("papers")
    with pytest.raises(ValueError, match="cannot be read"):
        load_recipe("nowhere.toml")


@given(st.text(max_size=80))
def test_any_text_is_a_recipe_or_a_clear_error(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("recipe") / "mine.toml"
    path.write_text(text, encoding="utf-8", newline="")
    try:
        config = read_config(path)
    except ValueError:
        return
    assert math.isfinite(config.lr)
