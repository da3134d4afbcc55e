"""The same batches for a seed and a step, however they are loaded, wherever the run was stopped."""

import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch

from sphereface.data.people import PeopleFolder
from sphereface.errors import JobFailed, UnreadableImage
from sphereface.loading import FaceLoader, PeoplePhotos, Shuffled, prepare
from sphereface.loading.samplers import mirrored
from tests.loading.conftest import cut_off, pixels

# torch thinks that two workers are too many for a machine of one core.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

STEPS = 7  # of four faces from a set of nine: twice across the end of an epoch
FORKS = pytest.mark.skipif(sys.platform == "win32", reason="this system cannot fork")


@pytest.fixture
def root(write_faces):
    return write_faces([4, 3, 2])


def shuffled(ready, *, steps=STEPS, **options):
    return FaceLoader(ready, Shuffled(len(ready), 4, seed=3), steps=steps, **options)


def same(batches, others):
    return [batch.step for batch in batches] == [batch.step for batch in others] and all(
        torch.equal(batch.images, other.images) and torch.equal(batch.labels, other.labels)
        for batch, other in zip(batches, others, strict=True)
    )


@pytest.mark.parametrize("mirror", [True, False])
def test_a_batch_is_the_sampled_files_with_some_of_them_mirrored(root, mirror):
    ready, sampler = prepare(PeopleFolder(root)), Shuffled(9, 4, seed=3)
    for batch in shuffled(ready, mirror=mirror):
        chosen = sampler.indices(batch.step)
        flips = mirrored(3, batch.step, 4) & mirror
        for image, index, flip in zip(batch.images, chosen, flips, strict=True):
            expected = pixels(root / ready.images.paths[index])
            assert np.array_equal(image.permute(1, 2, 0), expected[:, ::-1] if flip else expected)
        assert batch.labels.tolist() == ready.labels[chosen].tolist()
    assert batch.step == STEPS - 1


def test_images_are_bytes_in_channels_last_memory(root):
    _, images, labels, *_ = next(iter(shuffled(prepare(PeopleFolder(root)))))
    assert (images.shape, images.dtype) == ((4, 3, 112, 96), torch.uint8)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert (labels.shape, labels.dtype) == ((4,), torch.int64)


@pytest.mark.parametrize(
    ("workers", "start_method"), [(0, "spawn"), pytest.param(2, "fork", marks=FORKS), (2, "spawn")], ids=str
)
def test_a_run_stopped_in_mid_epoch_and_resumed_sees_the_batches_of_an_uninterrupted_one(root, workers, start_method):
    """The first part decodes files, the second takes faces from memory: that makes no difference either."""
    files, memory = prepare(PeopleFolder(root), cache_bytes=0), prepare(PeopleFolder(root))
    uninterrupted = list(shuffled(files))
    options = {"workers": workers, "start_method": start_method}
    first = shuffled(files, **options)
    before = list(itertools.islice(first, 3))  # 12 of 9 faces: workers have loaded further, and that does not count
    state = json.loads(json.dumps(first.state_dict()))
    assert state["step"] == 3
    second = shuffled(memory, **options)
    second.load_state_dict(state)
    assert same(before + list(second), uninterrupted)


def test_iterating_again_goes_on_with_the_next_batch(root):
    ready = prepare(PeopleFolder(root))
    loader = shuffled(ready)
    parts = [list(itertools.islice(loader, 2)), list(loader), list(loader)]
    assert [len(part) for part in parts] == [2, STEPS - 2, 0]
    assert same(parts[0] + parts[1], list(shuffled(ready)))
    assert same(list(shuffled(ready, start=5)), parts[1][3:])


@pytest.mark.parametrize(
    "sampler",
    [Shuffled(9, 6, seed=1), PeoplePhotos(np.array([0, 0, 0, 0, 1, 1, 1, 2, 2]), people=3, photos=2)],
    ids=["shuffled", "people"],
)
def test_what_two_ranks_see_is_the_global_batch(root, sampler):
    ready = prepare(PeopleFolder(root))
    alone = FaceLoader(ready, sampler, steps=4)
    ranks = [FaceLoader(ready, sampler, steps=4, rank=rank, ranks=2) for rank in range(2)]
    for whole, left, right in zip(alone, *ranks, strict=True):
        assert torch.equal(torch.cat([left.images, right.images]), whole.images)
        assert torch.equal(torch.cat([left.labels, right.labels]), whole.labels)
    assert ranks[0].state_dict() == alone.state_dict()  # a run may go on with other ranks


def test_loading_draws_nothing_from_the_global_generators(root):
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    list(shuffled(prepare(PeopleFolder(root))))
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)


