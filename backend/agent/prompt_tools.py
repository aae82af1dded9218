"""The tools that outline something: `sam2` from a box or points, `biomedparse` by name.

Both look at the whole slice of the picture that is named (its canonical view). The picture says where the coordinates
lie and where the outline is drawn, so a mask that was asked for on a crop lies where the crop lies (peers.md 6 d).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy import ndimage

from backend.agent.coordinates import Pixels, PlacedBox, box_as_written, exact, place_box, place_point
from backend.agent.schemas import Sam2Arguments
from backend.agent.tool_context import BadArguments, Outcome, ShownPicture, ToolContext, count
from backend.domain.crop import BoolArray, View
from backend.domain.errors import ShapeError
from backend.domain.segmenter import (
    BoxPrompt,
    ConceptPrompt,
    PointsPrompt,
    Prompt,
    Segmentation,
    UnknownConcept,
    UnusablePrompt,
)
from backend.domain.study import SpacingSource
from backend.domain.trace import MaskMade, ToolBody

MOST_REGIONS = 6


@dataclass(frozen=True, slots=True)
class Sam2:
    """Outline what a box or points show."""

    name: ClassVar[str] = "sam2"
    shown: ShownPicture
    label: str
    box: PlacedBox | None
    points: tuple[tuple[float, float], ...]
    labels: tuple[Literal[0, 1], ...]

    @classmethod
    def place(cls, arguments: Sam2Arguments, context: ToolContext) -> Self:
        shown = context.picture(arguments.index)
        if (arguments.bbox_2d is None) == (arguments.points is None):
            raise BadArguments("sam2: give either bbox_2d or points")
        written = arguments.points or []
        every_one: list[Literal[0, 1]] = [1] * len(written)
        labels = every_one if arguments.labels is None else arguments.labels
        if len(labels) != len(written):
            raise BadArguments(f"sam2: {count(len(written), 'point')} need as many labels, got {len(labels)}")
        if written and 1 not in labels:
            raise UnusablePrompt("at least one point lies on the structure (label 1)")
        view = shown.view
        box = None if arguments.bbox_2d is None else place_box(arguments.bbox_2d, view, context.space)
        points = tuple(place_point(point, view, context.space) for point in written)
        return cls(shown, (arguments.label or "region").strip(), box, points, tuple(labels))

    @property
    def view_index(self) -> int | None:
        return self.shown.index

    @property
    def was_clamped(self) -> bool:
        return self.box is not None and self.box.was_clamped

    @property
    def recorded(self) -> dict[str, Any]:
        prompt: dict[str, Any] = (
            {"bbox_2d": list(self.box.box)}
            if self.box is not None
            else {"points": [list(point) for point in self.points], "labels": list(self.labels)}
        )
        return {"index": self.shown.index, "label": self.label, **prompt}

    def run(self, context: ToolContext, *, sequence: int) -> Outcome:
        view = self.shown.view
        if self.box is not None:
            x0, y0, x1, y1 = (float(edge) for edge in self.box.on_frame(view))
            return segment(BoxPrompt((x0, y0, x1, y1)), self.label, self.shown, context, sequence)
        on_frame = (view.to_frame(exact(x), exact(y)) for x, y in self.points)
        points = tuple((float(x), float(y)) for x, y in on_frame)
        return segment(PointsPrompt(points, self.labels), self.label, self.shown, context, sequence)

    def picture(self, context: ToolContext, masks: Sequence[MaskMade]) -> View | None:
        return self.shown.view if masks else None


@dataclass(frozen=True, slots=True)
class BiomedParse:
    """Find a structure by name in the slice of the picture that is named."""

    name: ClassVar[str] = "biomedparse"
    was_clamped: ClassVar[bool] = False
    shown: ShownPicture
    concept: str

    @property
    def view_index(self) -> int | None:
        return self.shown.index

    @property
    def recorded(self) -> dict[str, Any]:
        return {"index": self.shown.index, "captions": self.concept}

    def run(self, context: ToolContext, *, sequence: int) -> Outcome:
        return segment(ConceptPrompt(self.concept), self.concept, self.shown, context, sequence)

    def picture(self, context: ToolContext, masks: Sequence[MaskMade]) -> View | None:
        return self.shown.view if masks else None


@dataclass(frozen=True, slots=True)
class Region:
    """One connected part of a mask: its size and its tight box on the displayed frame, edges."""

    area_px: int
    box: Pixels


def regions_of(mask: BoolArray) -> list[Region]:
    """The parts of a mask that hang together (diagonal neighbours do), largest first."""
    numbered, _ = ndimage.label(mask, structure=np.ones((3, 3), dtype=int))
    sizes = np.bincount(numbered.ravel())[1:]
    boxes = ndimage.find_objects(numbered)
    regions = [
        Region(int(size), (float(across.start), float(down.start), float(across.stop), float(down.stop)))
        for size, (down, across) in zip(sizes, boxes, strict=True)
    ]
    return sorted(regions, key=lambda region: (-region.area_px, region.box))


def segment(prompt: Prompt, label: str, shown: ShownPicture, context: ToolContext, sequence: int) -> Outcome:
    """Ask the segmenter, keep what it outlined, and say what it is.

    Nothing is kept where the body's own test refused what it found (casebook C49): "not present" is a result.

    Raises:
        ToolError: As the segmenter says; the names that can be found are added.
        ShapeError: If the mask is not the slice's size (casebook C48); that ends the run.
    """
    frame_index = shown.view.frame_index
    found = _ask(prompt, frame_index, context)
    body = ToolBody(
        name=found.body.name,
        version=found.body.version,
        sha256=found.body.sha256,
        is_demonstration=found.body.is_demonstration,
    )
    size = (shown.view.frame_height, shown.view.frame_width)
    if found.mask.shape != size:
        raise ShapeError(f"{body.name} gave a mask of {found.mask.shape} for a slice of {size}")
    values: dict[str, Any] = {"label": label, "score": found.score, "is_present": found.is_present}
    if not found.is_present or not found.mask.any():
        score = "" if found.score is None else f" (score {found.score:.2f})"
        text = f'"{label}" is not present in slice {frame_index + 1}: {body.name} accepts nothing there{score}.'
        return Outcome(text, body, values={**values, "is_present": False})
    stored = context.workbench.store_mask(
        found.mask,
        frame_index=frame_index,
        label=label,
        body=body,
        sequence=sequence,
        score=found.score,
        is_present=True,
        is_resampled=found.is_resampled,
    )
    # What is told is what is stored: after a crash that may be an earlier answer to this very call.
    made = stored.made
    regions = regions_of(context.workbench.mask_on_frame(made))
    listed = [{"area_px": region.area_px, "box": list(region.box)} for region in regions[:MOST_REGIONS]]
    text = _mask_facts(label, made, regions, shown, context)
    values |= {"score": made.score, "regions": listed, "region_count": len(regions)}
    return Outcome(text, stored.body, (made,), values)


def _ask(prompt: Prompt, frame_index: int, context: ToolContext) -> Segmentation:
    try:
        return context.segmenter.segment(context.workbench.canonical(frame_index), prompt)
    except UnknownConcept as error:
        known = ", ".join(str(name) for name in error.details.get("known", ()))
        raise UnknownConcept(f"{error.message} Known names: {known or 'none'}.", **error.details) from error


def _mask_facts(label: str, made: MaskMade, regions: list[Region], shown: ShownPicture, context: ToolContext) -> str:
    """The facts of a mask as the model is told them, boxes as it would write them on the picture that it named."""
    number = len(context.masks) + 1
    spacing = context.workbench.spacing_of_frame(made.frame_index)
    at = context.workbench.series.spacing_source
    score = "" if made.score is None else f"; score {made.score:.2f}"
    resampled = "; resampled" if made.is_resampled else ""
    size = area_text(made.area_px, made.area_mm2, at)
    lines = [f'Mask {number} "{label}", slice {made.frame_index + 1}: area {size}{score}{resampled}.']
    inside = [(region, box_as_written(region.box, shown.view, context.space)) for region in regions]
    listed = [(region, box) for region, box in inside if box is not None][:MOST_REGIONS]
    for place, (region, box) in enumerate(listed, start=1):
        mm2 = None if spacing is None else region.area_px * spacing[0] * spacing[1]
        lines.append(f"Region {place}: area {area_text(region.area_px, mm2, at)}, box {list(box)}.")
    if len(regions) > len(listed):
        lines.append(f"{count(len(regions) - len(listed), 'region')} more, smaller or outside picture {shown.index}.")
    lines.append(f"Boxes are on picture {shown.index}.")
    return "\n".join(lines)


def area_text(area_px: int, area_mm2: float | None, source: SpacingSource) -> str:
    """An area, in mm2 only where the spacing is known, and said to be the detector's where it is."""
    if area_mm2 is None or source is SpacingSource.UNKNOWN:
        return f"{area_px} px (no pixel spacing)"
    where = " at the detector" if source is SpacingSource.IMAGER else ""
    return f"{area_px} px ({area_mm2:.1f} mm2{where})"
