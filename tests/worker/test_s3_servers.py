"""Training data from five real S3 servers on loopback, one of them killed half way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.pipeline_jobs import pipeline_job, write_images
from tests.support.s3_servers import NUM_SERVERS, Servers, set_credentials

pytestmark = [
    pytest.mark.s3,
    pytest.mark.slow,
    # MXNet imports SciPy by names that SciPy will drop; boto3 and moto have their own deprecations.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
NUM_IMAGES = 240


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    pytest.importorskip("moto.server", reason="needs moto[server]")
    pytest.importorskip("mxnet", reason="needs MXNet", exc_type=ImportError)
    set_credentials(monkeypatch)
    rec, idx = write_images(tmp_path, "train", _jpegs())
    running = Servers([(rec, "train/train.rec"), (idx, "train/train.idx")])
    yield running
    running.close()


def _jpegs() -> list[bytes]:
    import io

    from PIL import Image

    images = []
    for number in range(NUM_IMAGES):
        stream = io.BytesIO()
        Image.new("RGB", (40, 36), (number, 255 - number, 128)).save(stream, "JPEG")
        images.append(stream.getvalue())
    return images


def _job(servers: Servers, pipeline: str) -> Any:
    pair = ("s3://imagenet/train/train.rec", "s3://imagenet/train/train.idx")
    return pipeline_job(
        train=[pair],
        val=[pair],
        num_train=NUM_IMAGES,
        num_val=NUM_IMAGES,
        pipeline=pipeline,
        batch=6,
        num_ranks=NUM_SERVERS,
        s3_endpoints=servers.urls,
    )


def test_training_goes_on_when_a_server_is_killed(servers: Servers, capfd: pytest.CaptureFixture[str]) -> None:
    from mlbench.worker.pipelines.base import open_training
    from mlbench.worker.ranks import Rank

    job = _job(servers, "native")
    ranks = [open_training(job, Rank(rank, NUM_SERVERS, rank)) for rank in range(NUM_SERVERS)]
    labels: list[list[int]] = [[], []]
    for epoch in (1, 2):
        running = [training.epoch(epoch) for training in ranks]
        for step in range(NUM_IMAGES // 6 // NUM_SERVERS):
            if epoch == 1 and step == 3:
                servers.kill(2)
            for batches in running:
                batch = next(batches)
                labels[epoch - 1] += [int(label) for label in batch.labels.asnumpy()]
    for training in ranks:
        training.close()
    assert sorted(labels[0]) == sorted(labels[1]) == list(range(NUM_IMAGES))
    said = capfd.readouterr().err
    assert f"S3 endpoint {servers.urls[2]} fails" in said
    assert said.count(f"S3 endpoint {servers.urls[0]}: ") == NUM_SERVERS  # each rank reports all shares at its end
    assert "secret-of-the-test" not in said
    assert "key-id-of-the-test" not in said


def test_each_rank_reads_from_its_own_endpoint(servers: Servers) -> None:
    from mlbench.worker.s3 import open_bucket_source

    recs, idxs = ["s3://imagenet/train/train.rec"], ["s3://imagenet/train/train.idx"]
    for rank in (0, 4, 6):
        source = open_bucket_source(servers.urls, rank, recs, idxs, NUM_IMAGES, 2)
        read = list(source.read_ahead((part, range(part, part + 40)) for part in range(0, NUM_IMAGES, 40)))
        shares = source.endpoints.shares()
        source.close()
        assert [part for part, _ in read] == [0, 40, 80, 120, 160, 200]
        # One request for the size, one for the index, one for each record.
        assert shares[rank % NUM_SERVERS].num_requests == NUM_IMAGES + 2
        assert sum(share.num_requests for share in shares) == NUM_IMAGES + 2


def test_mxnet_pipeline_reads_the_bucket_too(servers: Servers) -> None:
    from mlbench.worker.pipelines.base import open_validation
    from mlbench.worker.ranks import Rank

    validation = open_validation(_job(servers, "mxnet"), Rank(1, NUM_SERVERS, 1))
    labels = [int(x) for batch in validation.batches() for x in batch.labels.asnumpy()[: batch.num_valid]]
    validation.close()
    assert labels == list(range(48, 96))


def test_object_that_is_not_there_is_one_sentence(servers: Servers) -> None:
    from mlbench.worker.pipelines.records import DataFault
    from mlbench.worker.s3 import open_bucket_source

    with pytest.raises(DataFault, match=r"s3://imagenet/no\.rec at http://127\.0\.0\.1:\d+: S3 answers 404"):
        open_bucket_source(servers.urls, 0, ["s3://imagenet/no.rec"], ["s3://imagenet/no.idx"], 1, 1)
