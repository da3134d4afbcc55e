import pytest
import torch

from sphereface import create_loss, create_model
from sphereface.experiments.loop import Budget, Step, batches, extract, fit
from sphereface.models.inputs import to_input, to_tensor


def faces(count: int = 24):
    return torch.randint(0, 256, (count, 3, 112, 96), dtype=torch.uint8), torch.arange(count) % 4


def trained(seed: int, **budget) -> tuple[list[Step], dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    images, labels = faces()
    torch.manual_seed(seed)
    net, loss = create_model("sphereface4", width=0.0625, features=8, norm="batch"), create_loss("a_softmax", 8, 4)
    steps: list[Step] = []
    fit(net, loss, images, labels, Budget(**{"steps": 10, "batch": 8, **budget}), seed=seed, on_step=steps.append)
    return steps, {**net.state_dict(), **{f"loss.{key}": value for key, value in loss.state_dict().items()}}


def test_the_same_seed_gives_the_same_weights_bit_for_bit():
    (first, weights), (second, again) = trained(1), trained(1)
    assert first == second
    assert all(torch.equal(weights[key], again[key]) for key in weights)
    assert not torch.equal(weights["fc1.weight"], trained(2)[1]["fc1.weight"])


def test_every_face_comes_once_before_any_comes_again():
    chosen = torch.cat([which for which, _ in batches(10, 4, 5, torch.Generator().manual_seed(0))])
    assert sorted(chosen[:10].tolist()) == list(range(10)) == sorted(chosen[10:].tolist())


def test_about_half_of_the_faces_are_mirrored():
    mirrored = torch.cat([which for _, which in batches(50, 50, 40, torch.Generator().manual_seed(0))]).float().mean()
    assert 0.45 < mirrored < 0.55


def test_the_rate_falls_to_a_tenth_at_each_milestone():
    steps, _ = trained(0, lr=0.1, milestones=(0.5, 0.8))
    assert [round(step.lr, 6) for step in steps] == [0.1] * 5 + [0.01] * 3 + [0.001] * 2


def test_weights_stay_on_the_sphere_and_annealing_counts_steps():
    _, weights = trained(0)
    torch.testing.assert_close(weights["loss.weight"].norm(dim=1), torch.ones(4))
    assert weights["loss.step"] == 10


def test_pixels_are_scaled_as_in_the_paper():
    assert to_input(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [-127.5 / 128, 127.5 / 128]


def test_features_are_image_and_mirror_image_side_by_side():
    net = create_model("sphereface4", width=0.0625, features=8).eval()
    images, _ = faces(5)
    found = torch.from_numpy(extract(net, images, batch=2))
    with torch.no_grad():
        expected = torch.cat([net(to_input(images)), net(to_input(images).flip(3))], 1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert extract(net, images, mirror=False).shape == (5, 8)


def test_arrays_of_faces_become_tensors_without_a_copy():
    array = faces(2)[0].permute(0, 2, 3, 1).contiguous().numpy()
    tensor = to_tensor(array)
    assert tensor.shape == (2, 3, 112, 96)
    array[0, 0, 0, 0] = 7
    assert tensor[0, 0, 0, 0] == 7


@pytest.mark.parametrize("steps", [1, 3])
def test_a_run_has_as_many_steps_as_its_budget(steps):
    assert len(trained(0, steps=steps)[0]) == steps
