"""The two lungs of a frontal chest X-ray: rules propose a box for each, LiteMedSAM outlines what is in it.

The rules were made while looking at four public frontal films (one source, adults, no large opacity), which are also
what `serpens bench segment` measures: n = 4 says that the parts fit together, not how good this is on another film.
Known not to work: a lung that is white throughout, a lateral film, a film that is cut through a lung.
"""

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.measure import label, regionprops
from skimage.segmentation import clear_border

from annotation.segmenters.finding import BoolArray, Finding, OutlineBox, absent
from backend.domain.segmenter import CanonicalPicture

_SIDE = 256
# The darkest share of the film that a threshold takes, in steps: lungs fill 20 to 40 % of a frontal film.
_SHARES = range(10, 62, 2)
# One lung's dark core, as a share of the film, and its shape: it fills most of its convex hull and stands upright.
_CORE_LEAST, _CORE_MOST = 0.02, 0.25
_CORE_SOLIDITY = 0.7
_CORE_UPRIGHT = 1.1
# A core may cross the middle of the film by a tenth of its width.
_CROSSING = 0.1
# A threshold finds the core and not the rim behind ribs and clavicle; the model finds the rim if the box holds it.
_BOX_MARGIN = 0.08
_SECOND_MARGIN = 0.03
# What the answer must be to be accepted.
_LUNG_LEAST, _LUNG_MOST = 0.025, 0.30
_PREDICTED_IOU_LEAST = 0.7
_CONTRAST_LEAST = 12.0

_Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class _Core:
    """A dark region as large as a lung's core: its box (edges in pixels of the film) and area in small pixels."""

    box: _Box
    area: float


def find_lungs(picture: CanonicalPicture, outline_box: OutlineBox) -> Finding:
    """Both lungs, or "not present".

    They are accepted if a core is found on each side of the middle, the model expects an IoU of 0.7 or more for each,
    each fills 2.5 to 30 % of the film, and each is darker by 12 of 255 grey levels than what surrounds it. The heart's
    part in front of the left lung is not in it, as in the usual reference masks.
    """
    grey = picture.pixels if picture.pixels.ndim == 2 else cv2.cvtColor(picture.pixels, cv2.COLOR_RGB2GRAY)
    rows, columns = grey.shape
    cores = _cores(grey)
    if cores is None:
        return absent(rows, columns)
    lungs = np.zeros((rows, columns), dtype=np.bool_)
    scores, grid = [], None
    for core in cores:
        first = outline_box(_widened(core.box, _BOX_MARGIN, rows, columns))
        second_box = _box_of(first.mask)
        if second_box is None:
            return absent(rows, columns)
        answer = outline_box(_widened(second_box, _SECOND_MARGIN, rows, columns))
        lung = _largest_part(answer.mask)
        if answer.predicted_iou < _PREDICTED_IOU_LEAST or not _looks_like_a_lung(lung, grey):
            return absent(rows, columns)
        lungs |= lung
        scores.append(answer.predicted_iou)
        grid = answer.grid
    return Finding(mask=lungs, is_present=True, score=min(scores), grid=grid)


def _cores(grey: NDArray[np.uint8]) -> tuple[_Core, _Core] | None:
    """For each half of the film the largest dark inner region that could be a lung, over all thresholds."""
    scale = _SIDE / max(grey.shape)
    size = max(1, round(grey.shape[1] * scale)), max(1, round(grey.shape[0] * scale))
    small = cv2.GaussianBlur(cv2.resize(grey, size, interpolation=cv2.INTER_AREA), (0, 0), 2.0).astype(np.float32)
    best: list[_Core | None] = [None, None]
    for share in _SHARES:
        # The dark air beside the patient touches the border and goes with it.
        dark = clear_border(ndimage.binary_opening(small < np.percentile(small, share), iterations=2))
        for region in regionprops(label(dark)):
            half = 0 if region.centroid[1] < size[0] / 2 else 1
            found = best[half]
            if _could_be_a_core(region, size, half) and (found is None or region.area > found.area):
                top, left, bottom, right = (float(edge) / scale for edge in region.bbox)
                best[half] = _Core(box=(left, top, right, bottom), area=float(region.area))
    left_core, right_core = best
    return None if left_core is None or right_core is None else (left_core, right_core)


def _could_be_a_core(region: Any, size: tuple[int, int], half: int) -> bool:
    top, left, bottom, right = region.bbox
    share = region.area / (size[0] * size[1])
    middle = size[0] / 2
    over_the_middle = right - middle if half == 0 else middle - left
    return bool(
        _CORE_LEAST <= share <= _CORE_MOST
        and bottom - top >= _CORE_UPRIGHT * (right - left)
        and over_the_middle <= _CROSSING * size[0]
        and region.solidity >= _CORE_SOLIDITY
    )


def _widened(box: _Box, margin: float, rows: int, columns: int) -> _Box:
    x0, y0, x1, y1 = box
    across, down = margin * (x1 - x0), margin * (y1 - y0)
    return max(0.0, x0 - across), max(0.0, y0 - down), min(columns, x1 + across), min(rows, y1 + down)


def _largest_part(mask: BoolArray) -> BoolArray:
    _, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8))
    if len(stats) < 2:
        return mask
    part: BoolArray = labels == 1 + int(np.argmax(stats[1:, cv2.CC_STAT_AREA]))
    filled: BoolArray = ndimage.binary_fill_holes(part)
    return filled


def _box_of(mask: BoolArray) -> _Box | None:
    rows, columns = np.nonzero(_largest_part(mask))
    if rows.size < 2:
        return None
    return float(columns.min()), float(rows.min()), float(columns.max() + 1), float(rows.max() + 1)


def _looks_like_a_lung(lung: BoolArray, grey: NDArray[np.uint8]) -> bool:
    share = lung.mean()
    if not _LUNG_LEAST <= share <= _LUNG_MOST:
        return False
    reach = max(2, round(max(grey.shape) / 40))
    kernel = np.ones((2 * reach + 1, 2 * reach + 1), dtype=np.uint8)
    ring = (cv2.dilate(lung.astype(np.uint8), kernel) > 0) & ~lung
    return bool(np.median(grey[ring]) - np.median(grey[lung]) >= _CONTRAST_LEAST)
