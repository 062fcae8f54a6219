"""Updates against numpy, in float32 and in float16 with master weights, one by one and in groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy
import pytest

from mlbench.worker import optimizer as module
from mlbench.worker.job import Job, Optimizer
from mlbench.worker.optimizer import LARS, OPTIMIZERS, SGD

MakeJob = Callable[..., Job]
pytestmark = [pytest.mark.training, pytest.mark.slow]

SHAPES = {
    "conv0_weight": (8, 3, 3, 3),
    "bn0_gamma": (8,),
    "bn0_beta": (8,),
    "stage1_unit1_conv1_weight": (16, 8, 1, 1),
    "stage1_unit1_conv2_weight": (16, 16, 3, 3),
    "stage1_unit1_conv3_weight": (4, 16, 1, 1),
    "fc1_weight": (10, 16),
    "fc1_bias": (10,),
}
RATES = (0.1, 0.3, 0.05)
NUM_SAMPLES = 32


@pytest.fixture
def recipe(make_job: MakeJob) -> Optimizer:
    found = make_job().optimizer
    assert found is not None
    return dataclasses.replace(found, momentum=0.9, weight_decay=0.01, lars_eta=0.02, lars_epsilon=0.0)


class Reference:
    """The same in numpy, float64."""

    def __init__(self, weights: dict[str, Any], recipe: Optimizer) -> None:
        self.weights = {name: value.astype("float64") for name, value in weights.items()}
        self.momenta = {name: numpy.zeros_like(value) for name, value in self.weights.items()}
        self.recipe = recipe

    def step(self, rate: float, gradients: dict[str, Any]) -> None:
        for name, weight in self.weights.items():
            gradient = gradients[name].astype("float64") / NUM_SAMPLES
            decay = self.recipe.weight_decay if name.endswith("weight") else 0.0
            local = rate
            if self.recipe.name == "lars" and name.endswith("weight"):
                norm, slope = numpy.linalg.norm(weight), numpy.linalg.norm(gradient)
                local = rate * self.recipe.lars_eta * norm / (slope + decay * norm + self.recipe.lars_epsilon)
            self.momenta[name] = self.recipe.momentum * self.momenta[name] - local * (gradient + decay * weight)
            self.weights[name] = weight + self.momenta[name]


def draw(seed: int, scale: float) -> dict[str, Any]:
    generator = numpy.random.RandomState(seed)
    return {name: (generator.randn(*shape) * scale).astype("float32") for name, shape in SHAPES.items()}


def arrays_of(mx: Any, values: dict[str, Any], half: bool) -> list[Any]:
    """NDArrays in the dtypes that a network has: batch norm always in float32."""
    return [
        mx.nd.array(value, dtype="float16" if half and "bn" not in name else "float32")
        for name, value in values.items()
    ]


@pytest.mark.parametrize("group_size", [1, 3, 40])
@pytest.mark.parametrize("half", [False, True], ids=["float32", "float16"])
@pytest.mark.parametrize("name", ["sgd", "lars"])
def test_step_three_updates_are_as_in_numpy(
    mx: Any, recipe: Optimizer, monkeypatch: pytest.MonkeyPatch, name: str, half: bool, group_size: int
) -> None:
    monkeypatch.setitem(module._GROUP_SIZE, "cpu", group_size)
    recipe = dataclasses.replace(recipe, name=name)
    start = draw(1, 0.5)
    weights = arrays_of(mx, start, half)
    if half:
        start = {key: array.asnumpy() for key, array in zip(start, weights, strict=True)}
    gradients = arrays_of(mx, draw(0, 0.0), half)
    under_test = OPTIMIZERS[name](mx, list(SHAPES), weights, gradients, recipe, NUM_SAMPLES)
    reference = Reference(start, recipe)
    for number, rate in enumerate(RATES):
        for array, value in zip(gradients, draw(10 + number, 2.0).values(), strict=True):
            array[:] = mx.nd.array(value).astype(array.dtype)
        reference.step(rate, {key: array.asnumpy() for key, array in zip(SHAPES, gradients, strict=True)})
        under_test.step(rate)
    for (key, expected), weight in zip(reference.weights.items(), weights, strict=True):
        tolerance = 2e-3 if weight.dtype == numpy.float16 else 2e-5
        numpy.testing.assert_allclose(weight.asnumpy(), expected, rtol=tolerance, atol=tolerance, err_msg=key)


def test_masters_float16_keep_what_the_weight_rounds_away(mx: Any, recipe: Optimizer) -> None:
    """A step of 1e-5 is lost in float16 beside 1.0 (spacing 1e-3), but a thousand of them must not be."""
    plain = dataclasses.replace(recipe, momentum=0.0, weight_decay=0.0)
    weight = mx.nd.ones((4,), dtype="float16")
    gradient = mx.nd.ones((4,), dtype="float16")
    under_test = SGD(mx, ["fc1_weight"], [weight], [gradient], plain, 1)
    under_test.step(1e-5)
    assert float(weight.asnumpy()[0]) == 1.0
    for _ in range(999):
        under_test.step(1e-5)
    assert float(under_test.families[0].masters[0].asnumpy()[0]) == pytest.approx(0.99, abs=1e-4)
    assert float(weight.asnumpy()[0]) == pytest.approx(0.99, abs=1e-3)


def test_lars_weight_of_zeros_takes_the_plain_rate(mx: Any, recipe: Optimizer) -> None:
    """The ratio of a tensor without a norm would be zero for ever; it trains at the plain rate instead."""
    lars = dataclasses.replace(recipe, name="lars", momentum=0.0, weight_decay=0.0)
    weight, gradient = mx.nd.zeros((4,)), mx.nd.ones((4,))
    LARS(mx, ["fc1_weight"], [weight], [gradient], lars, 1).step(0.1)
    assert weight.asnumpy().tolist() == pytest.approx([-0.1] * 4)


@pytest.mark.parametrize(
    ("name", "expected"), [("conv0_weight", True), ("fc1_weight", True), ("bn0_gamma", False), ("fc1_bias", False)]
)
def test_decays_weights_only(name: str, expected: bool) -> None:
    assert module.decays(name) is expected
