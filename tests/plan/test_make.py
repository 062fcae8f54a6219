"""The whole plan: what is derived from the configuration, and the jobs made of it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mlbench.collect.runfolder import RunFolder
from mlbench.compose import compose, from_resolved, to_yaml
from mlbench.plan.estimate import expected_rate, time_estimate_s
from mlbench.plan.jobs import allreduce_job_for, job_for
from mlbench.plan.machine import Machine
from mlbench.plan.make import make_plan
from mlbench.plan.types import Plan
from mlbench.worker.job import dump, from_dict

Planned = Callable[..., Plan]


def test_make_plan_local_shares_the_cores_and_names_the_machine(planned: Planned) -> None:
    plan = planned()

    assert (plan.system_name, plan.platform) == ("Lab Box", "1xLab Box")
    assert plan.threads_per_rank == 2  # 4 CPUs, 2 ranks
    assert plan.environment == {
        "OMP_NUM_THREADS": "2",
        "GOMP_SPINCOUNT": "1000",
        "HOROVOD_CYCLE_TIME": "5",
        "HOROVOD_FUSION_THRESHOLD": "8388608",
    }
    assert plan.global_batch_size == 32
    assert (plan.optimizer.warmup_steps, plan.optimizer.decay_steps) == (20, 10 * 20)


def test_make_plan_more_ranks_than_cpus_still_has_a_thread_each(planned: Planned) -> None:
    assert planned("gpus=9").threads_per_rank == 1


def test_make_plan_of_four_dgx_a100(planned: Planned) -> None:
    plan = planned("+hardware=[dgxa100,f800]", "gpus=32")

    assert (plan.platform, plan.num_accelerators) == ("4xNVIDIA DGX A100", 32)
    assert (plan.schedule.batch_per_rank, plan.global_batch_size) == (102, 3264)
    assert (plan.model.dtype, plan.model.layout) == ("float16", "NHWC")
    assert plan.threads_per_rank == 16  # 128 cores, 8 ranks
    assert plan.environment["NCCL_SOCKET_IFNAME"] == "ib0"
    # The profile's own, not what is best on a CPU.
    assert plan.environment["HOROVOD_CYCLE_TIME"] == "0.1"
    assert "GOMP_SPINCOUNT" not in plan.environment
    # 1,281,167 images / 3264 = 392.5: 393 steps an epoch, 5 of them warm-up, 42 planned.
    assert (plan.optimizer.warmup_steps, plan.optimizer.decay_steps) == (1965, 16506)


def test_make_plan_storage_need_is_rate_times_mean_image(planned: Planned) -> None:
    plan = planned("+hardware=dgxa100", "gpus=32")

    # White paper H18597, figure 5: 78,454 images/s over 32 GPUs, 2452 each; mean image 115 KB.
    assert plan.data.storage_need_bytes_per_s == pytest.approx(2452 * 32 * 115_000)
    assert plan.data.storage_need_basis is not None
    assert "78,454 images/s" in plan.data.storage_need_basis


def test_make_plan_unknown_model_has_no_estimate_rather_than_a_guess(planned: Planned) -> None:
    plan = planned("+hardware=dgxa100", "benchmark=resnet50_throughput", "benchmark.model=vgg16")

    assert plan.data.storage_need_bytes_per_s is None
    assert plan.time_estimate_s is None


def test_make_plan_gpu_recipe_on_a_cpu_says_what_it_changed(planned: Planned) -> None:
    plan = planned("data=imagenet")

    assert (plan.model.dtype, plan.model.layout) == ("float32", "NCHW")
    assert any("on a CPU the model is float32 NCHW" in note for note in plan.notes)


def test_make_plan_throughput_has_batches_and_no_distortions(planned: Planned) -> None:
    plan = planned("benchmark=resnet50_throughput", "data=imagenet", "benchmark.num_batches=500")

    assert plan.schedule.num_batches == 500
    assert not plan.data.worker.augmentation.random_resized_crop
    assert not plan.data.worker.augmentation.mirror


def test_make_plan_training_measures_no_batches(planned: Planned) -> None:
    assert (planned().schedule.num_batches, planned().schedule.num_warmup_batches) == (0, 0)


def test_make_plan_paths_are_absolute_in_two_folders(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        plan = make_plan(compose(["data.path=./d"]), machine)
        stored = from_resolved(to_yaml(plan.config))
        assert plan.data.path_given == "./d"
        assert stored.data.path == plan.data.path
        paths.append(plan.data.path)

    assert paths == [str(tmp_path / "one" / "d"), str(tmp_path / "two" / "d")]  # case P44


def test_make_plan_stored_configuration_plans_the_same_elsewhere(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = make_plan(compose(["launcher=mpirun", "hosts=[a:2]"]), machine)
    monkeypatch.chdir("/")

    second = make_plan(from_resolved(to_yaml(first.config)), machine)

    assert dataclasses.replace(second, data=first.data) == first
    assert second.data.worker == first.data.worker


def test_make_plan_home_moves_the_runs_folder(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLBENCH_HOME", str(tmp_path / "home"))

    assert make_plan(compose(), machine).runs_dir == tmp_path / "home" / "runs"
    assert make_plan(compose(["runs_dir=/srv/r"]), machine).runs_dir == Path("/srv/r")


def test_make_plan_leaves_the_configuration_as_it_was(machine: Machine) -> None:
    config = compose(["data.path=./d"])

    make_plan(config, machine)

    assert config == compose(["data.path=./d"])


def test_make_plan_shards_are_named_in_order(planned: Planned, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for number in (1, 0):
        (tmp_path / "d" / f"train-{number}.rec").write_bytes(b"x")

    worker = planned("data.path=./d", "data.train_rec=['train-*.rec']").data.worker

    assert [Path(path).name for path in worker.train_rec] == ["train-0.rec", "train-1.rec"]
    assert [Path(path).name for path in worker.train_idx] == ["train-0.idx", "train-1.idx"]


def test_make_plan_mean_image_comes_from_the_files_when_they_are_here(planned: Planned, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "train.rec").write_bytes(b"x" * 6400)

    assert planned("data.path=./d").data.mean_image_bytes == 10  # 6400 bytes, 640 images


def test_job_for_is_accepted_by_the_worker(planned: Planned, tmp_path: Path) -> None:
    plan = planned("submission.org=LabX")
    folder = RunFolder(tmp_path / "runs" / "r1").attempt(2, 1)

    job = job_for(plan, folder=folder, seed=7, cache_clear=True, job_id="r1.run_2.1")

    assert from_dict(json.loads(dump(job))) == job
    assert (job.kind, job.seed, job.num_ranks, job.cache_clear) == ("train", 7, 2, True)
    assert job.submission is not None
    assert (job.submission.benchmark, job.submission.org) == ("resnet", "LabX")
    assert job.files.mllog == str(folder.mllog)


def test_job_for_another_model_never_claims_the_name_of_mlperf(planned: Planned, tmp_path: Path) -> None:
    plan = planned("benchmark.model=resnet50_v1")

    job = job_for(plan, folder=RunFolder(tmp_path).attempt(0, 1), seed=1, cache_clear=False, job_id="x")

    assert job.submission is not None
    assert job.submission.benchmark == "resnet50_v1"
    assert plan.config.benchmark.mlperf_name is None


def test_allreduce_job_for_is_accepted_by_the_worker(planned: Planned, tmp_path: Path) -> None:
    job = allreduce_job_for(planned(), folder=tmp_path, backend="mpi", job_id="x")

    assert from_dict(json.loads(dump(job))) == job
    assert job.allreduce is not None
    assert (job.kind, job.allreduce.backend, job.allreduce.max_bytes) == ("allreduce", "mpi", 64 * 1024 * 1024)


def test_time_estimate_stages_alone_need_no_rate() -> None:
    config = compose(["benchmark=storage"])

    # Sequential, random, training cold, training warm: docs/howto/measure.md.
    assert time_estimate_s(config, None, 32) == 4 * config.benchmark.storage.runtime_s


def test_expected_rate_of_the_local_cpu_is_the_measured_one() -> None:
    rate = expected_rate(compose(), 2, 2)

    assert rate is not None
    assert 50 <= rate.samples_per_s <= 61  # two ranks, one thread each, measured on a 2-core Xeon


@pytest.mark.slow
def test_make_plan_of_4096_gpus_takes_less_than_a_second(planned: Planned) -> None:
    import time

    start = time.process_time()
    planned("+hardware=dgxa100", "gpus=4096")

    assert time.process_time() - start < 1
