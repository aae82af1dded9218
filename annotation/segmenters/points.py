"""What holds the points with label 1 and none with label 0, by classical image processing.

Each inside point grows a region of pixels that are like its neighbourhood and connected to it. Where an outside point
lies in what has grown, a random walk decides between the two kinds of points within that region. Rules, no model.
"""

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray
from skimage.segmentation import random_walker

from backend.domain.segmenter import PointPixels, PointsPrompt, UnusablePrompt

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float32]

# In grey levels of 255: below the least, noise of a rendered picture stops the growth.
_TOLERANCES = range(6, 61, 3)
# One step of tolerance that adds this share of the picture, and this much to the region, has leaked out of it.
_LEAP_OF_PICTURE = 0.015
_LEAP_OF_REGION = 1.15
# The tolerance is chosen on a smaller picture, so that the time does not depend on the size.
_CHOICE_SIDE = 512
# The walk solves a sparse system of this many squared unknowns at most: 0.4 s on two cores.
_WALK_SIDE = 192


def grow_from_points(pixels: NDArray[np.uint8], prompt: PointsPrompt) -> BoolArray:
    """Outline what the points mean.

    Args:
        pixels: (rows, columns) or (rows, columns, 3) uint8.

    Returns:
        (rows, columns); every inside point's pixel is set, no outside point's is.

    Raises:
        UnusablePrompt: If the points contradict each other or lie outside the picture (`PointsPrompt.usable`), or an
            inside and an outside point are too close to be told apart.
    """
    places = prompt.usable(pixels.shape[0], pixels.shape[1])
    smooth = cv2.GaussianBlur(pixels, (0, 0), 1.0).astype(np.float32).reshape(*pixels.shape[:2], -1)
    grown = np.zeros(pixels.shape[:2], dtype=np.bool_)
    for row, column in places.inside:
        if not grown[row, column]:
            grown |= _grown(smooth, row, column)
    grown = _without_small_holes(grown)
    reached = [at for at in places.outside if grown[at]]
    if not reached:
        return grown
    return _walked(smooth, grown, PointPixels(inside=places.inside, outside=reached))


def _grown(smooth: FloatArray, row: int, column: int) -> BoolArray:
    """The pixels that are connected to a seed and like it in grey or colour."""
    distance = _distance_to_seed(smooth, row, column)
    scale = min(1.0, _CHOICE_SIDE / max(distance.shape))
    size = max(1, round(distance.shape[1] * scale)), max(1, round(distance.shape[0] * scale))
    small = cv2.resize(distance, size, interpolation=cv2.INTER_AREA)
    tolerance = _chosen_tolerance(small, min(int(row * scale), size[1] - 1), min(int(column * scale), size[0] - 1))
    return _connected(distance, max(tolerance, float(distance[row, column])), row, column)


def _distance_to_seed(smooth: FloatArray, row: int, column: int) -> FloatArray:
    """For each pixel how far its grey or colour is from the seed's neighbourhood; (rows, columns)."""
    reach = max(2, round(max(smooth.shape[:2]) / 200))
    patch = smooth[max(0, row - reach) : row + reach + 1, max(0, column - reach) : column + reach + 1]
    centre = np.median(patch.reshape(-1, smooth.shape[2]), axis=0)
    # A seed on something smaller than its neighbourhood means that, and not what is around it.
    if np.abs(centre - smooth[row, column]).max() > _TOLERANCES[-1] / 2:
        centre = smooth[row, column]
    distance: FloatArray = np.linalg.norm(smooth - centre, axis=2).astype(np.float32)
    return distance


