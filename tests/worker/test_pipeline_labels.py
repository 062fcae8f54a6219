"""A label that is no class of the model ends the run: MXNet would take the nearest class and train on it in silence."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path
from typing import Any

import pytest

from mlbench.worker.pipelines import base
from mlbench.worker.pipelines.records import DataFault
from mlbench.worker.ranks import Rank
from mlbench.worker.recordio import RecordWriter, pack_image
from tests.support.pipeline_jobs import pipeline_job

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

HAS_DALI = importlib.util.find_spec("nvidia") is not None and importlib.util.find_spec("nvidia.dali") is not None

PIPELINES = ["native", "mxnet", *(["dali"] if HAS_DALI else [])]
"""DALI is an extra of 400 MB; what a job without it is told is tested in test_pipeline_others.py."""


@pytest.mark.parametrize("label", [10.0, 1e9, -1.0, 2.5, float("nan"), float("inf")])
@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("split", ["train", "val"])
def test_label_that_is_no_class_ends_the_run_and_names_the_record(
    tmp_path: Path, pipeline: str, label: float, split: str
) -> None:
    pytest.importorskip("mxnet", reason="needs MXNet", exc_type=ImportError)
    image_module = pytest.importorskip("PIL.Image", reason="needs Pillow")
    stream = io.BytesIO()
    image_module.new("RGB", (40, 36), (200, 100, 50)).save(stream, "JPEG")
    rec, idx = str(tmp_path / "a.rec"), str(tmp_path / "a.idx")
    with RecordWriter(rec, idx) as writer:
        offsets = [writer.write(n, pack_image(label if n == 2 else 9.0, n, stream.getvalue())) for n in range(4)]
    files = [(rec, idx)]
    job = pipeline_job(train=files, val=files, num_train=4, num_val=4, pipeline=pipeline, batch=4, num_classes=10)
    opened: Any = (base.open_training if split == "train" else base.open_validation)(job, Rank(0, 1, 0))
    batches = opened.epoch(1) if split == "train" else opened.batches()
    try:
        with pytest.raises(
            DataFault, match=rf"a\.rec, record 2, offset {offsets[2]}: label .*expected a class, 0 to 9"
        ):
            list(batches)
    finally:
        opened.close()
