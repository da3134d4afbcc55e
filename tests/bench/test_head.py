"""A small version of the benchmark: what it measures is real and complete; how fast is for `make bench`."""

import pytest
import torch

from sphereface.bench import head, timing


def test_every_candidate_computes_a_gradient_and_has_a_ratio(monkeypatch):
    said, gradients = [], []
    backward = torch.Tensor.backward
    monkeypatch.setattr(torch.Tensor, "backward", lambda loss: (backward(loss), gradients.append(loss.item())))
    result = head.bench_head(classes=(50, 80), repeats=2, memory=False, say=said.append)
    assert [row["classes"] for row in result["rows"]] == [50, 80]
    for row in result["rows"]:
        assert row["ratio_to_plain"]["plain"] == 1
        assert row["ratio_to_plain"]["a_softmax"] == row["seconds"]["a_softmax"] / row["seconds"]["plain"] > 0
    assert len(said) >= 2
    candidates = len(result["rows"][0]["seconds"])
    assert len(gradients) == 2 * (2 + 1) * candidates  # class counts x (repeats + warm-up) x candidates


def test_a_device_that_is_not_there_is_refused():
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no CUDA device"):
            head.bench_head(device="cuda")


def test_candidates_take_turns():
    order = []
    seconds = timing.interleaved(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, repeats=3, device="cpu"
    )
    assert order == ["a", "b"] * 4  # one round to warm up
    assert seconds.keys() == {"a", "b"}


def allocate(megabytes: int):
    def run() -> torch.Tensor:
        return torch.ones(megabytes * 250_000)

    return run


def test_peak_memory_sees_what_a_run_allocates():
    assert timing.peak_beyond_inputs(allocate, 200) == pytest.approx(200e6, rel=0.1)


def fail():
    raise MemoryError


@pytest.mark.filterwarnings("ignore")
def test_a_measurement_that_dies_says_so(capfd):
    with pytest.raises(RuntimeError, match="exit code"):
        timing.peak_beyond_inputs(fail)
