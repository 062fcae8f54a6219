"""The models: our ResNet-50 v1.5, and those of MXNet's zoo by name.

ResNet-50 v1.5 is the MLPerf model: stride 2 stands in the 3x3 convolution of a block that shrinks the image, no
convolution has a bias. With 1,000 classes it has 25,557,032 trainable numbers in 161 tensors, named as MXNet's symbolic
ResNet names them; the compliance rules ask for these names (`weights_initialization`).
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from .job import JobError, Model

RESNET50 = "resnet50"
_STAGES: Tuple[Tuple[int, int], ...] = ((3, 256), (4, 512), (6, 1024), (3, 2048))
"""(units, output channels) of each stage; a unit works on a quarter of its output channels inside."""


def zoo_names() -> Tuple[str, ...]:
    """Models of MXNet's zoo that can be trained here; `resnet50_v1` is the zoo's, `resnet50` is ours."""
    depths = ("18", "34", "50", "101", "152")
    names = ["resnet%s_v%d" % (depth, version) for version in (1, 2) for depth in depths]
    names += ["vgg%s%s" % (depth, norm) for depth in ("11", "13", "16", "19") for norm in ("", "_bn")]
    names += ["alexnet", "inceptionv3", "densenet121", "densenet161", "densenet169", "densenet201"]
    names += ["squeezenet1.0", "squeezenet1.1", "mobilenet1.0", "mobilenet0.75", "mobilenet0.5", "mobilenet0.25"]
    names += ["mobilenetv2_1.0", "mobilenetv2_0.75", "mobilenetv2_0.5", "mobilenetv2_0.25"]
    return tuple(names)


_LEAST_PX = (
    ("vgg", 32),
    ("alexnet", 63),
    ("squeezenet1.1", 209),
    ("squeezenet1.0", 213),
    ("densenet", 221),
    ("inceptionv3", 299),
)
"""Beginning of a model's name and the least side, pixels, whose image its last pooling still covers; others take any.
A test asks MXNet for each."""


def least_px(name: str) -> int:
    """Least side of the images that a model takes, pixels."""
    return next((px for head, px in _LEAST_PX if name.startswith(head)), 1)


def tensor_names() -> List[str]:
    """Names of ResNet-50's 161 trainable tensors."""
    names = ["conv0_weight", "bn0_gamma", "bn0_beta"]
    for stage, (num_units, _) in enumerate(_STAGES, 1):
        for unit in range(1, num_units + 1):
            head = "stage%d_unit%d_" % (stage, unit)
            parts = ["1", "2", "3"] + (["sc"] if unit == 1 else [])
            for part in parts:
                convolution = "conv1sc" if part == "sc" else "conv" + part
                names += [head + convolution + "_weight", head + "bn%s_gamma" % part, head + "bn%s_beta" % part]
    return names + ["fc1_weight", "fc1_bias"]


def build(mx: Any, model: Model, device: str) -> Any:
    """The network as a hybridizable Gluon block for `cpu` or `gpu`, parameters not yet initialised. Raises JobError."""
    if model.name == RESNET50:
        return _resnet50(mx, model, _norm_relu(mx, model, device))
    if model.layout != "NCHW":
        raise JobError(
            "job.model.layout: MXNet's zoo models are NCHW only, found %r for %r" % (model.layout, model.name)
        )
    if model.name not in zoo_names():
        raise JobError("job.model.name: unknown model %r" % model.name)
    return mx.gluon.model_zoo.vision.get_model(model.name, classes=model.num_classes)