def test_other_settings_or_data_cannot_resume_a_run(root):
    ready = prepare(PeopleFolder(root))
    state = shuffled(ready).state_dict()
    with pytest.raises(ValueError, match="batch was 4, is 3; seed was 3, is 2"):
        FaceLoader(ready, Shuffled(9, 3, seed=2), steps=STEPS).load_state_dict(state)
    with pytest.raises(ValueError, match="mirror was True, is False; restore"):
        shuffled(ready, mirror=False).load_state_dict(state)
    with pytest.raises(ValueError, match="sampler was 'Shuffled', is 'PeoplePhotos'"):
        FaceLoader(ready, PeoplePhotos(ready.labels, people=2, photos=2), steps=1).load_state_dict(state)
    (root / "a/0.png").rename(root / "a/9.png")
    with pytest.raises(ValueError, match="fingerprint was"):
        shuffled(prepare(PeopleFolder(root))).load_state_dict(state)


def test_a_file_that_breaks_during_a_run_ends_it_with_its_name(root):
    ready = prepare(PeopleFolder(root), cache_bytes=0)
    cut_off(root / "b/1.png")
    with pytest.raises(UnreadableImage, match=r"^b/1\.png: .*cut off.*it was readable when the run began"):
        list(shuffled(ready))


@FORKS
def test_an_error_from_a_worker_is_one_line_too(root):
    ready = prepare(PeopleFolder(root), cache_bytes=0)
    (root / "b/1.png").unlink()
    with pytest.raises(UnreadableImage) as error:
        list(shuffled(ready, workers=1, start_method="fork"))
    assert str(error.value).startswith("b/1.png: cannot be read (No such file or directory); ")
    assert "\n" not in str(error.value)


def test_where_images_may_be_skipped_the_next_readable_face_of_the_batch_takes_the_place(root):
    whole = list(shuffled(prepare(PeopleFolder(root)), mirror=False))
    ready = prepare(PeopleFolder(root), missing="skip", cache_bytes=0)
    for path in ("a/1.png", "c/0.png", "c/1.png"):
        cut_off(root / path)
    loader = shuffled(ready, mirror=False)
    broken, places = {1, 7, 8}, 0
    for batch, before in zip(loader, whole, strict=True):
        chosen = Shuffled(9, 4, seed=3).indices(batch.step).tolist()
        for place, index in enumerate(chosen):
            turn = next(turn for turn in range(4) if chosen[(place + turn) % 4] not in broken)
            assert torch.equal(batch.images[place], before.images[(place + turn) % 4])
            assert batch.labels[place] == before.labels[(place + turn) % 4]
            places += index in broken
    assert loader.replaced == places > 0
    assert sorted(loader.broken_later) == ["a/1.png", "c/0.png", "c/1.png"]
    assert "cut off" in loader.broken_later["a/1.png"]


def test_a_batch_with_nothing_readable_left_ends_the_run(root):
    ready = prepare(PeopleFolder(root), missing="skip", cache_bytes=0)
    for path in root.rglob("*.png"):
        path.unlink()
    with pytest.raises(UnreadableImage, match="all 4 faces of step 0"):
        list(shuffled(ready))


def children_end(seconds=10):
    end = time.monotonic() + seconds
    while multiprocessing.active_children() and time.monotonic() < end:
        time.sleep(0.02)
    return not multiprocessing.active_children()


@FORKS
def test_an_abandoned_iteration_ends_its_workers(root):
    ready = prepare(PeopleFolder(root))
    for _ in shuffled(ready, workers=2, start_method="fork"):
        assert len(multiprocessing.active_children()) == 2
        break
    assert children_end()


@FORKS
@pytest.mark.parametrize("_", range(3))
def test_a_killed_worker_is_an_error_and_not_a_wait(root, _):
    batches = iter(shuffled(prepare(PeopleFolder(root)), steps=10**6, workers=2, start_method="fork"))
    next(batches)
    os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
    with pytest.raises(JobFailed, match=r"a process that loads faces ended .* fewer workers, and resume"):
        for _ in batches:
            pass
    assert children_end()


@FORKS
def test_a_program_that_ends_in_mid_iteration_leaves_in_silence(root):
    code = f"""
        from sphereface.data.people import PeopleFolder
        from sphereface.loading import FaceLoader, Shuffled, prepare
        ready = prepare(PeopleFolder({str(root)!r}))
        batches = iter(FaceLoader(ready, Shuffled(9, 4), steps=1000, workers=1, start_method="fork"))
        print(next(batches).step)
    """
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "0\n", "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0, "ranks": 3}, "a batch of 4 cannot be shared evenly by 3 ranks"),
        ({"start": -1}, "start is -1"),
        ({"workers": -2}, "workers is -2"),
        ({"start_method": "thread"}, "start_method is 'thread'"),
    ],
    ids=["ranks", "start", "workers", "start_method"],
)
def test_options_that_make_no_loader_are_refused_at_once(root, options, message):
    with pytest.raises(ValueError, match=message):
        shuffled(prepare(PeopleFolder(root)), **options)


def test_a_sampler_of_another_size_is_refused(root):
    with pytest.raises(ValueError, match="draws from 8 faces; wanted the 9 that are ready"):
        FaceLoader(prepare(PeopleFolder(root)), Shuffled(8, 4), steps=1)


def test_a_device_that_is_not_there_is_refused(root):
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no CUDA device"):
            shuffled(prepare(PeopleFolder(root)), device="cuda")
