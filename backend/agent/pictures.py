"""At which size a policy is shown a view, and what a legal crop is.

A Qwen2.5-VL answers in pixels of the picture after its processor's resize. Serpens does that resize itself, once, and
records it in the View: then the processor changes nothing and the model's pixels are the view's (casebook C41).
Source: `smart_resize` of Qwen2-VL's image processor (transformers).
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from backend.domain.crop import Box, View

# A crop smaller than this shows too little around what it is about; it is enlarged with context (casebook C46).
LEAST_CROP_PX = 8
# The longer side of a crop is at most this many times the shorter one; a thinner strip is enlarged with context.
MOST_CROP_RATIO = 8


@dataclass(frozen=True, slots=True)
class PictureLimits:
    """What pictures a policy takes. The defaults are Qwen2.5-VL's, with the pixels of the published training.

    Attributes:
        most_pixels, least_pixels: Of a whole picture.
        multiple: Both sides are multiples of it (patch 14, merged 2 by 2).
        least_side, most_ratio: What the image processor refuses to go below and beyond (casebook C46).
        zoom_side: A crop's longer side is enlarged to at least this, so that the picture is useful.
    """

    most_pixels: int = 1_003_520
    least_pixels: int = 3_136
    multiple: int = 28
    least_side: int = 28
    most_ratio: int = 200
    zoom_side: int = 448

    def fit(self, width: Fraction | int, height: Fraction | int) -> tuple[int, int]:
        """The legal size nearest to this one.

        The aspect is kept up to the rounding to `multiple`, but for a strip beyond `most_ratio`, which has no legal
        picture of its aspect: its shorter side is stretched. A view maps each axis by itself, so places stay exact.
        """
        across, down = self._nearest(width), self._nearest(height)
        scale = 1.0
        if across * down > self.most_pixels:
            scale = math.sqrt(self.most_pixels / float(width * height))
            across, down = self._below(float(width) * scale), self._below(float(height) * scale)
        elif across * down < self.least_pixels:
            scale = math.sqrt(self.least_pixels / float(width * height))
            across, down = self._above(float(width) * scale), self._above(float(height) * scale)
        across, down = max(across, self._least), max(down, self._least)
        longest = self._below(math.sqrt(self.most_pixels * self.most_ratio / 2))
        across, down = min(across, longest), min(down, longest)
        shortest = self._above(max(across, down) / self.most_ratio)
        return max(across, shortest), max(down, shortest)

    def enlarged(self, width: Fraction | int, height: Fraction | int) -> tuple[int, int]:
        """The size of a crop: as it is, or larger where it is small."""
        scale = max(Fraction(1), Fraction(self.zoom_side) / max(width, height))
        return self.fit(width * scale, height * scale)

    def shown(self, view: View) -> View:
        """The view at the size at which the policy sees it."""
        width, height = self.fit(view.width, view.height)
        return replace(view, width=width, height=height)

    @property
    def _least(self) -> int:
        return self._above(self.least_side)

    def _nearest(self, side: Fraction | int) -> int:
        return max(self.multiple, round(Fraction(side) / self.multiple) * self.multiple)

    def _below(self, side: float) -> int:
        return max(self.multiple, math.floor(side / self.multiple) * self.multiple)

    def _above(self, side: float) -> int:
        return math.ceil(side / self.multiple) * self.multiple


def in_proportion(view: View, spacing_row_column_mm: tuple[float, float] | None) -> View:
    """A whole frame's view in its physical aspect: the coarser axis gets more pixels, none gets fewer than the frame's.

    A view maps each axis by itself, so places stay exact. Without a spacing a pixel is taken for a square.
    """
    if spacing_row_column_mm is None:
        return view
    row_mm, column_mm = spacing_row_column_mm
    finest_mm = min(row_mm, column_mm)
    return replace(
        view, width=round(view.width * column_mm / finest_mm), height=round(view.height * row_mm / finest_mm)
    )


def legal_crop(crop: Box, *, frame_width: int, frame_height: int) -> Box:
    """Enlarge a tiny or very thin crop with what lies around it, as far as the frame reaches (casebook C46).

    Args:
        crop: (x0, y0, x1, y1), edges in pixels of the displayed frame, with an area.

    Returns:
        A crop that holds the given one; the same one where it was legal already.
    """
    x0, y0, x1, y1 = crop
    least_width = max(Fraction(LEAST_CROP_PX), (y1 - y0) / MOST_CROP_RATIO)
    least_height = max(Fraction(LEAST_CROP_PX), (x1 - x0) / MOST_CROP_RATIO)
    left, right = _widened(x0, x1, least=least_width, end=frame_width)
    top, bottom = _widened(y0, y1, least=least_height, end=frame_height)
    return left, top, right, bottom


def _widened(low: Fraction, high: Fraction, *, least: Fraction, end: int) -> tuple[Fraction, Fraction]:
    """Widen an interval about its middle to `least`, moved to stay within 0 and `end`."""
    if high - low >= least:
        return low, high
    width = min(least, Fraction(end))
    begin = min(max((low + high - width) / 2, Fraction(0)), end - width)
    return begin, begin + width
