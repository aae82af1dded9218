"""Whether pictures form a uniform grid in the patient, and why not, in a clinician's words.

How uniform is uniform: each picture lies within 0.01 mm, or within 1 % of the distance between slices where that is
more, of its place in a straight and even row. Positions are decimal strings that writers round to hundredths of a
millimetre, so 0.01 mm is what rounding alone may do; 1 % is the most by which a distance would be wrong. The row may
lean off the slices' normal by 0.1 degrees, which is what cosines of three decimals leave; the grid keeps the lean, and
more of it is a tilt. Cosines of two pictures may differ by 0.001, which moves the far corner of a 250 mm picture by a
quarter of a millimetre.

Source: DICOM PS3.3 C.7.6.2.1.1; the arithmetic is ours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backend.domain.view import PicturePlane
from backend.domain.volume import FloatArray

POSITION_TOLERANCE_MM = 0.01
POSITION_TOLERANCE_PART = 0.01
LEAN_TOLERANCE_DEG = 0.1
COSINE_TOLERANCE = 0.001
SPACING_TOLERANCE_PART = 0.001


@dataclass(frozen=True, slots=True)
class Stack:
    """Pictures in their order along the normal.

    Attributes:
        order: Places in the sequence that was given, lowest first.
        step_lps_mm: From one slice to the next; None where the pictures form no uniform grid.
        reason: Why they form none; None where they do.
    """

    order: tuple[int, ...]
    step_lps_mm: FloatArray | None
    reason: str | None


def stack_planes(planes: Sequence[PicturePlane], *, may_be_tilted_gantry: bool) -> Stack:
    """Order two or more planes by position along row x column, and judge whether they form a grid.

    Args:
        planes: In the order that holds where position does not decide.
        may_be_tilted_gantry: Whether a lean is called a gantry tilt (CT).
    """
    if (turned := _turned(planes)) is not None:
        return Stack(tuple(range(len(planes))), None, turned)
    positions_along = along_normal(planes)
    order = tuple(int(n) for n in np.argsort(positions_along, kind="stable"))
    along = positions_along[list(order)]
    places = np.array([planes[n].origin_lps_mm for n in order])
    reason = (
        _unequal_spacing(planes)
        or _same_place(along)
        or _uneven(along)
        or _off_line(places)
        or _lean(places, along, may_be_tilted_gantry)
    )
    step = None if reason else (places[-1] - places[0]) / (len(places) - 1)
    return Stack(order, step, reason)


def along_normal(planes: Sequence[PicturePlane]) -> FloatArray:
    """Where each plane lies along the mean normal, row x column, in mm."""
    rows, columns = np.array([(plane.row_direction_lps, plane.column_direction_lps) for plane in planes]).swapaxes(0, 1)
    normal = np.cross(rows, columns).mean(axis=0)
    positions: FloatArray = np.array([plane.origin_lps_mm for plane in planes]) @ (normal / np.linalg.norm(normal))
    return positions


def _turned(planes: Sequence[PicturePlane]) -> str | None:
    cosines = np.array([(plane.row_direction_lps, plane.column_direction_lps) for plane in planes]).reshape(-1, 6)
    if np.abs(cosines - cosines[0]).max() <= COSINE_TOLERANCE:
        return None
    normals = np.cross(cosines[:, :3], cosines[:, 3:])
    angle = math.degrees(math.acos(float(np.clip(normals @ normals[0], -1, 1).min())))
    if angle < LEAN_TOLERANCE_DEG:
        return "the slices are turned against each other in their own plane"
    return f"the slices are turned against each other, by up to {angle:.1f} degrees"


def _unequal_spacing(planes: Sequence[PicturePlane]) -> str | None:
    spacings = np.array([plane.spacing_row_column_mm for plane in planes])
    if np.ptp(spacings, axis=0).max() <= SPACING_TOLERANCE_PART * spacings.min():
        return None
    return "the slices differ in pixel spacing"


def _same_place(along: FloatArray) -> str | None:
    """Slices closer than rounding can tell apart are at one place: repeats, times or weightings."""
    places = 1 + int((np.diff(along) > POSITION_TOLERANCE_MM).sum())
    if places == len(along):
        return None
    if places == 1:
        return f"all {len(along)} pictures lie at the same place"
    return f"several pictures lie at the same place: {len(along)} pictures at {places} places"


def _uneven(along: FloatArray) -> str | None:
    gaps = np.diff(along)
    even = np.linspace(along[0], along[-1], len(along))
    typical = float(np.median(gaps))
    if np.abs(along - even).max() <= _tolerance_mm((along[-1] - along[0]) / (len(along) - 1)):
        return None
    least = float(gaps.min())
    multiples = np.round(gaps / least)
    missing = int((multiples - 1).sum())
    is_gap = np.abs(gaps - multiples * least).max() <= _tolerance_mm(typical) and np.median(multiples) == 1
    if is_gap and missing < len(along):
        at = int(np.argmax(multiples))
        lead = "one slice is missing" if missing == 1 else f"{missing} slices are missing"
        return f"{lead}: slices {at + 1} and {at + 2} are {gaps[at]:.2f} mm apart and their neighbours {least:.2f} mm"
    return f"the distance between slices varies from {least:.2f} to {float(gaps.max()):.2f} mm"


def _lean(places: FloatArray, along: FloatArray, may_be_tilted_gantry: bool) -> str | None:
    """The angle between the row of slices and their normal."""
    length = float(np.linalg.norm(places[-1] - places[0]))
    angle = math.degrees(math.acos(min(1.0, float(along[-1] - along[0]) / length)))
    if angle <= LEAN_TOLERANCE_DEG:
        return None
    what = "the gantry was tilted" if may_be_tilted_gantry else "the slices are stacked at a slant"
    return f"{what}, by {angle:.1f} degrees"


def _off_line(places: FloatArray) -> str | None:
    even = np.linspace(places[0], places[-1], len(places))
    off_mm = float(np.linalg.norm(places - even, axis=1).max())
    step_mm = float(np.linalg.norm(places[-1] - places[0])) / (len(places) - 1)
    # The lean that is allowed, once more: the row may be bent by as much.
    allowed = _tolerance_mm(step_mm) + math.tan(math.radians(LEAN_TOLERANCE_DEG)) * step_mm
    return None if off_mm <= allowed else f"the slices are shifted against each other, by up to {off_mm:.2f} mm"


def _tolerance_mm(step_mm: float) -> float:
    return max(POSITION_TOLERANCE_MM, POSITION_TOLERANCE_PART * step_mm)
