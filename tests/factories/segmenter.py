"""Pictures for segmenters, with shapes whose places are known."""

import numpy as np
from numpy.typing import NDArray

from backend.domain.segmenter import CanonicalPicture


def disc(rows: int, columns: int, *, x: float, y: float, radius: float) -> NDArray[np.bool_]:
    """(rows, columns), set where a pixel's centre lies in the disc; x and y are edges."""
    j, i = np.mgrid[:rows, :columns]
    inside: NDArray[np.bool_] = np.hypot(i + 0.5 - x, j + 0.5 - y) <= radius
    return inside


def disc_picture(rows: int, columns: int, *, x: float, y: float, radius: float, modality: str = "") -> CanonicalPicture:
    """A bright disc (200) on dark ground (60) with the noise of an 8-bit picture, the same at each call."""
    noise = np.random.default_rng(7).normal(0, 4, (rows, columns))
    grey = np.where(disc(rows, columns, x=x, y=y, radius=radius), 200, 60) + noise
    return CanonicalPicture(np.clip(grey, 0, 255).astype(np.uint8), modality=modality)


def flat_noise(rows: int = 300, columns: int = 256, *, modality: str = "DX") -> CanonicalPicture:
    """Grey 128 with noise of 10: nothing is on it."""
    grey = np.random.default_rng(3).normal(128, 10, (rows, columns))
    return CanonicalPicture(np.clip(grey, 70, 186).astype(np.uint8), modality=modality)


def dice(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """2 |A and B| / (|A| + |B|)."""
    return float(2 * (one & other).sum() / (one.sum() + other.sum()))


def iou(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """|A and B| / |A or B|."""
    return float((one & other).sum() / (one | other).sum())


def chest_ct(size: int = 256) -> tuple[NDArray[np.float32], dict[str, NDArray[np.bool_]]]:
    """A round chest in HU with a fat rim, two lungs, a spine and a table, and the truth of each.

    Body: radius 100 at the middle, 40 HU; its outermost 10 pixels fat, -100 HU. Lungs: radius 30, -800 HU. Spine:
    radius 12, 600 HU. Trachea: radius 6, -1000 HU. Table: a strip of 3 rows below, 300 HU. Air outside: -1000 HU.
    """
    middle = size / 2
    body = disc(size, size, x=middle, y=middle, radius=100)
    inner = disc(size, size, x=middle, y=middle, radius=90)
    lungs = disc(size, size, x=middle - 45, y=middle, radius=30) | disc(size, size, x=middle + 45, y=middle, radius=30)
    spine = disc(size, size, x=middle, y=middle + 60, radius=12)
    trachea = disc(size, size, x=middle, y=middle - 50, radius=6)
    values = np.full((size, size), -1000, dtype=np.float32)
    values[body] = -100
    values[inner] = 40
    values[lungs] = -800
    values[spine] = 600
    values[trachea] = -1000
    values[size - 20 : size - 17] = 300
    truth = {"body": body, "fat": body & ~inner, "lungs": lungs, "bone": spine, "air": lungs | trachea}
    return values, truth


def ct_picture(values: NDArray[np.float32], *, unit: str | None = "HU") -> CanonicalPicture:
    """A CT slice under a window of width 1600 about -200 HU."""
    grey = np.clip((values + 1000) / 1600 * 255, 0, 255).astype(np.uint8)
    return CanonicalPicture(grey, values=values, modality="CT", unit=unit)
