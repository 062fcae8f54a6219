"""Loss, accumulation, warm-up and counting of the training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

from mlbench.worker import step
from mlbench.worker.job import Job
from mlbench.worker.pipelines.base import Batch
from mlbench.worker.ranks import Alone, Rank
from mlbench.worker.step import Learner, Pace, smoothed_loss
from mlbench.worker.validate import check

MakeJob = Callable[..., Job]
pytestmark = [pytest.mark.training, pytest.mark.slow]


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_smoothed_loss_is_cross_entropy_against_the_smoothed_target(mx: Any, smoothing: float) -> None:
    generator = numpy.random.RandomState(3)
    scores, labels = generator.randn(6, 5).astype("float32"), numpy.array([0, 4, 2, 2, 1, 3])
    log_p = scores - numpy.log(numpy.exp(scores).sum(axis=1, keepdims=True))
    target = numpy.eye(5)[labels] * (1 - smoothing) + smoothing / 5
    expected = -(target * log_p).sum(axis=1)
    loss = smoothed_loss(mx, smoothing, 5)
    loss.hybridize()
    found = loss(mx.nd.array(scores), mx.nd.array(labels)).asnumpy()
    numpy.testing.assert_allclose(found, expected, rtol=1e-5)


def test_smoothed_loss_gradient_is_probability_minus_target(mx: Any) -> None:
    scores, labels = mx.nd.array([[1.0, 2.0, 0.5]]), mx.nd.array([1])
    scores.attach_grad()
    with mx.autograd.record():
        loss = smoothed_loss(mx, 0.1, 3)(scores, labels)
    loss.backward()
    e = numpy.exp([1.0, 2.0, 0.5])
    expected = e / e.sum() - numpy.array([0.1 / 3, 0.9 + 0.1 / 3, 0.1 / 3])
    numpy.testing.assert_allclose(scores.grad.asnumpy()[0], expected, rtol=1e-5)


def small_net(mx: Any, _model: Any, _device: str) -> Any:
    """No batch norm: with it, a batch in two halves is not the batch."""
    nn = mx.gluon.nn
    net = nn.HybridSequential(prefix="")
    with net.name_scope():
        net.add(nn.Conv2D(4, 3, strides=2, activation="relu", prefix="conv0_"), nn.Dense(2, prefix="fc1_"))
    return net


def random_batch(mx: Any, seed: int, size: int) -> Batch:
    generator = numpy.random.RandomState(seed)
    images = generator.randn(size, 3, 32, 32).astype("float32")
    return Batch(mx.nd.array(images), mx.nd.array(generator.randint(0, 2, size)), size)


def weights_of(learner: Learner) -> list[Any]:
    return [parameter.data().asnumpy() for parameter in learner.parameters]


def alone() -> Alone:
    return Alone(Rank(0, 1, 0))


@pytest.mark.parametrize("optimizer", ["sgd", "lars"])
def test_train_accumulation_of_four_is_one_batch_four_times_as_large(
    mx: Any, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, optimizer: str
) -> None:
    monkeypatch.setattr(step, "build", small_net)
    whole = Learner(check(make_job(schedule__batch_per_rank=16, optimizer__name=optimizer)), alone())
    parts = Learner(
        check(
            make_job(schedule__batch_per_rank=4, optimizer__gradient_accumulation_steps=4, optimizer__name=optimizer)
        ),
        alone(),
    )
    for number in range(3):
        batch = random_batch(mx, number, 16)
        whole.train([batch])
        quarters = [
            Batch(batch.images[at : at + 4].copy(), batch.labels[at : at + 4].copy(), 4) for at in range(0, 16, 4)
        ]
        parts.train(quarters)
    for one, other in zip(weights_of(whole), weights_of(parts), strict=True):
        numpy.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_learner_warm_up_leaves_weights_and_statistics_as_initialised(mx: Any, make_job: MakeJob) -> None:
    learner = Learner(check(make_job()), alone())
    parameters = learner.net.collect_params()
    means = [p.data().asnumpy() for name, p in parameters.items() if name.endswith("running_mean")]
    variances = [p.data().asnumpy() for name, p in parameters.items() if name.endswith("running_var")]
    assert len(means) == len(variances) == 53
    assert all((mean == 0).all() for mean in means)
    assert all((variance == 1).all() for variance in variances)


def test_learner_same_seed_is_the_same_start_other_seed_another(make_job: MakeJob) -> None:
    first, again, other = (weights_of(Learner(check(make_job(seed=seed)), alone()))[0] for seed in (7, 7, 8))
    assert (first == again).all()
    assert (first != other).any()


def test_count_correct_padding_is_never_counted(mx: Any, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "build", small_net)
    learner = Learner(check(make_job()), alone())
    images = random_batch(mx, 1, 8).images
    best = learner.net(images).asnumpy().argmax(axis=1)
    labels = best.copy()
    labels[2] = 1 - labels[2]
    assert learner.count_correct(Batch(images, mx.nd.array(labels), 8)) == 7
    assert learner.count_correct(Batch(images, mx.nd.array(labels), 5)) == 4
    assert learner.count_correct(Batch(images, mx.nd.array(labels), 2)) == 2


def test_pace_waits_for_the_step_two_before(mx: Any) -> None:
    waited = []

    class Loss:
        def __init__(self, number: int) -> None:
            self.number = number

        def wait_to_read(self) -> None:
            waited.append(self.number)

    pace = Pace()
    for number in range(5):
        pace.after(Loss(number))
    assert waited == [0, 1, 2]
    assert pace.num_pending == 2
