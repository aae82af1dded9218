"""A picture on the square that a model was trained on, and the way back to exactly the picture's own size.

Casebook C48: a picture that is not square is scaled by one factor, padded at the right and at the bottom, and what
comes back is cut to the part that held the picture before it is scaled up.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Canvas:
    """Where a picture lies on a square of `side` pixels.

    Attributes:
        rows, columns: Size of the picture.
        side: Of the square.
        held_rows, held_columns: The top left part of the square that holds the picture.
    """

    rows: int
    columns: int
    side: int
    held_rows: int
    held_columns: int

    def box(self, box: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
        """A box of the picture (edges) as indices of pixels on the square, one pixel wider on each side.

        MedSAM was trained with boxes that were up to 5 pixels too large (`bbox_shift` in the authors' code); with an
        exact box it cuts off the rim. One pixel is better on discs and on lungs alike, more is not.
        """
        x0, y0, x1, y1 = box
        across, down = self.held_columns / self.columns, self.held_rows / self.rows
        return (
            max(x0 * across - 1, 0.0),
            max(y0 * down - 1, 0.0),
            min(x1 * across, self.held_columns - 1.0),
            min(y1 * down, self.held_rows - 1.0),
        )

    def restored(self, logits: FloatArray) -> FloatArray:
        """Logits on the square, (side, side), scaled linearly to the picture, (rows, columns)."""
        held = np.ascontiguousarray(logits[: self.held_rows, : self.held_columns])
        restored: FloatArray = cv2.resize(held, (self.columns, self.rows), interpolation=cv2.INTER_LINEAR)
        return restored


def canvas_for(rows: int, columns: int, side: int) -> Canvas:
    """The canvas whose longer side the picture fills; an elongated picture keeps at least one pixel across."""
    scale = side / max(rows, columns)
    return Canvas(rows, columns, side, max(1, round(rows * scale)), max(1, round(columns * scale)))


def fitted(pixels: NDArray[np.uint8], canvas: Canvas) -> FloatArray:
    """A picture on its canvas, as LiteMedSAM was trained to see it.

    Args:
        pixels: (rows, columns) or (rows, columns, 3) uint8.

    Returns:
        (side, side, 3) float32, scaled so that the picture's own values span 0 to 1; 0 where there is no picture.

    Source: bowang-lab/MedSAM, branch LiteMedSAM, CVPR24_LiteMedSAM_infer.py (resize_longest_side, pad_image).
    """
    colour = np.repeat(pixels[..., None], 3, axis=2) if pixels.ndim == 2 else pixels
    size = (canvas.held_columns, canvas.held_rows)
    small = cv2.resize(np.ascontiguousarray(colour), size, interpolation=cv2.INTER_AREA).astype(np.float32)
    low, high = float(small.min()), float(small.max())
    square = np.zeros((canvas.side, canvas.side, 3), dtype=np.float32)
    # A picture of one grey has no span: it stays 0 and is not divided by a span that is only rounding.
    if high > low:
        square[: canvas.held_rows, : canvas.held_columns] = (small - low) / (high - low)
    return square
