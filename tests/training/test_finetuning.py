"""New people for a trained network: it is the file's, from its first step, and its faces are made as they were."""

import pytest
import torch

from sphereface.cli import main
from sphereface.contract import Alignment, Card, Preprocessing, read_card
from sphereface.data.manifest import SetManifest, write_manifest
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.errors import ContractMismatch, ModelFileError
from sphereface.models import create_model, load_model, save_model
from sphereface.training import run as module
from sphereface.training.recipes import load_recipe
from sphereface.training.telling.log import read_log
from tests.training.conftest import TINY, run, same, weights


@pytest.fixture(scope="module")
def six(tmp_path_factory):
    folder = tmp_path_factory.mktemp("six") / "faces"
    SyntheticPeople(seed=6).write(folder, 6, 4)
    return folder


@pytest.fixture(scope="module")
def five_others(tmp_path_factory):
    folder = tmp_path_factory.mktemp("five") / "faces"
    SyntheticPeople(seed=5).write(folder, 5, 4)
    return folder


@pytest.fixture(scope="module")
def trained(six, tmp_path_factory):
    """A network as the paper's recipes make them: without norm, and with features of its own number."""
    out = tmp_path_factory.mktemp("trained") / "run"
    run(six, out, TINY.changed(width=0.125, steps=8, milestones=(), checkpoint_every=8))
    assert read_log(out)[0]["data"]["people"] == 6
    return out / "model.safetensors"


@pytest.fixture
def first_step(monkeypatch):
    """What a run's first step began with."""
    seen = {}
    real = module.learn

    def learn(net, loss, *rest):
        if not seen:
            seen["net"] = {name: value.clone() for name, value in net.state_dict().items()}
            seen["loss"] = loss.weight.detach().clone()
        return real(net, loss, *rest)

    monkeypatch.setattr(module, "learn", learn)
    return seen


def tell(*arguments) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as left:
        main(["train", "--device", "cpu", "--workers", "0", *map(str, arguments)])
    return left.value.code or 0


def test_five_other_people_are_learned_from_where_six_were_left(five_others, trained, first_step, tmp_path):
    out = tmp_path / "tuned"
    given = (
        "--data",
        five_others,
        "--out",
        out,
        "--init",
        trained,
        "--recipe",
        "finetune",
        "--steps",
        12,
        "--batch",
        8,
    )
    assert tell(*given) == 0
    assert same(first_step["net"], weights(trained.parent))
    assert first_step["loss"].shape == (5, TINY.features)
    assert read_log(out)[-1]["outcome"] == "finished"
    before, after = load_model(trained), load_model(out / "model.safetensors")
    assert after.architecture == before.architecture
    assert after.architecture.norm is None  # `finetune` would have batch norm for itself
    assert not same(after.state_dict(), before.state_dict())
    losses = [entry["loss"] for entry in read_log(out) if entry["kind"] == "step"]
    assert all(loss < 3 for loss in losses)  # log 5 is 1.6


def test_what_a_recipe_says_of_the_network_must_be_true_of_the_file(five_others, trained, tmp_path, capsys):
    given = ("--data", five_others, "--out", tmp_path / "run", "--init", trained)
    assert tell(*given, "--recipe", "small") == 2
    assert tell(*given, "--recipe", "finetune", "--width", "0.25") == 2
    (tmp_path / "mine.toml").write_text("steps = 2\nmilestones = []\nbatch = 4\nfeatures = 32")
    assert tell(*given, "--recipe", tmp_path / "mine.toml") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all("the recipe wants" in line and "use --recipe finetune" in line for line in lines)
    assert not (tmp_path / "run").exists()  # said before a face was looked at
    (tmp_path / "mine.toml").write_text("steps = 2\nmilestones = []\nbatch = 4")  # says nothing of the network
    assert tell(*given, "--recipe", tmp_path / "mine.toml") == 0
    assert load_model(tmp_path / "run" / "model.safetensors").architecture == load_model(trained).architecture


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        ({"template": "matlab"}, r"template matlab \(this run: sphereface\); use --recipe finetune"),
        ({"crop": "wide"}, r"crop wide \(this run: 112x96\); use --recipe finetune"),
        ({"colour": "BGR"}, r"colour BGR \(this run: RGB\); a run feeds its network RGB"),
        ({"crop": "wide", "scale": 255.0}, r"crop wide .*scale 255\.0 .*cannot be trained further"),
    ],
)
def test_a_network_that_saw_other_faces_is_refused_before_a_face_is_looked_at(
    five_others, trained, tmp_path, made, complaint
):
    other = tmp_path / "other.safetensors"
    save_model(load_model(trained), other, Card(preprocessing=Preprocessing(**made)))
    with pytest.raises(ContractMismatch, match=complaint):
        run(five_others, tmp_path / "run", TINY.changed(width=0.125), init=other)
    assert not (tmp_path / "run").exists()


def test_finetune_wants_faces_made_as_the_files_were(five_others, tmp_path, capsys):
    other = tmp_path / "other.safetensors"
    net = create_model("sphereface4", width=0.05, features=8)
    save_model(net, other, Card(preprocessing=Preprocessing(template="matlab", crop="wide")))
    given = ("--data", five_others, "--out", tmp_path / "run", "--init", other, "--recipe", "finetune")
    assert tell(*given) == 2
    assert "align the photos again with --template matlab --crop wide" in capsys.readouterr().err


def test_a_model_that_is_not_there_is_said_at_once(tmp_path):
    with pytest.raises(ModelFileError, match="no such model file"):
        load_recipe("finetune", tmp_path / "nowhere.safetensors")


def test_lambda_is_at_its_end_at_44_percent_of_finetune_before_the_rate_falls():
    for config in (load_recipe("finetune"), load_recipe("small"), load_recipe("finetune").with_steps(480)):
        lambdas = config.annealing.build()(torch.arange(1, config.steps + 1))
        arrived = int((lambdas > config.annealing.minimum).sum()) + 1
        assert arrived / config.steps == pytest.approx(0.442, abs=0.005)
        assert arrived < config.milestones[0]


@pytest.mark.parametrize("crop", ["wide", "upper"])
def test_a_net_of_an_ensemble_learns_from_its_own_crop(tmp_path, crop):
    faces, out = tmp_path / "faces", tmp_path / "run"
    SyntheticPeople(seed=5).write(faces, 5, 4)
    short = ("--data", faces, "--out", out, "--recipe", f"paper_patch_{crop}", "--steps", 3, "--batch", 4)
    assert tell(*short, "--width", 0.02, "--model", "sphereface4") == 2  # these are faces of crop 112x96
    write_manifest(faces, SetManifest(alignment=Alignment(crop=crop), made_by="this test"))
    assert tell(*short, "--width", 0.02, "--model", "sphereface4") == 0
    assert read_card(out / "model.safetensors").preprocessing == Preprocessing(crop=crop)
