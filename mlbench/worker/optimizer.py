"""SGD with momentum, and LARS, on MXNet's fused update operators.

For weight w, gradient g, momentum buffer m, learning rate r and weight decay d, as in MXNet and in MLPerf's reference:

    m = momentum * m - r * (g + d * w);  w = w + m

Weight decay acts on convolution and fully connected weights; batch-norm scales and all biases have none. LARS
multiplies the rate of exactly these weights by eta * |w| / (|g| + d * |w| + epsilon). A float16 weight has a float32
master copy: that is updated, and the weight is its rounding.

Source of LARS: You et al., Large Batch Training of Convolutional Networks (2017), as MLPerf's reference applies it.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Sequence, Type

from .job import Optimizer

_GROUP_SIZE = {"cpu": 1, "gpu": 40}
"""Tensors an update operator takes at once. On a GPU one kernel for many small tensors saves launches; MXNet's CPU
kernel walks through all tensors for each element: 125 against 36 ms for ResNet-50's size."""
_CPU_GROUP_SIZE_OF_LARS = 4
"""LARS' rates are computed on the device, which only the operators for groups can take."""


def decays(name: str) -> bool:
    """Whether weight decay and LARS act on the parameter of this name."""
    return name.endswith("weight")


class Tensors:
    """Parameters of one dtype with all that belongs to them, those that decay first."""

    def __init__(self, mx: Any, names: Sequence[str], weights: Sequence[Any], gradients: Sequence[Any]) -> None:
        import numpy

        order = sorted(range(len(names)), key=lambda at: not decays(names[at]))
        self.weights = [weights[at] for at in order]
        self.gradients = [gradients[at] for at in order]
        self.num_decaying = sum(1 for name in names if decays(name))
        self.context = self.weights[0].context
        self.mixed = self.weights[0].dtype != numpy.float32
        self.masters = [weight.astype("float32") for weight in self.weights] if self.mixed else self.weights
        self.momenta = [mx.nd.zeros(weight.shape, ctx=self.context) for weight in self.weights]

    def __len__(self) -> int:
        return len(self.weights)

    def operands(self, group: slice) -> List[Any]:
        """weight, gradient, momentum[, master] of each tensor of the group, one after the other."""
        columns = [self.weights[group], self.gradients[group], self.momenta[group]]
        if self.mixed:
            columns.append(self.masters[group])
        return [array for row in zip(*columns) for array in row]

    def groups(self, size: int) -> Iterator[slice]:
        for at in range(0, len(self), size):
            yield slice(at, min(at + size, len(self)))


class SGD:
    """Holds the momentum of all parameters. `num_samples` divides the gradients, which are sums over samples."""

    def __init__(
        self,
        mx: Any,
        names: Sequence[str],
        weights: Sequence[Any],
        gradients: Sequence[Any],
        settings: Optimizer,
        num_samples: int,
    ) -> None:
        self._nd = mx.nd
        self._settings = settings
        self._common = {"momentum": settings.momentum, "rescale_grad": 1.0 / num_samples}
        # Batch-norm parameters stay in float32 when the rest is float16; an operator takes one dtype.
        self.families: List[Tensors] = []
        by_dtype: Dict[Any, List[int]] = {}
        for at, weight in enumerate(weights):
            by_dtype.setdefault(weight.dtype, []).append(at)
        for members in by_dtype.values():
            columns = [[column[at] for at in members] for column in (names, weights, gradients)]
            self.families.append(Tensors(mx, *columns))

    def step(self, learning_rate: float) -> None:
        """One update; returns at once, MXNet's engine does the work when the gradients are there."""
        for tensors in self.families:
            self._update(tensors, learning_rate)

    def _wds(self, tensors: Tensors) -> List[float]:
        plain = len(tensors) - tensors.num_decaying
        return [self._settings.weight_decay] * tensors.num_decaying + [0.0] * plain

    def _update(self, tensors: Tensors, learning_rate: float) -> None:
        nd, wds = self._nd, self._wds(tensors)
        size = _GROUP_SIZE[tensors.context.device_type]
        if size == 1:
            update = nd.mp_sgd_mom_update if tensors.mixed else nd.sgd_mom_update
            for at, weight in enumerate(tensors.weights):
                operands = tensors.operands(slice(at, at + 1))
                update(*operands, out=weight, lr=learning_rate, wd=wds[at], lazy_update=False, **self._common)
            return
        update = nd.multi_mp_sgd_mom_update if tensors.mixed else nd.multi_sgd_mom_update
        for group in tensors.groups(size):
            weights = tensors.weights[group]
            rates = [learning_rate] * len(weights)
            update(
                *tensors.operands(group),
                out=weights,
                num_weights=len(weights),
                lrs=rates,
                wds=wds[group],
                **self._common,
            )


class LARS(SGD):
    """SGD whose rate differs from tensor to tensor; the norms never leave the device."""

    def _update(self, tensors: Tensors, learning_rate: float) -> None:
        nd = self._nd
        size = max(_GROUP_SIZE[tensors.context.device_type], _CPU_GROUP_SIZE_OF_LARS)
        wds = nd.array(self._wds(tensors), ctx=tensors.context)
        rates = nd.full((len(tensors),), learning_rate, ctx=tensors.context)
        if tensors.num_decaying:
            scaled = slice(0, tensors.num_decaying)
            rates[scaled] = nd.multi_lars(
                rates[scaled],
                self._squares(tensors.masters[scaled], size),
                self._squares(tensors.gradients[scaled], size),
                wds[scaled],
                eta=self._settings.lars_eta,
                eps=self._settings.lars_epsilon,
                rescale_grad=self._common["rescale_grad"],
            )
        update = nd.preloaded_multi_mp_sgd_mom_update if tensors.mixed else nd.preloaded_multi_sgd_mom_update
        for group in tensors.groups(size):
            weights = tensors.weights[group]
            operands = tensors.operands(group) + [rates[group], wds[group]]
            update(*operands, out=weights, num_weights=len(weights), **self._common)

    def _squares(self, arrays: Sequence[Any], size: int) -> Any:
        """Sum of squares of each array, float32 (num_arrays,)."""
        groups = [arrays[at : at + size] for at in range(0, len(arrays), size)]
        sums = [self._nd.multi_sum_sq(*group, num_arrays=len(group)) for group in groups]
        return self._nd.concat(*sums, dim=0)


OPTIMIZERS: Dict[str, Type[SGD]] = {"sgd": SGD, "lars": LARS}
