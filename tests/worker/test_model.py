"""ResNet-50 v1.5: its size, its names, its strides, in both layouts and dtypes."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import mlperf_logging.compliance_checker as checker
import pytest

from mlbench.worker.job import Job, JobError, Model
from mlbench.worker.model import build, initialise, least_px, tensor_names, trainable

MakeJob = Callable[..., Job]
pytestmark = [pytest.mark.training, pytest.mark.slow]
RULES = Path(checker.__file__).parent


@pytest.fixture
def settings(make_job: MakeJob) -> Model:
    found = make_job(model__num_classes=1000).model
    assert found is not None
    return found


def sizes(net: Any) -> dict[str, int]:
    found = {}
    for parameter in trainable(net):
        size = 1
        for length in parameter.shape:
            size *= length
        found[parameter.name] = size
    return found


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_build_resnet50_has_25557032_parameters_in_161_tensors(mx: Any, settings: Model, layout: str) -> None:
    found = sizes(build(mx, dataclasses.replace(settings, layout=layout), "cpu"))
    assert len(found) == 161  # facts.md: "25,557,032 trainable parameters in 161 tensors"
    assert sum(found.values()) == 25557032


@pytest.mark.parametrize("ruleset", ["1.1.0", "2.0.0", "2.1.0"])
def test_build_tensor_names_are_those_of_the_rule_file(mx: Any, settings: Model, ruleset: str) -> None:
    text = (RULES / f"training_{ruleset}" / "closed_resnet.yaml").read_text()
    wanted = re.findall(r'^\s+"(\w+)",$', text, flags=re.MULTILINE)
    assert len(wanted) == 161
    assert sorted(sizes(build(mx, settings, "cpu"))) == sorted(wanted)
    assert sorted(tensor_names()) == sorted(wanted)


def test_build_resnet50_is_v1_5_stride_two_in_the_3x3(mx: Any, settings: Model) -> None:
    net = build(mx, settings, "cpu")
    strides = {unit.name: (unit.conv1._kwargs["stride"], unit.conv2._kwargs["stride"]) for unit in net.stages}
    assert strides["stage1_unit1"] == ((1, 1), (1, 1))
    assert [strides[f"stage{stage}_unit1"] for stage in (2, 3, 4)] == [((1, 1), (2, 2))] * 3
    assert all(value == ((1, 1), (1, 1)) for name, value in strides.items() if not name.endswith("unit1"))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_build_shapes_at_224_px_are_those_of_the_paper(mx: Any, settings: Model, layout: str) -> None:
    """Symbol inference runs without a kernel, so NHWC can be looked at on a CPU too. He et al. (2015), table 1."""
    net = build(mx, dataclasses.replace(settings, layout=layout), "cpu")
    data = mx.sym.Variable("data")
    shape = (4, 3, 224, 224) if layout == "NCHW" else (4, 224, 224, 3)
    inside = net(data).get_internals()
    _, outputs, _ = inside.infer_shape(data=shape)
    by_name = dict(zip(inside.list_outputs(), outputs, strict=True))
    for stage, unit, channels, side in ((1, 3, 256, 56), (2, 4, 512, 28), (3, 6, 1024, 14), (4, 3, 2048, 7)):
        wanted = (4, channels, side, side) if layout == "NCHW" else (4, side, side, channels)
        assert by_name[f"stage{stage}_unit{unit}_bn3_fwd_output"] == wanted
    assert outputs[-1] == (4, 1000)


def test_initialise_last_gamma_is_zero_and_the_others_one(mx: Any, settings: Model) -> None:
    net = build(mx, settings, "cpu")
    initialise(mx, net, settings, mx.cpu())
    for parameter in trainable(net):
        if parameter.name.endswith("gamma"):
            expected = 0.0 if parameter.name.endswith("bn3_gamma") else 1.0
            assert float(parameter.data().asnumpy().min()) == float(parameter.data().asnumpy().max()) == expected


def test_initialise_zero_gamma_off_is_one_everywhere(mx: Any, settings: Model) -> None:
    other = dataclasses.replace(settings, zero_init_last_gamma=False)
    net = build(mx, other, "cpu")
    initialise(mx, net, other, mx.cpu())
    assert all(float(p.data().asnumpy().min()) == 1.0 for p in trainable(net) if p.name.endswith("gamma"))


def test_initialise_float16_keeps_batch_norm_in_float32(mx: Any, settings: Model) -> None:
    half = dataclasses.replace(settings, dtype="float16", layout="NHWC")
    net = build(mx, half, "gpu")
    initialise(mx, net, half, mx.cpu())
    for parameter in net.collect_params().values():
        normalising = "bn" in parameter.name
        assert parameter.data().dtype.__name__ == ("float32" if normalising else "float16"), parameter.name


@pytest.mark.parametrize("name", ["resnet50_v1", "vgg16", "alexnet", "mobilenet1.0"])
def test_build_zoo_model_by_name_has_the_classes_asked_for(mx: Any, settings: Model, name: str) -> None:
    net = build(mx, dataclasses.replace(settings, name=name, num_classes=10), "cpu")
    net.initialize()
    assert net(mx.nd.zeros((1, 3, 224, 224))).shape == (1, 10)


def test_build_zoo_resnet50_is_another_model(mx: Any, settings: Model) -> None:
    net = build(mx, dataclasses.replace(settings, name="resnet50_v1"), "cpu")
    net.initialize()
    net(mx.nd.zeros((1, 3, 32, 32)))
    assert sum(sizes(net).values()) == 25575912  # facts.md


@pytest.mark.parametrize("name", ["resnet18_v1", "vgg16", "alexnet", "squeezenet1.0", "squeezenet1.1", "densenet121",
                                  "inceptionv3", "mobilenet0.25", "mobilenetv2_0.25"])  # fmt: skip
def test_least_px_is_taken_by_mxnet_and_one_less_is_not(mx: Any, settings: Model, name: str) -> None:
    network = build(mx, dataclasses.replace(settings, name=name, num_classes=10), "cpu")(mx.sym.var("data"))

    def fits(px: int) -> bool:
        try:
            return network.infer_shape(data=(1, 3, px, px))[1] == [(1, 10)]
        except mx.base.MXNetError:
            return False

    assert fits(least_px(name))
    assert least_px(name) == 1 or not fits(least_px(name) - 1)


def test_build_unknown_name_is_refused(mx: Any, settings: Model) -> None:
    with pytest.raises(JobError, match="unknown model 'resnet51'"):
        build(mx, dataclasses.replace(settings, name="resnet51"), "cpu")


def operators(mx: Any, net: Any, names: Iterable[str]) -> dict[str, int]:
    nodes = json.loads(net(mx.sym.Variable("data")).tojson())["nodes"]
    return {name: sum(1 for node in nodes if node["op"] == name) for name in names}


def gradients_of(mx: Any, net: Any, images: Any) -> dict[str, Any]:
    """Gradients of the sum of squared scores, by parameter, with all parameters drawn from one seed."""
    mx.random.seed(5)
    net.initialize(mx.initializer.Normal(0.05))
    net.hybridize(static_alloc=True, static_shape=True)
    with mx.autograd.record():
        loss = (net(images) ** 2).mean()
    loss.backward()
    found = {parameter.name: parameter.grad().asnumpy() for parameter in trainable(net)}
    return found | {"scores": net(images).asnumpy()}


def test_build_for_a_cpu_joins_norm_and_relu_and_computes_the_same(mx: Any, settings: Model) -> None:
    """What a GPU is given (batch norm, then ReLU) and what a CPU is given (one operator), both run on this CPU."""
    small = dataclasses.replace(settings, num_classes=10, zero_init_last_gamma=False)
    images = mx.nd.random.uniform(-1, 1, shape=(4, 3, 64, 64))
    joined, apart = build(mx, small, "cpu"), build(mx, small, "gpu")
    # Of ResNet-50's 49 ReLUs 33 follow a batch norm and 16 the sum at the end of a unit. The operator `relu` has no
    # place in either: oneDNN does not know it.
    wanted = {"_contrib_BatchNormWithReLU": 33, "Activation": 16, "BatchNorm": 20, "relu": 0}
    assert operators(mx, joined, wanted) == wanted
    wanted = {"_contrib_BatchNormWithReLU": 0, "Activation": 49, "BatchNorm": 53, "relu": 0}
    assert operators(mx, apart, wanted) == wanted
    left, right = gradients_of(mx, joined, images), gradients_of(mx, apart, images)
    assert left.keys() == right.keys()
    for name, ours in left.items():
        scale = float(abs(right[name]).max()) or 1.0
        assert float(abs(ours - right[name]).max()) / scale < 2e-3, name
