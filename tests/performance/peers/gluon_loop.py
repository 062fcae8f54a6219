"""A bare training loop in Gluon: the same model, nothing of the worker around it, one batch in memory used again.

What a careful user of MXNet would write: hybridized with static memory, Gluon's own trainer (Horovod's when several
ranks run), a loop that never waits but for the step before the last. Prints one JSON object on rank 0.

    python gluon_loop.py --px 64 --batch 32 --steps 20 --warmup 5 --classes 10
    horovodrun -np 2 python gluon_loop.py --px 64 --batch 16 --steps 20 --warmup 5 --classes 10
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

from mlbench.worker.job import Model
from mlbench.worker.model import build, initialise
from mlbench.worker.runtime import import_mxnet


def model(num_classes: int) -> Model:
    """As conf/data/digits.yaml asks for, but for the classes."""
    return Model(
        name="resnet50",
        num_classes=num_classes,
        layout="NCHW",
        dtype="float32",
        batch_norm_momentum=0.8,
        batch_norm_epsilon=1e-5,
        zero_init_last_gamma=True,
    )


def trainer_of(mx: Any, parameters: Any, num_ranks: int) -> Any:
    """Gluon's trainer, or Horovod's when there are several ranks; then the weights of rank 0 are everybody's."""
    settings = {"learning_rate": 0.05, "momentum": 0.9, "wd": 2.5e-5}
    if num_ranks == 1:
        return mx.gluon.Trainer(parameters, "sgd", settings, kvstore=None)
    import horovod.mxnet as hvd

    hvd.broadcast_parameters(parameters, root_rank=0)
    return hvd.DistributedTrainer(parameters, "sgd", settings)


def main() -> None:
    """Train `--warmup` steps, then time `--steps`."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("px", "batch", "steps", "warmup", "classes"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    num_ranks, rank = int(os.environ.get("HOROVOD_SIZE", "1")), int(os.environ.get("HOROVOD_RANK", "0"))
    mx = import_mxnet()
    if num_ranks > 1:
        import horovod.mxnet as hvd

        hvd.init()
    settings = model(options.classes)
    net = build(mx, settings, "cpu")
    initialise(mx, net, settings, mx.cpu())
    net.hybridize(static_alloc=True, static_shape=True)
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    loss_of.hybridize(static_alloc=True, static_shape=True)
    images = mx.nd.random.uniform(-1, 1, shape=(options.batch, 3, options.px, options.px))
    labels = mx.nd.array([number % options.classes for number in range(options.batch)])
    trainer = trainer_of(mx, net.collect_params(), num_ranks)

    def step() -> Any:
        with mx.autograd.record():
            loss = loss_of(net(images), labels)
        loss.backward()
        trainer.step(options.batch)
        return loss

    for _ in range(options.warmup):
        step().wait_to_read()
    mx.nd.waitall()
    begun, cpu_begun = time.perf_counter(), time.process_time()
    before = None
    for _ in range(options.steps):
        loss = step()
        if before is not None:
            before.wait_to_read()
        before = loss
    mx.nd.waitall()
    wall_s, cpu_s = time.perf_counter() - begun, time.process_time() - cpu_begun
    if rank == 0:
        num = options.steps * options.batch * num_ranks
        # Ranks do the same work, so rank 0's processor time stands for each.
        print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s * num_ranks, "amount": num}), flush=True)


if __name__ == "__main__":
    main()
