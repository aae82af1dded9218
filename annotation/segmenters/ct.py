"""Body, lungs, bone, air and fat of one CT slice, from HU and connectivity. Rules, no model.

Slices are taken as they come: nothing is assumed of the plane or the side. Areas that a target must have are fractions
of the picture or of the body, so that they hold without a known spacing.
"""

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from annotation.segmenters.finding import BoolArray, Finding, absent
from backend.domain.segmenter import CanonicalPicture, ToolError

HuArray = NDArray[np.float32]

# Limits in HU. Soft tissue and fat lie above -300, aerated lung and gas below -400.
_BODY_ABOVE = -300.0
_GAS_BELOW = -400.0
_BONE_ABOVE = 200.0
_FAT_FROM, _FAT_TO = -190.0, -30.0
# Aerated lung has tissue in it; free gas (trachea, bowel, sinuses) has a median close to -1000.
_LUNG_MEDIAN_FROM, _LUNG_MEDIAN_TO = -960.0, -500.0

# Least areas: of the picture for the body, of the body for the rest.
_BODY_LEAST = 0.05
_LUNGS_LEAST = 0.04
_ONE_LUNG_LEAST = 0.01
_BONE_LEAST = 0.003
_AIR_LEAST = 0.0005
_FAT_LEAST = 0.01


def hounsfield(picture: CanonicalPicture) -> HuArray:
    """The slice in HU, its noise of single pixels taken off by a 3 x 3 median.

    Raises:
        ToolError: If the picture has no values in HU: a grey level under a window is none.
    """
    if picture.values is None or picture.unit != "HU":
        raise ToolError(
            "finding by name in CT needs CT numbers in HU; this picture has "
            + ("grey levels only" if picture.values is None else f"values in unit {picture.unit or 'unknown'}")
            + ": use a box or points"
        )
    finite = np.nan_to_num(picture.values, nan=-1024.0, posinf=3071.0, neginf=-1024.0)
    smooth: HuArray = cv2.medianBlur(np.ascontiguousarray(finite, dtype=np.float32), 3)
    return smooth


def find_body(picture: CanonicalPicture) -> Finding:
    """The patient with all that is inside, without the table: present from 5 % of the picture."""
    return _accepted(_body(hounsfield(picture)), least=_BODY_LEAST * picture.pixels.shape[0] * picture.pixels.shape[1])


def find_lungs(picture: CanonicalPicture) -> Finding:
    """Aerated lung with its small vessels: present from 4 % of the body.

    A part counts from 1 % of the body if its median is that of lung and not of free gas, -960 to -500 HU. The trachea
    and the main bronchi stay out where a wall parts them from the lung in this slice. Consolidated lung is not found.
    """
    values = hounsfield(picture)
    body = _body(values)
    gas = ndimage.binary_opening(body & (values < _GAS_BELOW), iterations=_reach(values))
    lungs = np.zeros_like(body)
    labels, count = ndimage.label(gas)
    for label in range(1, count + 1):
        part = labels == label
        median = float(np.median(values[part]))
        if part.sum() >= _ONE_LUNG_LEAST * body.sum() and _LUNG_MEDIAN_FROM <= median <= _LUNG_MEDIAN_TO:
            lungs |= part
    closed = ndimage.binary_closing(np.pad(lungs, 8), iterations=2 * _reach(values))[8:-8, 8:-8]
    return _accepted(_holes_filled(closed & body, 0.01 * body.sum()), least=_LUNGS_LEAST * body.sum())


def find_bone(picture: CanonicalPicture) -> Finding:
    """What is above 200 HU in the body: present from 0.3 % of it. Dense contrast agent and metal are in it too."""
    values = hounsfield(picture)
    body = _body(values)
    bone = _without_specks(body & (values > _BONE_ABOVE), 0.0002 * body.sum())
    return _accepted(bone, least=_BONE_LEAST * body.sum())


def find_air(picture: CanonicalPicture) -> Finding:
    """Gas inside the body (lungs, airways, bowel, sinuses), below -400 HU: present from 0.05 % of the body."""
    values = hounsfield(picture)
    body = _body(values)
    air = _without_specks(body & (values < _GAS_BELOW), 0.0002 * body.sum())
    return _accepted(air, least=_AIR_LEAST * body.sum())


def find_fat(picture: CanonicalPicture) -> Finding:
    """Fat, -190 to -30 HU, without the thin rims where air and tissue share a voxel: present from 1 % of the body."""
    values = hounsfield(picture)
    body = _body(values)
    fat = ndimage.binary_opening(body & (values >= _FAT_FROM) & (values <= _FAT_TO), iterations=_reach(values))
    return _accepted(_without_specks(fat, 0.0002 * body.sum()), least=_FAT_LEAST * body.sum())


def _reach(values: HuArray) -> int:
    """Steps of an opening: 1 for 512 pixels, so that what is thinner than 3 pixels goes."""
    longest: int = max(values.shape)
    return max(1, round(longest / 512))


def _body(values: HuArray) -> BoolArray:
    # Holes are filled first: of a lean chest or a head phantom a thin wall is all that is solid, and an opening that
    # takes the table off would break it.
    solid = ndimage.binary_fill_holes(values > _BODY_ABOVE)
    labels, count = ndimage.label(ndimage.binary_opening(solid, iterations=4 * _reach(values)))
    areas = np.bincount(labels.ravel())
    areas[0] = 0
    if count == 0:
        return np.zeros(values.shape, dtype=np.bool_)
    # Both legs are body; what is far smaller beside it is table, tube or hand rest.
    body: BoolArray = (areas >= 0.2 * areas.max())[labels]
    return body


def _without_specks(mask: BoolArray, least: float) -> BoolArray:
    labels, _ = ndimage.label(mask)
    keep = np.bincount(labels.ravel()) >= max(least, 4)
    keep[0] = False
    kept: BoolArray = keep[labels]
    return kept


def _holes_filled(mask: BoolArray, most: float) -> BoolArray:
    """Holes up to `most` pixels filled: vessels and nodules in a lung, not a heart between two."""
    holes = ndimage.binary_fill_holes(mask) & ~mask
    labels, _ = ndimage.label(holes)
    small = np.bincount(labels.ravel()) <= most
    small[0] = False
    filled: BoolArray = mask | small[labels]
    return filled


def _accepted(mask: BoolArray, *, least: float) -> Finding:
    if mask.sum() < max(least, 1):
        return absent(*mask.shape)
    return Finding(mask=mask, is_present=True)
