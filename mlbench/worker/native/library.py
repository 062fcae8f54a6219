"""The decoder's C library through ctypes: load it, open a pool of threads, fill batches.

The structures are those of image.h and walk.c. ctypes releases the interpreter's lock during every call.
"""

from __future__ import annotations

import ctypes
import os
from array import array
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from .build import library_path

ABI_VERSION = 3
MAX_PIXELS = 100 * 1000 * 1000
"""Of one image: ten times the largest of ILSVRC2012; more is a fault of the data, or an attack."""
MESSAGE_BYTES = 200


class Spec(ctypes.Structure):
    """How every image of a batch is treated; see image.h."""

    _fields_ = [
        ("px", ctypes.c_int32),
        ("resize_px", ctypes.c_int32),
        ("random_resized_crop", ctypes.c_int32),
        ("max_shift", ctypes.c_int32),
        ("mirror", ctypes.c_int32),
        ("channels_last", ctypes.c_int32),
        ("area_min", ctypes.c_double),
        ("area_max", ctypes.c_double),
        ("aspect_min", ctypes.c_double),
        ("aspect_max", ctypes.c_double),
        ("mean", ctypes.c_float * 3),
        ("std", ctypes.c_float * 3),
        ("max_pixels", ctypes.c_int64),
        ("key", ctypes.c_uint64),
    ]


class Item(ctypes.Structure):
    """One image of a batch; see image.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
        ("fd", ctypes.c_int32),
        ("status", ctypes.c_int32),
        ("label", ctypes.c_float),
        ("num_warnings", ctypes.c_int32),
        ("message", ctypes.c_char * MESSAGE_BYTES),
    ]


class Walk(ctypes.Structure):
    """Where a walk over records came to; see walk.c."""

    _fields_ = [
        ("behind", ctypes.c_uint64),
        ("image_bytes", ctypes.c_uint64),
        ("num_records", ctypes.c_int32),
        ("num_scanned", ctypes.c_int32),
        ("is_odd", ctypes.c_int32),
        ("is_damaged", ctypes.c_int32),
    ]


OK, OTHER_FORMAT, BROKEN, RECORD, TOO_LARGE, READ, NO_MEMORY = range(7)


# MXNet's library exports a libjpeg of its own, and importing horovod.mxnet makes it visible to all. A library that is
# loaded later would call that one, whose structures differ, and no decoder could be made.
_OWN_SYMBOLS_FIRST = os.RTLD_NOW | os.RTLD_LOCAL | getattr(os, "RTLD_DEEPBIND", 0)


class NativeError(Exception):
    """The library is not there or not the one that this binding was written for."""


class Placement(NamedTuple):
    """Where an output samples its source; see image.h."""

    x0: float
    y0: float
    step_x: float
    step_y: float
    mirrored: bool


def load(path: Optional[str] = None) -> Any:
    """The library, its functions typed. Raises NativeError with the reason."""
    where = path or library_path()
    if not os.path.exists(where):
        raise NativeError("%s is not built (python -m mlbench.worker.native.build)" % os.path.basename(where))
    try:
        library = ctypes.CDLL(where, mode=_OWN_SYMBOLS_FIRST)
    except OSError as error:
        raise NativeError("%s cannot be loaded: %s" % (os.path.basename(where), error))
    library.mlbench_abi_version.restype = ctypes.c_int
    found = library.mlbench_abi_version()
    if found != ABI_VERSION:
        raise NativeError("%s has interface %d, expected %d; build it again" % (where, found, ABI_VERSION))
    pointer, number = ctypes.c_void_p, ctypes.c_int
    spec = ctypes.POINTER(Spec)
    library.mlbench_pool_open.restype, library.mlbench_pool_open.argtypes = pointer, [number]
    library.mlbench_pool_close.restype, library.mlbench_pool_close.argtypes = None, [pointer]
    library.mlbench_submit.restype = pointer
    library.mlbench_submit.argtypes = [pointer, spec, ctypes.POINTER(Item), number, pointer]
    library.mlbench_wait.restype, library.mlbench_wait.argtypes = number, [pointer, pointer]
    library.mlbench_place_pixels.restype = number
    library.mlbench_place_pixels.argtypes = [spec, ctypes.c_uint64, pointer, number, number, pointer]
    library.mlbench_checker_open.restype, library.mlbench_checker_open.argtypes = pointer, []
    library.mlbench_checker_close.restype, library.mlbench_checker_close.argtypes = None, [pointer]
    library.mlbench_check.restype = None
    library.mlbench_check.argtypes = [pointer, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int64, ctypes.POINTER(Item)]
    library.mlbench_walker_open.restype = pointer
    library.mlbench_walker_open.argtypes = [number, number, ctypes.c_int64]
    library.mlbench_walker_close.restype, library.mlbench_walker_close.argtypes = None, [pointer]
    library.mlbench_walk.restype = None
    library.mlbench_walk.argtypes = [
        pointer,
        ctypes.c_uint64,
        ctypes.c_uint64,
        number,
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(ctypes.c_float),
        ctypes.POINTER(Walk),
    ]
    library.mlbench_placement.restype = None
    library.mlbench_placement.argtypes = [spec, ctypes.c_uint64, number, number, ctypes.POINTER(ctypes.c_double)]
    return library


class Pool:
    """Decoding threads. Batches are submitted and then waited for in any order; close() ends the threads."""

    def __init__(self, library: Any, num_threads: int) -> None:
        self._library = library
        self._handle = library.mlbench_pool_open(num_threads)
        if not self._handle:
            raise NativeError("%d decoding threads cannot be started" % num_threads)

    def submit(self, spec: Spec, items: Any, count: int, out_address: int) -> int:
        """Begin to fill the memory at `out_address`; a ticket for `wait`. `items` (an array of Item) and the memory
        must stay alive until then."""
        ticket = self._library.mlbench_submit(self._handle, ctypes.byref(spec), items, count, out_address)
        if not ticket:
            raise NativeError("no memory for a batch of %d images" % count)
        return int(ticket)

    def wait(self, ticket: int) -> int:
        """Until the batch is full; the number of its items whose status is not OK."""
        return int(self._library.mlbench_wait(self._handle, ticket))

    def close(self) -> None:
        if self._handle:
            self._library.mlbench_pool_close(self._handle)
            self._handle = None


class Checker:
    """Reads whole JPEGs to see whether they are sound. One thread may use it at a time."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._handle = library.mlbench_checker_open()
        if not self._handle:
            raise NativeError("no memory for a decoder")

    def check(self, image: bytes, max_pixels: int = MAX_PIXELS) -> Tuple[int, int, str]:
        """(status, number of damages that libjpeg mends, message of the first fault)."""
        result = Item()
        self._library.mlbench_check(self._handle, image, len(image), max_pixels, ctypes.byref(result))
        return result.status, result.num_warnings, result.message.decode("utf-8", "replace")

    def close(self) -> None:
        if self._handle:
            self._library.mlbench_checker_close(self._handle)
            self._handle = None


