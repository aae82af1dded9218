"""From the numbers that a policy writes to places on a view. Casebook C41, C42, C50; peers.md 6 d.

A view is shown at the size at which the policy sees it, so absolute pixels are the view's own; a policy whose space is
0 to 1000 is scaled. What is recorded is rounded to a thousandth of a pixel and computed with as that exact decimal, so
that a run that is taken up again, and a chain of crops, come to the same places.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from backend.agent.schemas import Coordinates
from backend.domain.crop import Box, View
from backend.domain.segmenter import UnusablePrompt

Pixels = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class PlacedBox:
    """A box on a view, edges in pixels of that view, cut at the picture's edge where it reached beyond."""

    box: Pixels
    was_clamped: bool

    def on_frame(self, view: View) -> Box:
        """The same box on the displayed frame."""
        x0, y0 = view.to_frame(exact(self.box[0]), exact(self.box[1]))
        x1, y1 = view.to_frame(exact(self.box[2]), exact(self.box[3]))
        return x0, y0, x1, y1


def exact(pixels: float) -> Fraction:
    """A recorded coordinate as the decimal that it reads as."""
    return Fraction(str(pixels))


def to_pixels(value: float, side: int, space: Coordinates) -> float:
    """One written coordinate in pixels of the view, to a thousandth of a pixel."""
    return round(value * side / 1000 if space == "thousandths" else value, 3)


def to_written(pixels: float, side: int, space: Coordinates) -> float:
    """One coordinate of the view as the policy would write it, to a tenth."""
    return round(pixels * 1000 / side if space == "thousandths" else pixels, 1)


def place_box(written: Sequence[float], view: View, space: Coordinates) -> PlacedBox:
    """Put a written box on its view.

    Raises:
        UnusablePrompt: If its corners are reversed (or it is x, y, width, height), or nothing of it lies on the
            picture. Neither is mended by a guess: the two read the same (casebook C50).
    """
    x0, y0, x1, y1 = (
        to_pixels(value, side, space)
        for value, side in zip(written, (view.width, view.height, view.width, view.height), strict=True)
    )
    if x1 <= x0 or y1 <= y0:
        raise UnusablePrompt(
            f"bbox_2d is [left, top, right, bottom] with left < right and top < bottom, got {list(written)}: "
            "not reversed corners and not a width and a height"
        )
    across, down = float(view.width), float(view.height)
    cut = (max(x0, 0.0), max(y0, 0.0), min(x1, across), min(y1, down))
    if cut[2] <= cut[0] or cut[3] <= cut[1]:
        raise UnusablePrompt(f"no part of {list(written)} lies on the picture, {_size(view, space)}")
    return PlacedBox(cut, was_clamped=cut != (x0, y0, x1, y1))


def place_point(written: Sequence[float], view: View, space: Coordinates) -> tuple[float, float]:
    """Put a written point on its view. A point beyond the picture is no point of it: raises `UnusablePrompt`."""
    x, y = to_pixels(written[0], view.width, space), to_pixels(written[1], view.height, space)
    if not (0 <= x <= view.width and 0 <= y <= view.height):
        raise UnusablePrompt(f"the point {list(written)} lies outside the picture, {_size(view, space)}")
    return x, y


def box_as_written(frame_box: Box | Pixels, view: View, space: Coordinates) -> Pixels | None:
    """A box of the displayed frame as the policy would write it on a view, cut there; None where it lies outside."""
    x0, y0 = view.from_frame(frame_box[0], frame_box[1])
    x1, y1 = view.from_frame(frame_box[2], frame_box[3])
    left, top = max(float(x0), 0.0), max(float(y0), 0.0)
    right, bottom = min(float(x1), float(view.width)), min(float(y1), float(view.height))
    if right <= left or bottom <= top:
        return None
    return (
        to_written(left, view.width, space),
        to_written(top, view.height, space),
        to_written(right, view.width, space),
        to_written(bottom, view.height, space),
    )


def _size(view: View, space: Coordinates) -> str:
    return "0 to 1000 each way" if space == "thousandths" else f"{view.width} x {view.height} pixels"
