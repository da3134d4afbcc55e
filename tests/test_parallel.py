"""The collectives among real processes, and their absence in one."""

import multiprocessing
import subprocess
import sys
import time

import pytest
import torch

from sphereface import parallel
from sphereface.errors import JobFailed

COUNT = 3


def own(shape=(2, 2), dtype=torch.float32):
    """A tensor with a value for each rank."""
    return torch.full(shape, 10.0 ** parallel.rank()).to(dtype)


def everyone_fails():
    raise KeyError("no such file")


def failure_of_first():
    try:
        parallel.on_first(everyone_fails)
    except (KeyError, JobFailed) as error:
        return f"{type(error).__name__}: {error}"


def all_collectives():
    place, scalars = parallel.rank(), {}
    with parallel.count_bytes() as counted:
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool):
            scalars[str(dtype)] = parallel.all_gather(own((), dtype)).tolist()
        gathered = parallel.all_gather(own())
        turned = parallel.all_gather(torch.arange(4.0).view(2, 2).t() + place)  # not contiguous
    with parallel.count_bytes() as exchanged:
        parts = parallel.exchange(torch.arange(3.0)[:, None] + 100 * place)
        rows = parallel.sum_of_own_rows(torch.arange(6.0)[:, None] * 10**place)
    sums = [own(), own((3,), torch.int64), own((2, 3)).t(), torch.ones(7) * place]
    with parallel.count_bytes() as summed:
        parallel.all_reduce_sum_(sums)
    means = [own(), own((3,), torch.float64)]
    parallel.all_reduce_mean_(means)
    from_first = [own((2,)), own((3,), torch.int64)]
    parallel.broadcast_(from_first)
    x = torch.ones(2, 1).requires_grad_()
    features, labels = parallel.gather_batch(x, torch.tensor([place, place]))
    (features * (1 + torch.arange(6.0))[:, None]).sum().backward()
    parallel.barrier()
    return {
        "rank": [place, parallel.ranks()],
        "scalars": scalars,
        "gathered": gathered.tolist(),
        "turned": turned[:, 0, 1].tolist(),
        "parts": parts.flatten().tolist(),
        "rows": rows.flatten().tolist(),
        "sums": [tensor.tolist() for tensor in sums],
        "means": [tensor.tolist() for tensor in means],
        "from first": [tensor.tolist() for tensor in from_first],
        "labels": labels.tolist(),
        "gradient": x.grad.flatten().tolist(),
        "bytes": [counted, exchanged, summed],
        "shared": parallel.share_json({"place": place, "much": "é" * 1000} if place == 0 else None),
        "short": parallel.share_json(place),
        "worked": parallel.on_first(lambda: (place, "done")),
        "failed": failure_of_first(),
    }


@pytest.fixture(scope="module")
def reports():
    return parallel.launch(all_collectives, COUNT)


def test_every_process_knows_its_place(reports):
    assert [report["rank"] for report in reports] == [[0, 3], [1, 3], [2, 3]]


def test_gathered_tensors_stand_in_the_order_of_the_ranks_whatever_their_type_and_layout(reports):
    for report in reports:
        assert report["scalars"].pop("torch.bool") == [True, True, True]
        assert all(values == [1, 10, 100] for values in report["scalars"].values())
        assert report["gathered"] == [[[value] * 2] * 2 for value in (1, 10, 100)]
        assert report["turned"] == [2, 3, 4]


def test_exchanged_parts_come_from_every_rank_and_sums_of_rows_go_to_their_owner(reports):
    for place, report in enumerate(reports):
        assert report["parts"] == [place, 100 + place, 200 + place]
        assert report["rows"] == [111 * (2 * place), 111 * (2 * place + 1)]


def test_sums_means_and_copies_are_the_same_everywhere(reports):
    for report in reports:
        assert report["sums"] == [[[111, 111]] * 2, [111] * 3, [[111, 111]] * 3, [3] * 7]
        assert report["means"] == [[[37, 37]] * 2, [37] * 3]
        assert report["from first"] == [[1, 1], [1, 1, 1]]


