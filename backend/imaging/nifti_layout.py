"""How the slices of a NIfTI are shown. It has no order of its own for the screen: its pictures are turned to the one
that a radiologist expects, the stored grid stays as it is (DESIGN 3)."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from backend.domain.study import Frame, FrameValues, SeriesKind
from backend.domain.view import DisplayOrder, PicturePlane
from backend.domain.volume import FloatArray, VolumeGeometry
from backend.imaging.stack import LEAN_TOLERANCE_DEG

# For slices across x, y and z: the axis and sign of LPS that a picture's rows run to, and its columns.
# Sagittal: anterior on the left, head on top. Coronal and axial: patient right on the left, head or anterior on top.
_SCREEN = {0: ((1, 1), (2, -1)), 1: ((0, 1), (2, -1)), 2: ((0, 1), (1, 1))}
NO_PLACE = "the file does not say how the patient lies in it"


@dataclass(frozen=True, slots=True)
class FileLayout:
    """What arranging decides about a file that is a series of its own."""

    kind: SeriesKind
    kind_reason: str | None
    geometry: VolumeGeometry | None
    display: DisplayOrder
    frames: tuple[Frame, ...] = field(repr=False)


def arrange_nifti(facts: dict[str, Any], instance_id: str) -> FileLayout:
    """Slices in the order they are shown, each with its plane as shown; the times of a 4D file one after the other."""
    stored = facts["affine_kji_to_lps_mm"]
    affine = None if stored is None else np.array(stored, dtype=np.float64)
    display = DisplayOrder() if affine is None else display_order(affine)
    kind, reason = _kind(facts, affine)
    is_square = affine is not None and _lean_deg(affine[:3, 1], affine[:3, 2]) <= LEAN_TOLERANCE_DEG
    values = FrameValues(slope=facts["slope"], intercept=facts["intercept"])
    spacing = facts["spacing_kji_mm"]
    pair = None if spacing is None else (spacing[2], spacing[1]) if display.transpose else (spacing[1], spacing[2])
    frames = []
    for index in range(facts["frames"]):
        volume, shown = divmod(index, facts["slices"])
        k = display.stored_slice(shown, facts["slices"])
        plane = _shown_plane(affine, display, facts, k) if affine is not None and is_square else None
        frames.append(Frame(index, instance_id, volume * facts["slices"] + k, values, plane, pair))
    geometry = None
    if kind is SeriesKind.VOLUME and affine is not None:
        geometry = VolumeGeometry((facts["slices"], facts["rows"], facts["columns"]), affine)
    return FileLayout(kind, reason, geometry, display, tuple(frames))


def display_order(affine_kji_to_lps_mm: FloatArray) -> DisplayOrder:
    """How stored slices `[j, i]` are turned to the radiological picture of the plane that they are nearest to."""
    axes = nearest_axes(affine_kji_to_lps_mm)
    row_axis, column_axis = _SCREEN[axes[0]]
    transpose = axes[2] != row_axis[0]
    # After a transpose the stored j runs across the picture and i down it.
    across, down = (1, 2) if transpose else (2, 1)
    directions = affine_kji_to_lps_mm[:3, :3]
    flip_columns = directions[row_axis[0], across] * row_axis[1] < 0
    flip_rows = directions[column_axis[0], down] * column_axis[1] < 0
    # Shown as DICOM's order would be: ascending along the picture's rows x columns.
    row, column = np.zeros(3), np.zeros(3)
    row[row_axis[0]], column[column_axis[0]] = row_axis[1], column_axis[1]
    reverse_slices = float(directions[:, 0] @ np.cross(row, column)) < 0
    return DisplayOrder(transpose, bool(flip_rows), bool(flip_columns), reverse_slices)


def nearest_axes(affine_kji_to_lps_mm: FloatArray) -> tuple[int, int, int]:
    """Which patient axis (0 x, 1 y, 2 z) each of k, j and i runs along most; no two the same.

    The largest cosine is given away first, as one axis may be the nearest of two in an oblique grid.
    """
    cosines = np.abs(affine_kji_to_lps_mm[:3, :3] / np.linalg.norm(affine_kji_to_lps_mm[:3, :3], axis=0))
    axes = [0, 0, 0]
    for _ in range(3):
        patient, index = divmod(int(np.argmax(cosines)), 3)
        axes[index] = patient
        cosines[patient, :] = -1
        cosines[:, index] = -1
    return axes[0], axes[1], axes[2]


def _kind(facts: dict[str, Any], affine: FloatArray | None) -> tuple[SeriesKind, str | None]:
    if facts["frames"] == 1:
        return SeriesKind.PICTURE, None
    if facts["frames"] > facts["slices"]:
        times = facts["frames"] // facts["slices"]
        return SeriesKind.PICTURES, f"{times} volumes of {facts['slices']} slices in one file, one after the other"
    if affine is None:
        return SeriesKind.PICTURES, NO_PLACE
    lean = max(_lean_deg(affine[:3, a], affine[:3, b]) for a, b in ((0, 1), (0, 2), (1, 2)))
    if lean > LEAN_TOLERANCE_DEG:
        return SeriesKind.PICTURES, f"the grid is sheared, by {lean:.1f} degrees"
    return SeriesKind.VOLUME, None


def _lean_deg(first: FloatArray, second: FloatArray) -> float:
    """How far two axes are from a right angle."""
    cosine = float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second)))
    return abs(90.0 - float(np.degrees(np.arccos(np.clip(cosine, -1, 1)))))


def _shown_plane(affine: FloatArray, display: DisplayOrder, facts: dict[str, Any], k: int) -> PicturePlane:
    """The plane of stored slice k as it is shown, after `display`."""
    rows, columns = facts["rows"], facts["columns"]
    down, across = (affine[:3, 2], affine[:3, 1]) if display.transpose else (affine[:3, 1], affine[:3, 2])
    height, width = (columns, rows) if display.transpose else (rows, columns)
    origin = affine[:3, 3] + k * affine[:3, 0]
    if display.flip_rows:
        origin, down = origin + (height - 1) * down, -down
    if display.flip_columns:
        origin, across = origin + (width - 1) * across, -across
    spacing_row, spacing_column = float(np.linalg.norm(down)), float(np.linalg.norm(across))
    return PicturePlane(origin, across / spacing_column, down / spacing_row, (spacing_row, spacing_column))