def _chosen_tolerance(distance: FloatArray, row: int, column: int) -> float:
    """The tolerance whose region has the steepest border, of those before the region leaks into what is around it.

    Source: Hojjatoleslami and Kittler, Region growing: a new approach, IEEE Trans. Image Processing 7(7), 1998.
    """
    slope = np.hypot(cv2.Sobel(distance, cv2.CV_32F, 1, 0), cv2.Sobel(distance, cv2.CV_32F, 0, 1))
    best, steepest, last_area = float(_TOLERANCES[0]), -1.0, 0
    for tolerance in _TOLERANCES:
        region = _connected(distance, max(tolerance, float(distance[row, column])), row, column)
        area = int(region.sum())
        has_leaked = area - last_area > _LEAP_OF_PICTURE * region.size and area > _LEAP_OF_REGION * last_area
        if last_area and has_leaked:
            break
        # On both sides of the edge, so that a region one pixel too small is not as steep as the right one.
        border = cv2.morphologyEx(region.astype(np.uint8), cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)) > 0
        steepness = float(slope[border].mean()) if border.any() else 0.0
        if steepness > steepest:
            best, steepest = float(tolerance), steepness
        last_area = area
    return best


def _connected(distance: FloatArray, tolerance: float, row: int, column: int) -> BoolArray:
    _, labels = cv2.connectedComponents((distance <= tolerance).astype(np.uint8), connectivity=4)
    region: BoolArray = labels == labels[row, column]
    return region


def _without_small_holes(region: BoolArray) -> BoolArray:
    """Holes of less than 2 % of the region are noise or vessels in it; larger ones are something else."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats((~region).astype(np.uint8), connectivity=4)
    limit = 0.02 * region.sum()
    rows, columns = region.shape
    filled = region.copy()
    for label in range(1, count):
        x, y, width, height, area = stats[label]
        touches_edge = x == 0 or y == 0 or x + width == columns or y + height == rows
        if area <= limit and not touches_edge:
            filled[labels == label] = True
    return filled


def _walked(smooth: FloatArray, region: BoolArray, places: PointPixels) -> BoolArray:
    """Divide a region between its inside and its outside points.

    Source: Grady, Random walks for image segmentation, IEEE PAMI 28(11), 2006.
    """
    rows, columns = np.nonzero(region)
    top, left, bottom, right = rows.min(), columns.min(), rows.max() + 1, columns.max() + 1
    scale = min(1.0, _WALK_SIDE / max(bottom - top, right - left))
    size = max(1, round((right - left) * scale)), max(1, round((bottom - top) * scale))
    picture = cv2.resize(smooth[top:bottom, left:right], size, interpolation=cv2.INTER_AREA).reshape(
        size[1], size[0], -1
    )
    allowed = cv2.resize(region[top:bottom, left:right].astype(np.uint8), size, interpolation=cv2.INTER_NEAREST) > 0
    seeds = np.where(allowed, 0, -1).astype(np.int32)

    def cells(at: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
        in_crop = [(row, column) for row, column in at if top <= row < bottom and left <= column < right]
        return {
            (min(int((r - top + 0.5) * scale), size[1] - 1), min(int((c - left + 0.5) * scale), size[0] - 1))
            for r, c in in_crop
        }

    inside, outside = cells(places.inside), cells(places.outside)
    if inside & outside:
        raise UnusablePrompt(
            f"an inside and an outside point are closer than {1 / scale:.0f} pixels and cannot be told apart here"
        )
    for label, cell_set in ((1, inside), (2, outside)):
        for cell in cell_set:
            seeds[cell] = label
    likely = random_walker(picture / 255.0, seeds, beta=2000, mode="bf", channel_axis=-1, return_full_prob=True)[0]
    # Cells that no seed reaches have no probability.
    likely = np.nan_to_num(likely).astype(np.float32)
    full = cv2.resize(likely, (int(right - left), int(bottom - top)), interpolation=cv2.INTER_LINEAR)
    mask = np.zeros_like(region)
    mask[top:bottom, left:right] = (full > 0.5) & region[top:bottom, left:right]
    for row, column in places.inside:
        mask[row, column] = True
    for row, column in places.outside:
        mask[row, column] = False
    return mask