def test_a_gathered_batch_gives_each_process_its_gradient_times_their_number(reports):
    for place, report in enumerate(reports):
        assert report["labels"] == [0, 0, 1, 1, 2, 2]
        assert report["gradient"] == [3 * (2 * place + 1), 3 * (2 * place + 2)]


def test_sent_bytes_are_counted_only_while_asked(reports):
    gathered = 2 * (4 + 8 + 2 + 8 + 1 + 16 + 16)  # to two others
    for report in reports:
        sums = [2 * 2 * size // 3 for size in (16, 24, (6 + 7) * 4)]  # a bucket holds neighbours of one type
        assert report["bytes"] == [{"all_gather": gathered}, {"exchange": 2 * 4 + 2 * 8}, {"all_reduce": sum(sums)}]


def test_the_first_process_tells_the_others(reports):
    for place, report in enumerate(reports):
        assert report["shared"] == {"place": 0, "much": "é" * 1000}
        assert report["short"] == 0
        assert report["worked"] == [0, "done"]
        wanted = "KeyError: 'no such file'"
        assert report["failed"] == (wanted if place == 0 else f"JobFailed: the first of 3 processes failed: {wanted}")


def test_alone_every_collective_does_nothing():
    tensor = torch.arange(6.0).view(3, 2).requires_grad_()
    before = tensor.detach().clone()
    with parallel.count_bytes() as counted, torch.no_grad():
        parallel.all_reduce_sum_([tensor])
        parallel.all_reduce_mean_([tensor])
        parallel.broadcast_([tensor])
        parallel.barrier()
        assert torch.equal(parallel.all_gather(tensor), before[None])
        assert torch.equal(parallel.exchange(tensor[None]), before[None])
        assert torch.equal(parallel.sum_of_own_rows(tensor), before)
    assert torch.equal(tensor, before)
    assert not counted
    assert parallel.gather_batch(tensor, before) == (tensor, before)
    assert (parallel.rank(), parallel.ranks()) == (0, 1)
    assert parallel.share_json({"a": (1, 2)}) == {"a": [1, 2]}  # as among many
    assert parallel.on_first(lambda: 7) == 7
    with pytest.raises(KeyError):
        parallel.on_first(everyone_fails)


def test_alone_the_device_is_the_one_that_was_asked_for(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert parallel.begin("cpu") == torch.device("cpu")
    assert parallel.begin("meta") == torch.device("meta")
    parallel.end()


def test_several_processes_take_no_device_by_its_number_and_no_more_than_there_are(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "99")
    with pytest.raises(ValueError, match="device is cuda:1; several processes take cpu, or cuda"):
        parallel.begin("cuda:1")
    with pytest.raises(ValueError, match="device is mps"):
        parallel.begin("mps")
    with pytest.raises(ValueError, match="start one process a device"):
        parallel.begin("cuda")


def fails_in_the_second():
    if parallel.rank() == 1:
        raise OSError("disk full")
    parallel.barrier()  # and waits for it


def test_a_launch_ends_with_its_first_failure_and_tells_it():
    with pytest.raises(RuntimeError, match=r"process 1 failed(.|\n)*disk full"):
        parallel.launch(fails_in_the_second, 2)


def waits_for_ever():
    time.sleep(600)


def test_a_launch_that_has_no_answer_in_time_is_ended():
    start = time.monotonic()
    with pytest.raises(RuntimeError, match=r"2 of 2 processes have no result after 0\.5 s"):
        parallel.launch(waits_for_ever, 2, patience=0.5)
    assert time.monotonic() - start < 300  # they were not waited for
    assert not multiprocessing.active_children()


JOINED = """
from pathlib import Path
import torch
from sphereface import parallel
device = parallel.begin("cpu")
total = torch.tensor([float(parallel.rank())])
parallel.all_reduce_sum_([total])
rank, line = parallel.rank(), f"{device} {parallel.ranks()} {total.item()}"
parallel.end()
Path(f"line-{rank}").write_text(f"{line}, then {parallel.ranks()}")
"""


def test_torchrun_brings_processes_together(tmp_path):
    (tmp_path / "joined.py").write_text(JOINED)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "joined.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = {path.name: path.read_text() for path in tmp_path.glob("line-*")}
    assert lines == dict.fromkeys(("line-0", "line-1"), "cpu 2 1.0, then 1"), ran.stderr