def _norm_relu(mx: Any, model: Model, device: str) -> Any:
    """The class of a batch norm whose output passes through ReLU.

    oneDNN does both in one pass over memory, forward and backward. Elsewhere ReLU is the operator `Activation`: before
    the operator `relu`, which oneDNN does not know, its blocked memory layout is undone on a CPU, and made again after
    it. That took a fifth of a step.
    """
    has_onednn = mx.runtime.Features().is_enabled("MKLDNN")
    if device == "cpu" and model.layout == "NCHW" and has_onednn and hasattr(mx.gluon.nn, "BatchNormReLU"):
        return mx.gluon.nn.BatchNormReLU

    class BatchNormThenReLU(mx.gluon.nn.BatchNorm):
        def hybrid_forward(self, F: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
            return F.Activation(super().hybrid_forward(F, x, *args, **kwargs), act_type="relu")

    return BatchNormThenReLU


def _resnet50(mx: Any, model: Model, norm_relu: Any) -> Any:
    nn = mx.gluon.nn
    bn_axis = 3 if model.layout == "NHWC" else 1
    norm: Dict[str, Any] = {
        "axis": bn_axis,
        "momentum": model.batch_norm_momentum,
        "epsilon": model.batch_norm_epsilon,
    }

    def convolution(channels: int, inputs: int, kernel: int, stride: int, prefix: str) -> Any:
        return nn.Conv2D(
            channels,
            kernel,
            strides=stride,
            padding=kernel // 2,
            use_bias=False,
            in_channels=inputs,
            layout=model.layout,
            prefix=prefix,
        )

    class Unit(mx.gluon.HybridBlock):
        """1x1, 3x3, 1x1 convolutions beside a shortcut."""

        def __init__(self, inputs: int, outputs: int, stride: int, prefix: str) -> None:
            super().__init__(prefix=prefix)
            inner = outputs // 4
            last_gamma = "zeros" if model.zero_init_last_gamma else "ones"
            with self.name_scope():
                self.conv1 = convolution(inner, inputs, 1, 1, "conv1_")
                self.bn1 = norm_relu(in_channels=inner, prefix="bn1_", **norm)
                self.conv2 = convolution(inner, inner, 3, stride, "conv2_")
                self.bn2 = norm_relu(in_channels=inner, prefix="bn2_", **norm)
                self.conv3 = convolution(outputs, inner, 1, 1, "conv3_")
                self.bn3 = nn.BatchNorm(in_channels=outputs, prefix="bn3_", gamma_initializer=last_gamma, **norm)
                self.has_projection = inputs != outputs
                if self.has_projection:
                    self.conv1sc = convolution(outputs, inputs, 1, stride, "conv1sc_")
                    self.bnsc = nn.BatchNorm(in_channels=outputs, prefix="bnsc_", **norm)

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            body = self.bn1(self.conv1(x))
            body = self.bn2(self.conv2(body))
            body = self.bn3(self.conv3(body))
            shortcut = self.bnsc(self.conv1sc(x)) if self.has_projection else x
            return F.Activation(body + shortcut, act_type="relu")

    class ResNet50(mx.gluon.HybridBlock):
        """Images (batch, 3, px, px), or (batch, px, px, 3), to scores (batch, num_classes)."""

        def __init__(self) -> None:
            super().__init__(prefix="")
            with self.name_scope():
                self.conv0 = convolution(64, 3, 7, 2, "conv0_")
                self.bn0 = norm_relu(in_channels=64, prefix="bn0_", **norm)
                self.pool0 = nn.MaxPool2D(3, 2, 1, layout=model.layout, prefix="pool0_")
                self.stages = nn.HybridSequential(prefix="")
                inputs = 64
                for stage, (num_units, outputs) in enumerate(_STAGES, 1):
                    for unit in range(1, num_units + 1):
                        stride = 2 if unit == 1 and stage > 1 else 1
                        self.stages.add(Unit(inputs, outputs, stride, "stage%d_unit%d_" % (stage, unit)))
                        inputs = outputs
                self.pool1 = nn.GlobalAvgPool2D(layout=model.layout, prefix="pool1_")
                self.fc1 = nn.Dense(model.num_classes, in_units=inputs, prefix="fc1_")

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            x = self.pool0(self.bn0(self.conv0(x)))
            return self.fc1(self.pool1(self.stages(x)))

    return ResNet50()


def initialise(mx: Any, net: Any, model: Model, context: Any) -> None:
    """Random weights on `context`, in the job's dtype; batch-norm statistics and scales stay in float32."""
    kaiming = mx.initializer.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2)
    net.initialize(init=kaiming, ctx=context)
    if model.dtype != "float32":
        net.cast(model.dtype)


def trainable(net: Any) -> List[Any]:
    """The parameters that have a gradient, in the order of the forward pass."""
    return [parameter for parameter in net.collect_params().values() if parameter.grad_req != "null"]
