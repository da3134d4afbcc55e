import pytest
import torch

from sphereface import Annealing, create_loss


def lambda_at(step: int, **options) -> float:
    return Annealing(**options)(torch.tensor(step)).item()


def test_the_released_schedule_starts_at_892_857_and_reaches_5_at_step_1659():
    assert lambda_at(1) == pytest.approx(1000 / 1.12)
    assert lambda_at(1658) > 5
    assert lambda_at(1659) == 5
    assert lambda_at(10**9) == 5


def test_power_and_gamma_bend_the_schedule():
    assert lambda_at(3, base=10, gamma=2, power=3, minimum=0) == pytest.approx(10 * 7.0**-3)


@pytest.mark.parametrize("name", ["base", "gamma", "power", "minimum"])
@pytest.mark.parametrize("value", [-1.0, "fast", None, True])
def test_what_is_no_number_of_at_least_0_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"annealing {name} is {value!r}"):
        Annealing(**{name: value})


def batch():
    return torch.randn(4, 3), torch.tensor([0, 1, 2, 3])


@pytest.mark.parametrize("name", ["a_softmax", "l_softmax", "sphereface_plus"])
def test_a_bare_forward_in_training_counts_as_one_step_and_evaluation_as_none(name):
    loss = create_loss(name, 3, 5)
    for _ in range(3):
        loss(*batch())
    loss.eval()
    loss(*batch())
    assert loss.step.item() == 3
    assert loss.lambda_.item() == pytest.approx(1000 / (1 + 0.12 * 3))


def test_accumulation_does_not_speed_up_annealing():
    loss = create_loss("a_softmax", 3, 5)
    lambdas = []
    for _ in range(3):  # optimizer steps
        loss.advance()
        for _ in range(4):  # micro-batches
            loss(*batch())
            lambdas.append(loss.lambda_.item())
        loss.project_()
    assert loss.step.item() == 3
    assert lambdas == [lambda_at(step) for step in (1, 2, 3) for _ in range(4)]


def test_a_resumed_loss_continues_annealing_and_gives_the_same_losses():
    torch.manual_seed(1)
    batches = [batch() for _ in range(20)]
    straight = create_loss("a_softmax", 3, 5)
    start = {name: tensor.clone() for name, tensor in straight.state_dict().items()}
    expected = [straight(*each).item() for each in batches]
    first = create_loss("a_softmax", 3, 5)
    first.load_state_dict(start)
    values = [first(*each).item() for each in batches[:10]]
    second = create_loss("a_softmax", 3, 5)
    second.load_state_dict(first.state_dict())
    assert second.step.item() == 10
    assert values + [second(*each).item() for each in batches[10:]] == expected


def test_evaluation_never_counts_a_step():
    loss = create_loss("a_softmax", 3, 5).eval()
    loss.advance()
    assert loss.step.item() == 0


def test_a_schedule_takes_plain_numbers_too():
    assert Annealing()(1).item() == pytest.approx(1000 / 1.12)


def test_without_annealing_lambda_is_zero():
    loss = create_loss("a_softmax", 3, 5, annealing=None)
    assert loss.lambda_.item() == 0
