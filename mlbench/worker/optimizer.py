"""SGD with momentum, and LARS, on MXNet's fused update operators.

For weight w, gradient g, momentum buffer m, learning rate r and weight decay d, as in MXNet and in MLPerf's reference:

    m = momentum * m - r * (g + d * w);  w = w + m

Weight decay acts on convolution and fully connected weights; batch-norm scales and all biases have none. LARS
multiplies the rate of exactly these weights by eta * |w| / (|g| + d * |w| + epsilon). float16 weights have a float32
master copy that is updated instead.

Source of LARS: You et al., Large Batch Training of Convolutional Networks (2017), as MLPerf's reference applies it.
"""

from __future__ import annotations

from typing import Any, Iterator, List, Sequence

from .job import Optimizer

_GROUP_SIZE = {"cpu": 1, "gpu": 40}
"""Tensors an update operator takes at once. On a GPU one kernel for many small tensors saves launches; MXNet's CPU
kernel walks through all of them for each element: 125 against 36 ms for ResNet-50's size."""


def decays(name: str) -> bool:
    """Whether weight decay and LARS act on the parameter of this name."""
    return name.endswith("weight")


class SGD:
    """`weights` and `gradients` are NDArrays in one order; `num_samples` divides the gradients, which are sums."""

    def __init__(
        self,
        mx: Any,
        names: Sequence[str],
        weights: Sequence[Any],
        gradients: Sequence[Any],
        settings: Optimizer,
        num_samples: int,
    ) -> None:
        self._mx = mx
        self._weights = list(weights)
        self._gradients = list(gradients)
        self._settings = settings
        self._rescale = 1.0 / num_samples
        self._wds = [settings.weight_decay if decays(name) else 0.0 for name in names]
        self._mixed = any(str(weight.dtype).endswith("float16'>") for weight in self._weights)
        self._masters = [weight.astype("float32") for weight in self._weights] if self._mixed else []
        self._momenta = [mx.nd.zeros(weight.shape, ctx=weight.context, dtype="float32") for weight in self._weights]
        self._group_size = _GROUP_SIZE[self._weights[0].context.device_type]

    def refresh(self) -> None:
        """Take the weights as they are now, after they were set from outside."""
        for master, weight in zip(self._masters, self._weights):
            weight.astype("float32").copyto(master)

    @property
    def masters(self) -> List[Any]:
        """float32 weights: the master copies, or the weights themselves."""
        return self._masters if self._mixed else self._weights

    def _groups(self) -> Iterator[slice]:
        for at in range(0, len(self._weights), self._group_size):
            yield slice(at, at + self._group_size)

    def _operands(self, group: slice) -> List[Any]:
        """weight, gradient, momentum[, master] of each tensor of a group, one after the other."""
        columns = [self._weights[group], self._gradients[group], self._momenta[group]]
        if self._mixed:
            columns.append(self._masters[group])
        return [array for row in zip(*columns) for array in row]

    def step(self, learning_rate: float) -> None:
        """One update; returns at once, MXNet's engine does the work when the gradients are there."""
        common = {"momentum": self._settings.momentum, "rescale_grad": self._rescale}
        nd = self._mx.nd
        if self._group_size == 1:
            update = nd.mp_sgd_mom_update if self._mixed else nd.sgd_mom_update
            for at, weight in enumerate(self._weights):
                operands = self._operands(slice(at, at + 1))
                update(*operands, out=weight, lr=learning_rate, wd=self._wds[at], lazy_update=False, **common)
            return
        update = nd.multi_mp_sgd_mom_update if self._mixed else nd.multi_sgd_mom_update
        for group in self._groups():
            size = len(self._weights[group])
            update(
                *self._operands(group),
                out=self._weights[group],
                num_weights=size,
                lrs=[learning_rate] * size,
                wds=self._wds[group],
                **common,
            )


class LARS(SGD):
    """SGD whose rate differs from tensor to tensor; the norms never leave the device."""

    def __init__(self, mx: Any, names: Sequence[str], *arguments: Any) -> None:
        super().__init__(mx, names, *arguments)
        # Tensors with LARS first, so that the rates of both kinds are slices of one array.
        order = sorted(range(len(names)), key=lambda at: not decays(names[at]))
        for columns in (self._weights, self._gradients, self._momenta, self._masters, self._wds):
            if columns:
                columns[:] = [columns[at] for at in order]
        self._num_scaled = sum(1 for name in names if decays(name))
        context = self._weights[0].context
        self._wd_array = mx.nd.array(self._wds, ctx=context)
        # The operators take at most 45 tensors, four arrays each in mixed precision.
        self._group_size = 4 if self._group_size == 1 else self._group_size

    def step(self, learning_rate: float) -> None:
        nd = self._mx.nd
        rates = nd.full((len(self._weights),), learning_rate, ctx=self._weights[0].context)
        scaled = slice(0, self._num_scaled)
        squares = [self._squares(arrays[scaled]) for arrays in (self.masters, self._gradients)]
        rates[scaled] = nd.multi_lars(
            rates[scaled],
            squares[0],
            squares[1],
            self._wd_array[scaled],
            eta=self._settings.lars_eta,
            eps=self._settings.lars_epsilon,
            rescale_grad=self._rescale,
        )
        update = nd.preloaded_multi_mp_sgd_mom_update if self._mixed else nd.preloaded_multi_sgd_mom_update
        for group in self._groups():
            update(
                *self._operands(group),
                rates[group],
                self._wd_array[group],
                out=self._weights[group],
                num_weights=len(self._weights[group]),
                momentum=self._settings.momentum,
                rescale_grad=self._rescale,
            )

    def _squares(self, arrays: Sequence[Any]) -> Any:
        """Sum of squares of each array, float32 (num_arrays,)."""
        nd = self._mx.nd
        sums = []
        for at in range(0, len(arrays), self._group_size):
            part = arrays[at : at + self._group_size]
            sums.append(nd.multi_sum_sq(*part, num_arrays=len(part)))
        return nd.concat(*sums, dim=0) if len(sums) > 1 else sums[0]


OPTIMIZERS = {"sgd": SGD, "lars": LARS}
