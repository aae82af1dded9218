"""The tool `measure`: numbers from a mask of this run, or between two points of a picture.

Millimetres exist only where the spacing is known, and what is measured at the detector is said to be.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backend.agent.coordinates import exact, place_point
from backend.agent.prompt_tools import area_text
from backend.agent.schemas import MeasureArguments
from backend.agent.tool_context import (
    BadArguments,
    KnownMask,
    NothingToMeasure,
    Outcome,
    ShownPicture,
    ToolContext,
)
from backend.domain.crop import View
from backend.domain.study import SpacingSource
from backend.domain.trace import MaskMade


def place_measure(arguments: MeasureArguments, context: ToolContext) -> "MeasureMask | MeasureLength":
    """Understand what is to be measured on what."""
    if arguments.quantity != "length":
        if arguments.points is not None:
            raise BadArguments(f"measure: {arguments.quantity} is measured in a mask, points are for a length")
        return MeasureMask(context.mask(arguments.mask), is_intensity=arguments.quantity == "intensity")
    if arguments.points is None or arguments.mask is not None:
        raise BadArguments("measure: a length is measured between two points of a picture")
    shown = context.picture(arguments.index)
    first, second = (place_point(point, shown.view, context.space) for point in arguments.points)
    return MeasureLength(shown, first, second)


@dataclass(frozen=True, slots=True)
class MeasureMask:
    """The area of a mask, or the mean and the spread of the values in it."""

    name: ClassVar[str] = "measure"
    view_index: ClassVar[int | None] = None
    was_clamped: ClassVar[bool] = False
    mask: KnownMask
    is_intensity: bool

    @property
    def recorded(self) -> dict[str, Any]:
        """The quantity and the number of the mask."""
        return {"quantity": "intensity" if self.is_intensity else "area", "mask": self.mask.number}

    def run(self, context: ToolContext, *, sequence: int) -> Outcome:
        """Measure it."""
        return self._intensity(context) if self.is_intensity else self._area(context)

    def picture(self, context: ToolContext, masks: Sequence[MaskMade]) -> View | None:
        """None: numbers only."""
        return None

    def _area(self, context: ToolContext) -> Outcome:
        made = self.mask.made
        size = area_text(made.area_px, made.area_mm2, context.workbench.series.spacing_source)
        text = f'Area of mask {self.mask.number} "{self.mask.label}": {size}.'
        return Outcome(text, values={"area_px": made.area_px, "area_mm2": made.area_mm2})

    def _intensity(self, context: ToolContext) -> Outcome:
        made = self.mask.made
        picture = context.workbench.canonical(made.frame_index)
        if picture.values is None:
            raise NothingToMeasure("a colour picture has three values a pixel and no single one to measure")
        outlined = picture.values[context.workbench.mask_on_frame(made)].astype(np.float64)
        if outlined.size == 0:
            raise NothingToMeasure(f"mask {self.mask.number} is empty")
        # Padding has no value and would make a mean of nothing that was imaged (casebook C17).
        inside = outlined[np.isfinite(outlined)]
        if inside.size == 0:
            raise NothingToMeasure(f"no pixel in mask {self.mask.number} has a value: it lies on padding")
        without = outlined.size - inside.size
        left_out = f" ({without} px more have no value)" if without else ""
        mean, spread = float(inside.mean()), float(inside.std())
        unit = picture.unit or "(no unit)"
        text = (
            f'Values in mask {self.mask.number} "{self.mask.label}": mean {mean:.1f} {unit}, '
            f"standard deviation {spread:.1f} {unit}, {inside.size} px{left_out}."
        )
        return Outcome(text, values={"mean": mean, "sd": spread, "unit": picture.unit, "px": int(inside.size)})


@dataclass(frozen=True, slots=True)
class MeasureLength:
    """The length of the straight line between two points of a picture, along the slice."""

    name: ClassVar[str] = "measure"
    was_clamped: ClassVar[bool] = False
    shown: ShownPicture
    first: tuple[float, float]
    second: tuple[float, float]

    @property
    def view_index(self) -> int | None:
        """The picture that the points lie on."""
        return self.shown.index

    @property
    def recorded(self) -> dict[str, Any]:
        """The two points in pixels of the view."""
        return {"quantity": "length", "index": self.shown.index, "points": [list(self.first), list(self.second)]}

    def run(self, context: ToolContext, *, sequence: int) -> Outcome:
        """Measure it on the slice's own pixels, whatever the size of the picture."""
        view = self.shown.view
        (x0, y0), (x1, y1) = (view.to_frame(exact(x), exact(y)) for x, y in (self.first, self.second))
        across, down = float(x1 - x0), float(y1 - y0)
        length_px = math.hypot(across, down)
        spacing = context.workbench.spacing_of_frame(view.frame_index)
        source = context.workbench.series.spacing_source
        values: dict[str, Any] = {"length_px": length_px, "length_mm": None}
        if spacing is None or source is SpacingSource.UNKNOWN:
            return Outcome(f"Length: {length_px:.1f} px of the slice (no pixel spacing).", values=values)
        length_mm = math.hypot(across * spacing[1], down * spacing[0])
        where = " at the detector" if source is SpacingSource.IMAGER else ""
        text = f"Length: {length_mm:.1f} mm{where} ({length_px:.1f} px of the slice)."
        return Outcome(text, values={**values, "length_mm": length_mm})

    def picture(self, context: ToolContext, masks: Sequence[MaskMade]) -> View | None:
        """None: numbers only."""
        return None
