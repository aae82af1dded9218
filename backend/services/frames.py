"""The stored values of frames: straight from the original where they lie there as they are, else decoded once.

What was decoded stays as a blob: a frame of a compressed object, or the whole grid of a NIfTI, whose frames are then
pieces of it.
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.domain.errors import NotFound, UndecodableFrame
from backend.domain.study import Frame, PixelFormat, Series
from backend.domain.view import DisplayOrder
from backend.imaging.frames import decode_frame, decode_volume, raw_location
from backend.imaging.limits import Limits
from backend.services.studies import OpenedSeries
from backend.settings import Settings
from backend.store.blobs import Blobs
from backend.store.repository import Store
from backend.store.studies import InstanceFacts

Values = NDArray[Any]

# A viewer asks for many frames at once; of one object they would all begin to decode the same.
_ONE_AT_A_TIME = tuple(threading.Lock() for _ in range(64))
_AS_STORED = DisplayOrder()


class Frames:
    """Reads frames for one process."""

    def __init__(self, *, store: Store, blobs: Blobs, settings: Settings) -> None:
        self._store, self._blobs, self._settings = store, blobs, settings
        self._limits = Limits(max_frame_bytes=settings.max_frame_bytes, max_unpacked_bytes=settings.max_file_bytes)

    def shown(self, opened: OpenedSeries, index: int) -> Values:
        """The stored values of the picture at `index`, (rows, columns[, 3]) as shown.

        Raises:
            NotFound: If the series has no such frame.
            UndecodableFrame: If its pixels cannot be read.
        """
        stored = self._stored(opened, frame_at(opened.series, index))
        pixel = opened.series.pixel
        values = np.frombuffer(stored, dtype=_little(pixel)).reshape(_shape(pixel))
        return opened.series.display.frame_to_picture(values)

    def shown_bytes(self, opened: OpenedSeries, index: int) -> bytes:
        """The same as bytes: rows x columns x samples, little endian."""
        if opened.series.display == _AS_STORED or _only_slices_turn(opened.series.display):
            return self._stored(opened, frame_at(opened.series, index))
        return self.shown(opened, index).tobytes()

    def _stored(self, opened: OpenedSeries, frame: Frame) -> bytes:
        instance = opened.instances.get(frame.instance_id)
        if instance is None:
            raise UndecodableFrame(f"frame {frame.index} of series {opened.series.id}: its object is gone")
        size = frame_bytes(opened.series.pixel)
        if size > self._settings.max_frame_bytes:
            raise UndecodableFrame(
                f"frame {frame.index} of series {opened.series.id} has {size} bytes, at most "
                f"{self._settings.max_frame_bytes} are decoded"
            )
        place = raw_location(instance.facts, frame.frame_number)
        if place is not None:
            data = self._blobs.read(instance.sha256, *place)
        elif instance.facts["format"] == "nifti":
            data = self._of_volume(opened, instance, frame, size)
        else:
            data = self._of_frame(opened, instance, frame)
        if len(data) != size:
            raise UndecodableFrame(
                f"frame {frame.index} of series {opened.series.id} needs {size} bytes, its object gives {len(data)}"
            )
        return data

    def _of_frame(self, opened: OpenedSeries, instance: InstanceFacts, frame: Frame) -> bytes:
        def decode() -> Values:
            with self._blobs.open(instance.sha256) as file:
                values = decode_frame(file, instance.facts, frame.frame_number, limits=self._limits)
            return _checked(values, opened.series, frame)

        return self._blobs.read(self._decoded(instance.id, frame.frame_number, decode))

    def _of_volume(self, opened: OpenedSeries, instance: InstanceFacts, frame: Frame, size: int) -> bytes:
        whole = size * len(opened.series.frames)
        if whole > self._settings.max_file_bytes:
            raise UndecodableFrame(
                f"series {opened.series.id} unpacks to {whole} bytes, at most "
                f"{self._settings.max_file_bytes} are decoded"
            )

        def decode() -> Values:
            with self._blobs.open(instance.sha256) as file:
                return decode_volume(file, instance.facts).astype(_little(opened.series.pixel), copy=False)

        return self._blobs.read(self._decoded(instance.id, 0, decode), frame.frame_number * size, size)

    def _decoded(self, instance_id: str, frame_number: int, decode: Callable[[], Values]) -> str:
        """The blob of something decoded, decoding it if nobody has."""
        known = self._known(instance_id, frame_number)
        if known is not None:
            return known
        with _ONE_AT_A_TIME[hash((instance_id, frame_number)) % len(_ONE_AT_A_TIME)]:
            known = self._known(instance_id, frame_number)
            if known is not None:
                return known
            sha256 = self._put(decode())
            with self._store.transaction() as tx:
                tx.studies.add_decoded(instance_id, frame_number, sha256)
            return sha256

    def _known(self, instance_id: str, frame_number: int) -> str | None:
        with self._store.transaction(read_only=True) as tx:
            return tx.studies.decoded(instance_id, frame_number)

    def _put(self, values: Values) -> str:
        with self._blobs.writer() as writer:
            for piece in values:  # by row or by slice: no second copy of a whole grid
                writer.write(np.ascontiguousarray(piece).tobytes())
            return writer.commit()


def frame_at(series: Series, index: int) -> Frame:
    """The frame at a place of the stack. Raises `NotFound`."""
    if not 0 <= index < len(series.frames):
        raise NotFound(f"series {series.id} has frames 0 to {len(series.frames) - 1}")
    return series.frames[index]


def frame_bytes(pixel: PixelFormat) -> int:
    """Bytes of one frame's stored values."""
    return pixel.rows * pixel.columns * pixel.samples * np.dtype(pixel.dtype).itemsize


def _shape(pixel: PixelFormat) -> tuple[int, ...]:
    return (pixel.rows, pixel.columns) if pixel.samples == 1 else (pixel.rows, pixel.columns, pixel.samples)


def _little(pixel: PixelFormat) -> np.dtype[Any]:
    return np.dtype(pixel.dtype).newbyteorder("<")


def _checked(values: Values, series: Series, frame: Frame) -> Values:
    """Decoded values in the series' layout. Raises `UndecodableFrame` if they are of another."""
    if values.shape != _shape(series.pixel) or values.dtype != np.dtype(series.pixel.dtype):
        raise UndecodableFrame(
            f"frame {frame.index} of series {series.id} decodes to {values.shape} {values.dtype}, "
            f"its header says {_shape(series.pixel)} {series.pixel.dtype}"
        )
    return values.astype(_little(series.pixel), copy=False)


def _only_slices_turn(display: DisplayOrder) -> bool:
    return not (display.transpose or display.flip_rows or display.flip_columns)
