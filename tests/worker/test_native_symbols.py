"""The decoder beside MXNet and Horovod: each has a libjpeg, and only one of them is ours."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mlbench.worker.native.library import NativeError, load

DECODE = """
import warnings
warnings.simplefilter("ignore")
import ctypes, io
import numpy
from PIL import Image

file = io.BytesIO()
Image.new("RGB", (32, 32), (200, 10, 10)).save(file, "JPEG")
import mxnet, horovod.mxnet
from mlbench.worker.native import library
jpeg = ctypes.create_string_buffer(file.getvalue(), len(file.getvalue()))
items = (library.Item * 1)()
items[0].data, items[0].size = ctypes.addressof(jpeg), len(file.getvalue())
spec = library.make_spec(px=32, resize_px=32, mean_rgb=(0, 0, 0), std_rgb=(1, 1, 1), channels_last=True)
out = numpy.zeros((32, 32, 3), dtype="float32")
pool = library.Pool(library.load(), 1)
print(pool.wait(pool.submit(spec, items, 1, out.ctypes.data)), items[0].message.decode(), round(out[..., 0].mean()))
"""


@pytest.mark.training
@pytest.mark.slow
def test_decoder_loaded_after_horovod_calls_its_own_libjpeg() -> None:
    try:
        load()
    except NativeError as error:
        pytest.skip(f"native decoder: {error}")

    done = subprocess.run([sys.executable, "-c", DECODE], capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stderr
    faults, *message, red = done.stdout.split()
    assert (faults, message) == ("0", [])
    assert abs(int(red) - 200) <= 2
