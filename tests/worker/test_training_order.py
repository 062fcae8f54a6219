"""Which rank sees which image: nothing lost, nothing twice, whatever the sizes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlbench.worker.job import Job
from mlbench.worker.pipelines.base import Prefetcher, TrainingOrder, micro_batches, validation_share
from mlbench.worker.ranks import Rank
from mlbench.worker.validate import TrainingJob, check

MakeJob = Callable[..., Job]


def orders(job: TrainingJob) -> list[TrainingOrder]:
    return [TrainingOrder(job, Rank(rank, job.num_ranks, rank)) for rank in range(job.num_ranks)]


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    num_train=st.integers(1, 60),
    num_ranks=st.integers(1, 4),
    batch=st.integers(1, 9),
    accumulation=st.integers(1, 3),
)
def test_batches_any_sizes_every_image_comes_once_an_epoch(
    make_job: MakeJob, num_train: int, num_ranks: int, batch: int, accumulation: int
) -> None:
    job = check(
        make_job(
            num_ranks=num_ranks,
            data__num_train=num_train,
            schedule__batch_per_rank=batch,
            optimizer__gradient_accumulation_steps=accumulation,
        )
    )
    seen: Counter[int] = Counter()
    for epoch in range(1, 5):
        counts = set()
        for order in orders(job):
            batches = [[int(number) for number in numbers] for numbers in order.batches(epoch)]
            assert all(len(numbers) == batch for numbers in batches)
            counts.add(len(batches))
            for numbers in batches:
                seen.update(numbers)
        assert counts == {micro_batches(job, epoch)}  # all ranks take the same number, else an all-reduce would hang
        ahead = sum(seen.values()) - epoch * num_train
        assert 0 <= ahead < num_ranks * batch * accumulation  # what the last step took of the next epochs
        assert set(seen) == set(range(num_train))
        assert min(seen.values()) >= epoch
        assert sum(count - epoch for count in seen.values()) == ahead


def test_batches_same_seed_is_the_same_order_and_epochs_differ(make_job: MakeJob) -> None:
    job = check(make_job())
    first, again = orders(job)[0], orders(job)[0]
    assert [list(numbers) for numbers in first.batches(1)] == [list(numbers) for numbers in again.batches(1)]
    assert list(first.permutation(1)) != list(first.permutation(2))


def test_batches_other_seed_is_another_order(make_job: MakeJob) -> None:
    one, other = (orders(check(make_job(seed=seed)))[0] for seed in (7, 8))
    assert list(one.permutation(1)) != list(other.permutation(1))


def test_batches_seed_above_32_bits_counts_whole(make_job: MakeJob) -> None:
    one, other = (orders(check(make_job(seed=seed)))[0] for seed in (7, 7 + 2**32))
    assert list(one.permutation(1)) != list(other.permutation(1))


def test_stream_is_the_epochs_one_after_the_other(make_job: MakeJob) -> None:
    order = orders(check(make_job(data__num_train=20)))[0]  # 20 images in batches of 8: 3, 2, 3 batches
    taken = [epoch for epoch, _ in zip((epoch for epoch, _ in order.stream()), range(8), strict=False)]
    assert taken == [1, 1, 1, 2, 2, 3, 3, 3]


@pytest.mark.parametrize(("num_val", "size"), [(1157, 2), (50000, 32), (7, 3), (5, 5)])
def test_validation_share_covers_all_without_overlap(num_val: int, size: int) -> None:
    shares = [list(validation_share(num_val, Rank(rank, size, 0))) for rank in range(size)]
    assert [number for share in shares for number in share] == list(range(num_val))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_prefetcher_gives_everything_in_order() -> None:
    assert list(Prefetcher(lambda: iter(range(100)), 3)) == list(range(100))


def test_prefetcher_error_in_the_thread_is_raised_to_the_reader() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("record 7 is broken")

    ahead = iter(Prefetcher(broken, 3))
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="record 7 is broken"):
        next(ahead)


def test_prefetcher_close_in_the_middle_ends_the_thread() -> None:
    def endless() -> Iterator[int]:
        while True:
            yield 1

    before = threading.active_count()
    ahead = Prefetcher(endless, 2)
    assert next(iter(ahead)) == 1
    ahead.close()
    assert threading.active_count() == before
