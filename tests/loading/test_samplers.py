"""What a batch holds follows from seed and step alone, and keeps the sampler's law."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphereface.loading import PeoplePhotos, Shuffled
from sphereface.loading.samplers import mirrored, shard

small = st.integers(1, 12)
seeds = st.integers(0, 2**64 - 1)


@given(count=st.integers(1, 30), batch=small, seed=seeds)
def test_every_face_comes_once_before_any_comes_again(count, batch, seed):
    sampler = Shuffled(count, batch, seed)
    drawn = np.concatenate([sampler.indices(step) for step in range(3 * math.ceil(count / batch))])
    for epoch in range(len(drawn) // count):
        assert sorted(drawn[epoch * count : (epoch + 1) * count]) == list(range(count))


@given(steps=st.permutations(range(6)), seed=seeds)
def test_a_batch_does_not_depend_on_the_batches_asked_for_before(steps, seed):
    labels = np.repeat(np.arange(5), 4)
    for sampler in (Shuffled(20, 7, seed), PeoplePhotos(labels, people=3, photos=2, seed=seed)):
        in_order = [sampler.indices(step).tolist() for step in range(6)]
        assert [sampler.indices(step).tolist() for step in steps] == [in_order[step] for step in steps]


def test_epochs_and_seeds_have_orders_of_their_own():
    first = Shuffled(1000, 1000, seed=1)
    orders = [first.indices(0), first.indices(1), Shuffled(1000, 1000, seed=2).indices(0)]
    for left, right in ((0, 1), (0, 2), (1, 2)):
        assert abs(np.corrcoef(orders[left], orders[right])[0, 1]) < 0.1


def test_what_a_seed_draws_never_changes():
    """Or a run that began with one version could not resume with the next."""
    assert Shuffled(10, 10, seed=7).indices(3).tolist() == [2, 0, 7, 3, 5, 4, 8, 9, 1, 6]
    labels = np.array([0, 0, 0, 1, 2, 2])
    assert PeoplePhotos(labels, people=2, photos=2, seed=7).indices(5).tolist() == [1, 0, 3, 3]
    assert mirrored(7, 5, 12).astype(int).tolist() == [1, 0, 0, 1, 0, 0, 1, 0, 1, 0, 1, 1]


@st.composite
def labelled(draw):
    """Labels in any order, some of them without a face, and how many people a batch may hold."""
    counts = draw(st.lists(st.integers(0, 6), min_size=1, max_size=8).filter(any))
    labels = draw(st.permutations([label for label, count in enumerate(counts) for _ in range(count)]))
    return np.array(labels, np.int64), draw(st.integers(1, sum(count > 0 for count in counts)))


@given(data=labelled(), photos=st.integers(1, 5), seed=seeds, step=st.integers(0, 10**6))
def test_a_batch_holds_p_people_and_k_photos_of_each(data, photos, seed, step):
    labels, people = data
    chosen = PeoplePhotos(labels, people=people, photos=photos, seed=seed).indices(step)
    rows = labels[chosen].reshape(people, photos)
    assert (rows == rows[:, :1]).all()
    assert len(set(rows[:, 0])) == people
    for row, label in zip(chosen.reshape(people, photos), rows[:, 0], strict=True):
        owned = int((labels == label).sum())
        times = Counter(row.tolist())
        assert len(times) == min(photos, owned)
        assert max(times.values()) == math.ceil(photos / owned)


@given(data=labelled(), seed=seeds, epoch=st.integers(0, 1000))
def test_every_person_comes_before_an_epoch_of_people_ends_and_none_twice_before_its_last_batch(data, seed, epoch):
    labels, people = data
    everyone = set(labels.tolist())
    batches = math.ceil(len(everyone) / people)
    sampler = PeoplePhotos(labels, people=people, photos=1, seed=seed)
    came = [labels[sampler.indices(epoch * batches + step)].tolist() for step in range(batches)]
    before_the_last = [label for batch in came[:-1] for label in batch]
    assert len(set(before_the_last)) == len(before_the_last)
    assert set(before_the_last) | set(came[-1]) == everyone


def test_over_time_every_photo_of_a_person_is_drawn_about_equally_often():
    labels = np.array([0] * 8 + [1] * 2)
    sampler = PeoplePhotos(labels, people=2, photos=2, seed=3)
    times = np.bincount(np.concatenate([sampler.indices(step) for step in range(2000)]), minlength=10)
    assert times[8:].tolist() == [2000, 2000]
    assert abs(times[:8] - 500).max() < 100  # 5 standard deviations


def test_people_with_few_photos_can_be_left_out():
    labels = np.array([0, 1, 1, 2, 2, 2])
    sampler = PeoplePhotos(labels, people=2, photos=2, seed=0, least=2)
    assert {int(label) for step in range(20) for label in labels[sampler.indices(step)]} == {1, 2}
    with pytest.raises(ValueError, match="people is 3, but only 2 have 2 photos or more; ask for fewer"):
        PeoplePhotos(labels, people=3, photos=2, least=2)


@given(ranks=st.integers(1, 5), share=small, seed=seeds, step=st.integers(0, 100))
def test_the_shares_of_all_ranks_are_the_global_batch(ranks, share, seed, step):
    batch = Shuffled(50, ranks * share, seed).indices(step)
    shares = [shard(batch, rank, ranks) for rank in range(ranks)]
    assert {len(part) for part in shares} == {share}
    assert np.concatenate(shares).tolist() == batch.tolist()


def test_a_batch_that_ranks_cannot_share_evenly_is_refused():
    with pytest.raises(ValueError, match="a batch of 10 cannot be shared evenly by 4 ranks"):
        shard(np.arange(10), 0, 4)
    with pytest.raises(ValueError, match="rank is 2 of 2; ranks count from 0"):
        shard(np.arange(10), 2, 2)


def test_about_half_of_the_faces_are_mirrored_at_every_place():
    flips = np.stack([mirrored(5, step, 64) for step in range(400)])
    assert abs(flips.mean() - 0.5) < 0.016  # 5 standard deviations
    assert abs(flips.mean(axis=0) - 0.5).max() < 0.125


def test_mirroring_is_independent_of_the_order():
    """Both come from one seed; were they one stream, the faces drawn first would all be mirrored."""
    batch = 1000
    places = np.argsort(Shuffled(batch, batch, seed=5).indices(0))
    assert abs(np.corrcoef(places, mirrored(5, 0, batch))[0, 1]) < 0.15


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Shuffled(0, 4), "count is 0; wanted at least 1"),
        (lambda: Shuffled(4, 0), "batch is 0; wanted at least 1"),
        (lambda: Shuffled(4, 4, seed=-1), "seed is -1; wanted at least 0"),
        (lambda: PeoplePhotos(np.array([0, 1]), people=2, photos=0), "photos is 0; wanted at least 1"),
    ],
    ids=["count", "batch", "seed", "photos"],
)
def test_settings_that_make_no_batch_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
