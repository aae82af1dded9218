"""A view: one picture somebody looked at, and how its pixels lie on the series' own grid.

Two coordinates are in use. *Edges*: x = 0 is the left edge of the first pixel and x = width the right edge of the last,
so a box (x0, y0, x1, y1) covers whole pixels; boxes and points of tools are edges. *Indices*: whole numbers are centres
(index = edge - 0.5), which is what `affine_kji_to_lps_mm` takes. Crops are exact fractions, so that a chain of crops
composes exactly and only the picture itself is rounded to pixels. DESIGN 3.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from backend.domain.errors import InvalidRequest, ShapeError
from backend.domain.view import DisplayOrder, Window

Box = tuple[Fraction, Fraction, Fraction, Fraction]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class View:
    """A crop of one displayed frame, resized to `width` x `height` pixels.

    Attributes:
        series_id: The series it shows.
        frame_index: Place of the frame in the series, as shown.
        frame_width, frame_height: Size of the whole displayed frame in pixels.
        crop: (x0, y0, x1, y1), edges in pixels of the displayed frame.
        width, height: Size of the picture.
        window: None for colour.
    """

    series_id: str
    frame_index: int
    frame_width: int
    frame_height: int
    crop: Box
    width: int
    height: int
    window: Window | None

    def __post_init__(self) -> None:
        x0, y0, x1, y1 = self.crop
        if not (0 <= x0 < x1 <= self.frame_width and 0 <= y0 < y1 <= self.frame_height):
            raise InvalidRequest(f"a crop lies in its {self.frame_width} x {self.frame_height} frame and has an area")
        if self.width < 1 or self.height < 1:
            raise InvalidRequest("a view is at least one pixel wide and high")

    @property
    def is_exact(self) -> bool:
        """Whether the view has at least one pixel for every pixel of the frame, so that lifting loses nothing."""
        x0, y0, x1, y1 = self.crop
        return self.width >= x1 - x0 and self.height >= y1 - y0

    def to_frame(self, x: Fraction | float, y: Fraction | float) -> tuple[Fraction, Fraction]:
        """A point of the picture (edges) on the displayed frame (edges)."""
        x0, y0, x1, y1 = self.crop
        return x0 + Fraction(x) * (x1 - x0) / self.width, y0 + Fraction(y) * (y1 - y0) / self.height

    def from_frame(self, x: Fraction | float, y: Fraction | float) -> tuple[Fraction, Fraction]:
        """A point of the displayed frame (edges) on the picture (edges), beyond it where the crop ends before."""
        x0, y0, x1, y1 = self.crop
        return (Fraction(x) - x0) * self.width / (x1 - x0), (Fraction(y) - y0) * self.height / (y1 - y0)

    def zoomed(self, box: Box | tuple[float, float, float, float], *, width: int, height: int) -> "View":
        """The view of a box (edges of this picture), at another size."""
        x0, y0 = self.to_frame(box[0], box[1])
        x1, y1 = self.to_frame(box[2], box[3])
        return replace(self, crop=(x0, y0, x1, y1), width=width, height=height)


def whole_frame(series_id: str, frame_index: int, *, width: int, height: int, window: Window | None) -> View:
    """The view of a whole displayed frame, pixel for pixel."""
    crop = (Fraction(0), Fraction(0), Fraction(width), Fraction(height))
    return View(series_id, frame_index, width, height, crop, width, height, window)


def _pixel_of_each_centre(count: int, low: Fraction, high: Fraction, pixels: int) -> NDArray[np.int64]:
    """For each frame pixel along an axis, the view pixel that its centre falls in, or -1 where it falls outside."""
    scale = Fraction(pixels) / (high - low)
    places = [((Fraction(2 * at + 1, 2) - low) * scale).__floor__() for at in range(count)]
    found = np.array(places, dtype=np.int64)
    found[(found < 0) | (found >= pixels)] = -1
    return found


def lift_to_frame(mask: BoolArray, view: View) -> BoolArray:
    """Put a mask of a view on the displayed frame.

    A frame pixel is set if and only if its centre falls in a set pixel of the view. Where the view has less than one
    pixel for each (`view.is_exact` is False) the result must be marked resampled.

    Args:
        mask: (height, width) of the view.

    Returns:
        (frame_height, frame_width); outside the crop nothing is set.

    Raises:
        ShapeError: If the mask is not the view's size.
    """
    if mask.shape != (view.height, view.width):
        raise ShapeError(f"a mask of this view is ({view.height}, {view.width}), got {mask.shape}")
    x0, y0, x1, y1 = view.crop
    columns = _pixel_of_each_centre(view.frame_width, x0, x1, view.width)
    rows = _pixel_of_each_centre(view.frame_height, y0, y1, view.height)
    lifted = mask[np.ix_(np.maximum(rows, 0), np.maximum(columns, 0))]
    inside: BoolArray = lifted & (rows >= 0)[:, None] & (columns >= 0)[None, :]
    return inside


def project_to_view(frame_mask: BoolArray, view: View) -> BoolArray:
    """Draw a mask of the displayed frame on a view: each view pixel takes the frame pixel that its centre falls in.

    Args:
        frame_mask: (frame_height, frame_width).

    Returns:
        (height, width).
    """
    if frame_mask.shape != (view.frame_height, view.frame_width):
        raise ShapeError(f"a mask of this frame is ({view.frame_height}, {view.frame_width}), got {frame_mask.shape}")
    x0, y0, x1, y1 = view.crop
    columns = [(x0 + Fraction(2 * at + 1, 2) * (x1 - x0) / view.width).__floor__() for at in range(view.width)]
    rows = [(y0 + Fraction(2 * at + 1, 2) * (y1 - y0) / view.height).__floor__() for at in range(view.height)]
    projected: BoolArray = frame_mask[np.ix_(rows, columns)]
    return projected


def picture_to_stored(picture: np.ndarray, order: DisplayOrder) -> np.ndarray:
    """Undo `DisplayOrder.frame_to_picture`: a displayed picture back on the stored frame `[j, i]`."""
    stored = picture
    if order.flip_columns:
        stored = stored[:, ::-1]
    if order.flip_rows:
        stored = stored[::-1]
    return stored.swapaxes(0, 1) if order.transpose else stored
