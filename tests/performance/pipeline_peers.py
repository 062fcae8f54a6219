"""Input pipelines and their peers, each as a function that reads so many batches and gives images per second.

All read the same records with the same augmentation (random-resized crop, area 0.05 to 1, aspect 3/4 to 4/3, mirror,
normalise, NCHW float32) on the same number of threads. The reader's first batches are not counted. The functions are
for the benchmark suite, which runs them side by side and in turns, each in a process of its own.

    python -m tests.performance.pipeline_peers REC --one native [--batches 20]
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlbench.worker.recordio import iter_records, read_index, unpack_image

MEAN_RGB = (123.68, 116.779, 103.939)
STD_RGB = (58.393, 57.12, 57.375)
AREA, ASPECT = (0.05, 1.0), (3 / 4, 4 / 3)
WARMUP_BATCHES = 3


@dataclass(frozen=True, slots=True)
class Load:
    """What every peer reads. `num_batches` are timed."""

    rec: Path
    px: int = 224
    batch: int = 64
    threads: int = 2
    num_batches: int = 20

    @property
    def idx(self) -> Path:
        return self.rec.with_suffix(".idx")


@dataclass(frozen=True, slots=True)
class Rate:
    """`cpu_us` is processor time for each image, all threads together: it holds on a machine that others use, too."""

    images_per_s: float
    cpu_us: float


def _since(num_images: int, start_s: float, cpu_start_s: float) -> Rate:
    elapsed_s, cpu_s = time.perf_counter() - start_s, time.process_time() - cpu_start_s
    return Rate(num_images / elapsed_s, cpu_s / num_images * 1e6)


def _rate(load: Load, batches: Iterator[Any], wait: Callable[[Any], None]) -> Rate:
    """Rate of an endless iterator of batches."""
    for batch in itertools.islice(batches, WARMUP_BATCHES):
        wait(batch)
    start, cpu_start = time.perf_counter(), time.process_time()
    for batch in itertools.islice(batches, load.num_batches):
        wait(batch)
    return _since(load.num_batches * load.batch, start, cpu_start)


def _job(load: Load, pipeline: str) -> Any:
    from tests.support.pipeline_jobs import DISTORTED, pipeline_job

    count = len(read_index(str(load.idx)))
    pair = (str(load.rec), str(load.idx))
    return pipeline_job(
        train=[pair],
        val=[pair],
        num_train=count,
        num_val=count,
        pipeline=pipeline,
        px=load.px,
        augmentation=DISTORTED,
        batch=load.batch,
        num_threads=load.threads,
        mean=MEAN_RGB,
        std=STD_RGB,
    )


def _ours(load: Load, pipeline: str) -> Rate:
    from mlbench.worker.pipelines.base import open_training
    from mlbench.worker.ranks import Rank

    training = open_training(_job(load, pipeline), Rank(0, 1, 0))
    try:
        batches = (batch for epoch in itertools.count(1) for batch in training.epoch(epoch))
        return _rate(load, batches, lambda batch: batch.images.wait_to_read())
    finally:
        training.close()


def native(load: Load) -> Rate:
    """Our pipeline over the C decoder."""
    return _ours(load, "native")


def dali(load: Load) -> Rate:
    """Our pipeline over DALI on the CPU."""
    return _ours(load, "dali")


def mxnet_worker(load: Load) -> Rate:
    """Our pipeline over MXNet's image operators."""
    return _ours(load, "mxnet")


def mxnet(load: Load) -> Rate:
    """MXNet's own ImageRecordIter."""
    from mxnet.io import ImageRecordIter

    reader = ImageRecordIter(
        path_imgrec=str(load.rec),
        path_imgidx=str(load.idx),
        data_shape=(3, load.px, load.px),
        batch_size=load.batch,
        shuffle=True,
        preprocess_threads=load.threads,
        random_resized_crop=True,
        min_random_area=AREA[0],
        max_random_area=AREA[1],
        min_aspect_ratio=ASPECT[0],
        max_aspect_ratio=ASPECT[1],
        rand_mirror=True,
        mean_r=MEAN_RGB[0],
        mean_g=MEAN_RGB[1],
        mean_b=MEAN_RGB[2],
        std_r=STD_RGB[0],
        std_g=STD_RGB[1],
        std_b=STD_RGB[2],
    )

    def endless() -> Iterator[Any]:
        while True:
            yield from reader
            reader.reset()

    return _rate(load, endless(), lambda batch: batch.data[0].wait_to_read())


def dali_bare(load: Load) -> Rate:
    """DALI's own RecordIO reader and its own iterator for MXNet, nothing of ours around them."""
    from nvidia.dali.plugin.mxnet import DALIGenericIterator

    from mlbench.worker.pipelines.dali import Settings, build_pipeline

    job = _job(load, "dali")
    settings = Settings(job.data, "NCHW", load.batch, load.threads, None, 1, True)

    def encoded(fn: Any) -> Any:
        images, _ = fn.readers.mxnet(path=[str(load.rec)], index_path=[str(load.idx)], random_shuffle=True)
        return images

    reader = DALIGenericIterator([build_pipeline(settings, encoded)], [("images", DALIGenericIterator.DATA_TAG)])
    return _rate(load, iter(reader), lambda batch: batch[0].data[0].wait_to_read())


def decode(load: Load) -> Rate:
    """Whole images through libjpeg-turbo on as many threads, nothing else: what most pipelines cannot exceed."""
    import simplejpeg

    wanted = load.num_batches * load.batch
    records = itertools.islice(iter_records(str(load.rec)), wanted)
    images = [bytes(unpack_image(payload)[1]) for _, payload in records]
    todo = list(itertools.islice(itertools.cycle(images), wanted))
    with ThreadPoolExecutor(load.threads) as pool:
        start, cpu_start = time.perf_counter(), time.process_time()
        for _ in pool.map(simplejpeg.decode_jpeg, todo, chunksize=16):
            pass
        return _since(wanted, start, cpu_start)


PEERS: dict[str, Callable[[Load], Rate]] = {
    "native": native,
    "mxnet": mxnet,
    "dali": dali,
    "dali_bare": dali_bare,
    "mxnet_worker": mxnet_worker,
    "decode": decode,
}


def main() -> None:
    """Read with one peer and print one JSON object: wall_s, cpu_s, amount (images)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rec", type=Path)
    parser.add_argument("--one", required=True, choices=sorted(PEERS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--site", help="folder of more packages, behind our own: those of DALI")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.site:
        sys.path.append(options.site)
    load = Load(options.rec, threads=options.threads, num_batches=options.batches)
    rate = PEERS[options.one](load)
    amount = load.num_batches * load.batch
    value = {"wall_s": amount / rate.images_per_s, "cpu_s": rate.cpu_us * amount / 1e6, "amount": amount}
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