class Walker:
    """Passes the sound records of a file, a batch in each call. One thread may use it at a time.

    Sound: one whole frame, an image header, and (with `decode`) a JPEG that libjpeg would read without a complaint."""

    BATCH = 256
    """Records of one call at most: some milliseconds, after which the interpreter sees signals."""

    def __init__(self, library: Any, descriptor: int, decode: bool, max_pixels: int = MAX_PIXELS) -> None:
        self._library = library
        self._offsets = (ctypes.c_uint64 * self.BATCH)()
        self._labels = (ctypes.c_float * self.BATCH)()
        self._handle = library.mlbench_walker_open(descriptor, int(decode), max_pixels)
        if not self._handle:
            raise NativeError("no memory for a decoder")

    def walk(self, start: int, end: int) -> Tuple[Walk, "array[int]", "array[float]"]:
        """Pass sound records from `start` on, those that begin before `end`: where that came to, and the records'
        offsets and labels. When `is_odd` the record at `behind` is another kind, or has a fault; when
        `is_damaged` too, its JPEG has codes that are none, which libjpeg may pass over in silence."""
        walk = Walk()
        self._library.mlbench_walk(
            self._handle, start, end, self.BATCH, self._offsets, self._labels, ctypes.byref(walk)
        )
        offsets, labels = array("Q"), array("f")
        offsets.frombytes(memoryview(self._offsets).cast("B")[: 8 * walk.num_records])
        labels.frombytes(memoryview(self._labels).cast("B")[: 4 * walk.num_records])
        return walk, offsets, labels

    def close(self) -> None:
        if self._handle:
            self._library.mlbench_walker_close(self._handle)
            self._handle = None


def place_pixels(library: Any, spec: Spec, number: int, rgb: bytes, width: int, height: int, out_address: int) -> None:
    """Resize, mirror and normalise pixels that were decoded elsewhere. Raises NativeError: no memory."""
    if len(rgb) != width * height * 3:
        raise ValueError("%d bytes, expected %d x %d x 3" % (len(rgb), width, height))
    if library.mlbench_place_pixels(ctypes.byref(spec), number, rgb, width, height, out_address) != OK:
        raise NativeError("no memory to place an image of %d x %d pixels" % (width, height))


def placement(library: Any, spec: Spec, number: int, width: int, height: int) -> Placement:
    """Where the output of image `number` samples a source of this size."""
    values = (ctypes.c_double * 5)()
    library.mlbench_placement(ctypes.byref(spec), number, width, height, values)
    return Placement(values[0], values[1], values[2], values[3], bool(values[4]))


def make_spec(
    *,
    px: int,
    resize_px: int,
    mean_rgb: Sequence[float],
    std_rgb: Sequence[float],
    channels_last: bool,
    key: int = 0,
    random_resized_crop: bool = False,
    area: Tuple[float, float] = (1.0, 1.0),
    aspect: Tuple[float, float] = (1.0, 1.0),
    max_shift: int = 0,
    mirror: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> Spec:
    """A Spec; without the distortions it is validation: shorter side to `resize_px`, then the centre."""
    three = ctypes.c_float * 3
    return Spec(
        px=px,
        resize_px=resize_px,
        random_resized_crop=int(random_resized_crop),
        max_shift=max_shift,
        mirror=int(mirror),
        channels_last=int(channels_last),
        area_min=area[0],
        area_max=area[1],
        aspect_min=aspect[0],
        aspect_max=aspect[1],
        mean=three(*mean_rgb),
        std=three(*std_rgb),
        max_pixels=max_pixels,
        key=key,
    )


def messages(items: Any, count: int) -> List[Tuple[int, int, str]]:
    """(place in the batch, status, message) of each item that is not OK."""
    return [
        (i, items[i].status, items[i].message.decode("utf-8", "replace")) for i in range(count) if items[i].status != OK
    ]
