"""No seed twice in a run set."""

from __future__ import annotations

from mlbench.runner.seeds import SEED_BITS, fresh_seed, numbered_seed


def test_fresh_seed_is_drawn_again_when_it_was_used() -> None:
    draws = iter([7, 7, 9])
    assert fresh_seed({7}, lambda: next(draws)) == 9


def test_fresh_seeds_fit_31_bits_and_differ() -> None:
    seeds = {fresh_seed(set()) for _ in range(100)}
    assert len(seeds) == 100
    assert all(0 <= seed < 2**SEED_BITS for seed in seeds)


def test_numbered_seeds_start_at_the_given_one_and_never_meet() -> None:
    seeds = [
        numbered_seed(100, index=index, attempt=attempt, warmup=warmup, repeats=5, warmup_runs=2)
        for attempt in range(3)
        for warmup, count in ((False, 5), (True, 2))
        for index in range(count)
    ]
    assert seeds[:5] == [100, 101, 102, 103, 104]
    assert len(set(seeds)) == len(seeds)
