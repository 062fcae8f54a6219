"""The optional pipelines: simplejpeg behind `native`, and DALI, whichever of them this machine has."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path
from typing import Any

import pytest

from mlbench.worker.native import library as native
from mlbench.worker.pipelines import fallback
from mlbench.worker.pipelines.records import DataFault
from mlbench.worker.ranks import Rank
from tests.support.pipeline_jobs import DISTORTED, pipeline_job, write_images

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

numpy = pytest.importorskip("numpy", reason="needs NumPy")
Image = pytest.importorskip("PIL.Image", reason="needs Pillow")
HAS_DALI = importlib.util.find_spec("nvidia") is not None and importlib.util.find_spec("nvidia.dali") is not None


def _images(count: int = 24) -> list[bytes]:
    images = []
    for number in range(count):
        stream = io.BytesIO()
        Image.new("RGB", (48, 40), (number * 10, 100, 255 - number * 10)).save(stream, "JPEG")
        images.append(stream.getvalue())
    return images


def _job(folder: Path, **settings: Any) -> Any:
    images = _images()
    pair = write_images(folder, "train", images)
    return pipeline_job(train=[pair], val=[pair], num_train=len(images), num_val=len(images), **settings)


def _labels(batches: Any) -> list[int]:
    return [int(label) for batch in batches for label in batch.labels.asnumpy()[: batch.num_valid]]


def test_simplejpeg_takes_over_and_gives_the_same_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlbench.worker.pipelines import native as pipeline

    job = _job(tmp_path, batch=24)
    rank = Rank(0, 1, 0)

    def absent() -> Any:
        raise native.NativeError("not built here")

    with monkeypatch.context() as patch:
        patch.setattr(native, "load", absent)
        patch.setattr(fallback, "has_simplejpeg", lambda: False)
        by_mxnet = next(iter(pipeline.open_validation(job, rank).batches())).images.asnumpy()
    monkeypatch.setattr(native, "load", absent)
    if not fallback.has_simplejpeg():
        assert fallback.used("native").name == "mxnet"
        return
    assert fallback.used("native") == ("simplejpeg", "not built here")
    by_simplejpeg = next(iter(pipeline.open_validation(job, rank).batches())).images.asnumpy()
    assert "input pipeline: simplejpeg (not built here)" in capsys.readouterr().err
    assert abs(by_simplejpeg - by_mxnet).mean() < 1.5


def test_dali_epochs_show_each_image_once_over_all_ranks(tmp_path: Path) -> None:
    from mlbench.worker.pipelines import dali

    job = _job(tmp_path, pipeline="dali", batch=6, num_ranks=2, augmentation=DISTORTED)
    if not HAS_DALI:
        with pytest.raises(DataFault, match=r"dali, which cannot be imported .*; install 'mlbench\[dali\]'"):
            dali.open_training(job, Rank(0, 2, 0))
        return
    seen: list[int] = []
    for rank in range(2):
        training = dali.open_training(job, Rank(rank, 2, rank))
        for epoch in (1, 2):
            seen += _labels(training.epoch(epoch))
        training.close()
    assert sorted(seen) == sorted([*range(24), *range(24)])


def test_dali_validation_is_that_of_native(tmp_path: Path) -> None:
    from mlbench.worker.pipelines import dali
    from mlbench.worker.pipelines import native as pipeline

    job = _job(tmp_path, pipeline="dali", batch=9)
    if not HAS_DALI:
        with pytest.raises(DataFault, match="or use native"):
            dali.open_validation(job, Rank(0, 1, 0))
        return
    theirs, ours = dali.open_validation(job, Rank(0, 1, 0)), pipeline.open_validation(job, Rank(0, 1, 0))
    for a, b in zip(theirs.batches(), ours.batches(), strict=True):
        assert a.num_valid == b.num_valid
        assert abs(a.images.asnumpy() - b.images.asnumpy()).mean() < 1.5
    theirs.close()
    ours.close()
