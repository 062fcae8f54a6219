"""ResNet-50 v1.5 in plain PyTorch, trained on one batch in memory: the peer of another framework, on the same cores.

Needs torch alone (no torchvision), so it runs in an environment of its own. Both memory formats are tried for a few
steps and the faster one is timed: the peer gets its best settings too. Prints one JSON object.

    python torch_loop.py --px 64 --batch 32 --steps 20 --warmup 5 --classes 10 --threads 2
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import torch
from torch import nn

STAGES = ((3, 256), (4, 512), (6, 1024), (3, 2048))


class Unit(nn.Module):
    """1x1, 3x3 (with the stride), 1x1 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        inner = outputs // 4
        self.body = nn.Sequential(
            nn.Conv2d(inputs, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(inplace=True),
            nn.Conv2d(inner, inner, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(inplace=True),
            nn.Conv2d(inner, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )
        self.last = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.body(x) + self.shortcut(x))


def resnet50(num_classes: int) -> nn.Sequential:
    """25,557,032 parameters with 1,000 classes, as the benchmark's model."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    inputs = 64
    for stage, (num_units, outputs) in enumerate(STAGES):
        for unit in range(num_units):
            layers.append(Unit(inputs, outputs, 2 if unit == 0 and stage > 0 else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, num_classes))


def stepper(px: int, batch: int, classes: int, layout: torch.memory_format) -> Callable[[], None]:
    """A function that trains one step."""
    net = resnet50(classes).to(memory_format=layout)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=2.5e-5)
    loss_of = nn.CrossEntropyLoss()
    images = torch.rand(batch, 3, px, px).to(memory_format=layout)
    labels = torch.arange(batch) % classes

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss_of(net(images), labels).backward()
        optimizer.step()

    return step


def timed(step: Callable[[], None], steps: int) -> tuple[float, float]:
    """(wall, processor) seconds of so many steps."""
    begun, cpu_begun = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    return time.perf_counter() - begun, time.process_time() - cpu_begun


def main() -> None:
    """Choose the memory format, warm up, time."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("px", "batch", "steps", "warmup", "classes", "threads"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    assert sum(item.numel() for item in resnet50(1000).parameters()) == 25_557_032
    trials: dict[str, tuple[float, Callable[[], None]]] = {}
    for name, layout in (("NCHW", torch.contiguous_format), ("channels last", torch.channels_last)):
        step = stepper(options.px, options.batch, options.classes, layout)
        timed(step, 1)
        # Processor time: another process that takes a core for a moment must not decide.
        trials[name] = (timed(step, 2)[1], step)
    best = min(trials, key=lambda name: trials[name][0])
    step = trials[best][1]
    timed(step, options.warmup)
    wall_s, cpu_s = timed(step, options.steps)
    amount = options.steps * options.batch
    print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s, "amount": amount, "layout": best}), flush=True)


if __name__ == "__main__":
    main()
