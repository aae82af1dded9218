"""A series as JSON and back.

Frames of one series share their rescale, their windows and their directions, so these are written once and named by
their place in a list: the 1,500 frames of a long CT take 100 kB instead of a megabyte.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from backend.domain.study import Frame, FrameValues, Photometric, PixelFormat, Series, SeriesKind, SpacingSource
from backend.domain.view import DisplayOrder, PicturePlane, VoiLutFunction, Window
from backend.domain.volume import FloatArray, VolumeGeometry

Json = dict[str, Any]


def encode(series: Series) -> tuple[Json, list[Any]]:
    """`(layout, frames)` as the columns of a series row hold them."""
    values: dict[FrameValues, int] = {}
    directions: dict[tuple[float, ...], int] = {}
    frames = [
        [
            frame.instance_id,
            frame.frame_number,
            values.setdefault(frame.values, len(values)),
            _encode_plane(frame.plane, directions),
            None if frame.spacing_row_column_mm is None else list(frame.spacing_row_column_mm),
            frame.time_ms,
        ]
        for frame in series.frames
    ]
    layout = {
        "kind_reason": series.kind_reason,
        "unit": series.unit,
        "spacing_source": series.spacing_source.value,
        "pixel": [
            series.pixel.rows,
            series.pixel.columns,
            series.pixel.samples,
            series.pixel.dtype,
            series.pixel.photometric.value,
        ],
        "display": [
            series.display.transpose,
            series.display.flip_rows,
            series.display.flip_columns,
            series.display.reverse_slices,
        ],
        "geometry": _encode_geometry(series.geometry),
        "values": [_encode_values(entry) for entry in values],
        "directions": [list(entry) for entry in directions],
    }
    return layout, frames


def decode(row: Mapping[str, Any]) -> Series:
    """A series from the columns of its row, as `encode` wrote `layout` and `frames`."""
    layout: Json = row["layout"]
    rows, columns, samples, dtype, photometric = layout["pixel"]
    return Series(
        id=row["id"],
        study_id=row["study_id"],
        project_id=row["project_id"],
        modality=row["modality"],
        description=row["description"],
        number=row["number"],
        kind=SeriesKind(row["kind"]),
        kind_reason=layout["kind_reason"],
        pixel=PixelFormat(rows, columns, samples, dtype, Photometric(photometric)),
        unit=layout["unit"],
        spacing_source=SpacingSource(layout["spacing_source"]),
        geometry=_decode_geometry(layout["geometry"]),
        display=DisplayOrder(*layout["display"]),
        frames=_decode_frames(row["frames"], layout),
    )


def encode_window(window: Window) -> Json:
    """A window as JSON."""
    return {
        "center": window.center,
        "width": window.width,
        "function": window.function.value,
        "label": window.label,
    }


def decode_window(written: Json) -> Window:
    """A window from what `encode_window` wrote."""
    return Window(written["center"], written["width"], VoiLutFunction(written["function"]), written["label"])


def _encode_plane(plane: PicturePlane | None, directions: dict[tuple[float, ...], int]) -> list[float] | None:
    if plane is None:
        return None
    direction = (
        *plane.row_direction_lps.tolist(),
        *plane.column_direction_lps.tolist(),
        *(float(distance) for distance in plane.spacing_row_column_mm),
    )
    return [*plane.origin_lps_mm.tolist(), directions.setdefault(direction, len(directions))]


def _encode_geometry(geometry: VolumeGeometry | None) -> Json | None:
    if geometry is None:
        return None
    return {
        "shape": list(geometry.shape_kji),
        "affine": geometry.affine_kji_to_lps_mm.tolist(),
        "frame_of_reference_uid": geometry.frame_of_reference_uid,
    }


def _encode_values(values: FrameValues) -> Json:
    return {
        "slope": values.slope,
        "intercept": values.intercept,
        "padding": None if values.padding is None else list(values.padding),
        "windows": [encode_window(window) for window in values.windows],
    }


def _decode_geometry(written: Json | None) -> VolumeGeometry | None:
    if written is None:
        return None
    slices, rows, columns = written["shape"]
    return VolumeGeometry(
        (slices, rows, columns), np.array(written["affine"], dtype=np.float64), written["frame_of_reference_uid"]
    )


def _decode_frames(written: Sequence[Any], layout: Json) -> tuple[Frame, ...]:
    values = [_decode_values(entry) for entry in layout["values"]]
    directions = [_Direction(entry) for entry in layout["directions"]]
    return tuple(
        Frame(
            index=index,
            instance_id=instance_id,
            frame_number=frame_number,
            values=values[values_at],
            plane=None if plane is None else directions[plane[3]].plane_at(plane[:3]),
            spacing_row_column_mm=None if spacing is None else (spacing[0], spacing[1]),
            time_ms=time_ms,
        )
        for index, (instance_id, frame_number, values_at, plane, spacing, time_ms) in enumerate(written)
    )


def _decode_values(written: Json) -> FrameValues:
    padding = written["padding"]
    return FrameValues(
        slope=written["slope"],
        intercept=written["intercept"],
        padding=None if padding is None else (padding[0], padding[1]),
        windows=tuple(decode_window(window) for window in written["windows"]),
    )


class _Direction:
    """What planes share; their arrays are read-only, as they are shared."""

    def __init__(self, written: Sequence[float]) -> None:
        self._row, self._column = _read_only(written[:3]), _read_only(written[3:6])
        self._spacing = (written[6], written[7])

    def plane_at(self, origin: Sequence[float]) -> PicturePlane:
        return PicturePlane(_read_only(origin), self._row, self._column, self._spacing)


def _read_only(numbers: Sequence[float]) -> FloatArray:
    array = np.array(numbers, dtype=np.float64)
    array.flags.writeable = False
    return array
