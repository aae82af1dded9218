"""Stored instances of one DICOM Series, or one other file, as the series that a person scrolls through."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from backend.domain.study import Frame, FrameValues, Photometric, PixelFormat, SeriesKind, SpacingSource
from backend.domain.view import DisplayOrder, PicturePlane, VoiLutFunction, Window
from backend.domain.volume import FloatArray, VolumeGeometry
from backend.imaging.nifti_layout import FileLayout, arrange_nifti
from backend.imaging.pictures import picture_order
from backend.imaging.stack import Stack, along_normal, stack_planes

NO_POSITIONS = "the file does not say where each picture lies"
_CONTENT_REASONS = {
    "dose": "planes of a radiotherapy dose, whose places are not read yet",
    "slide": "tiles of a whole slide, shown one by one",
    "mosaic": "a mosaic: the slices lie side by side in one picture",
}
_PLANE_NAMES = ("sagittal", "coronal", "axial")


@dataclass(frozen=True, slots=True)
class StoredInstance:
    """An instance by our id and the facts that `read_header` gave."""

    id: str
    facts: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class SeriesLayout:
    """A `Series` before it has an id. `part` tells apart the series that one DICOM Series gives, and stays the same
    when further instances come."""

    part: str
    kind: SeriesKind
    kind_reason: str | None
    pixel: PixelFormat
    unit: str | None
    spacing_source: SpacingSource
    geometry: VolumeGeometry | None
    display: DisplayOrder
    frames: tuple[Frame, ...] = field(repr=False)
    modality: str
    description: str
    number: int | None


@dataclass(frozen=True, slots=True)
class _Picture:
    """One frame of one instance, before it has a place in a series.

    `plane` serves to order and to judge: where `spacing` is None its spacing means nothing and nobody else gets it.
    """

    instance: StoredInstance
    frame_number: int
    values: FrameValues
    plane: PicturePlane | None
    spacing: tuple[float, float] | None
    time_ms: float | None


def arrange(instances: Sequence[StoredInstance], *, without_grid: str | None = None) -> list[SeriesLayout]:
    """Sort the frames of instances that share a series key into series.

    Frames that differ in size, in kind of pixel or in the plane that they are nearest to (axial, coronal, sagittal)
    are scrolled apart; so is each object of several frames without places of their own.

    Args:
        without_grid: Why no volume is made, whatever the places say; None to go by them.

    Returns:
        Series by `part`; the same ones whatever the order of `instances`.
    """
    if any(instance.facts["format"] != "dicom" for instance in instances):
        in_order = sorted(instances, key=lambda instance: instance.id)
        return [_arrange_file(instance, without_grid) for instance in in_order]
    parts: defaultdict[str, list[_Picture]] = defaultdict(list)
    for instance in sorted(instances, key=_acquired):
        for picture in _pictures(instance):
            parts[_part(picture)].append(picture)
    return [_layout(part, parts[part], without_grid) for part in sorted(parts)]


def _acquired(instance: StoredInstance) -> tuple[bool, int, str]:
    """Order where positions do not decide: by Instance Number, those without one last."""
    number = instance.facts["instance_number"]
    return number is None, number or 0, instance.id


def _pictures(instance: StoredInstance) -> list[_Picture]:
    facts = instance.facts
    per_frame = facts["per_frame"] or [{}] * facts["frames"]
    # The place in the data set of a multi-frame object is that of one frame only, and which is not said.
    is_single = facts["frames"] == 1
    pictures = []
    for number, own in enumerate(per_frame):
        said = facts["shared"] | own
        spacing = tuple(said["spacing"]) if said.get("spacing") else None
        has_place = (is_single or "ipp" in own) and facts["content"] is None
        pictures.append(
            _Picture(
                instance=instance,
                frame_number=number,
                values=_values(facts, said),
                plane=_plane(said, spacing) if has_place else None,
                spacing=spacing,
                time_ms=facts["times_ms"][number] if facts["times_ms"] else None,
            )
        )
    return pictures


def _values(facts: dict[str, Any], said: dict[str, Any]) -> FrameValues:
    return FrameValues(
        slope=said.get("slope", 1.0),
        intercept=said.get("intercept", 0.0),
        padding=tuple(facts["padding"]) if facts["padding"] else None,
        windows=tuple(
            Window(center, width, VoiLutFunction(function), label)
            for center, width, function, label in said.get("windows", ())
        ),
    )


def _plane(said: dict[str, Any], spacing: tuple[float, float] | None) -> PicturePlane | None:
    if "ipp" not in said or "iop" not in said:
        return None
    row, column = _unit_vector(said["iop"][:3]), _unit_vector(said["iop"][3:])
    return PicturePlane(np.array(said["ipp"], dtype=np.float64), row, column, spacing or (1.0, 1.0))


def _unit_vector(cosines: list[float]) -> FloatArray:
    length = math.hypot(*cosines)
    return np.array([cosine / length for cosine in cosines])


def _part(picture: _Picture) -> str:
    facts = picture.instance.facts
    part = f"{facts['rows']}x{facts['columns']}x{facts['samples']}-{facts['dtype']}-{facts['photometric'].lower()}"
    if picture.plane is not None:
        return f"{part}-{_nearest_plane(picture.plane)}"
    return f"{part}-{picture.instance.id}" if facts["frames"] > 1 else part


def _nearest_plane(plane: PicturePlane) -> str:
    """By the largest part of row x column. Plain arithmetic: `np.cross` costs ten times as much for three numbers."""
    (a, b, c), (d, e, f) = plane.row_direction_lps.tolist(), plane.column_direction_lps.tolist()
    normal = (abs(b * f - c * e), abs(c * d - a * f), abs(a * e - b * d))
    return _PLANE_NAMES[normal.index(max(normal))]


def _layout(part: str, pictures: list[_Picture], without_grid: str | None) -> SeriesLayout:
    facts = pictures[0].instance.facts
    stack = _stack(pictures)
    if stack is not None and without_grid is not None:
        stack = replace(stack, step_lps_mm=None, reason=stack.reason or without_grid)
    kind, reason = _kind(pictures, stack)
    shown = [pictures[n] for n in stack.order] if stack else pictures
    sources = {picture.instance.facts["spacing_source"] for picture in pictures}
    return SeriesLayout(
        part=part,
        kind=kind,
        kind_reason=reason,
        pixel=_pixel(facts),
        unit=facts["unit"] if len({picture.instance.facts["unit"] for picture in pictures}) == 1 else None,
        # Where pictures differ, the one that promises least holds for all.
        spacing_source=min((SpacingSource(source) for source in sources), key=_PROMISES.index),
        geometry=_geometry(shown, stack.step_lps_mm) if stack and stack.step_lps_mm is not None else None,
        display=DisplayOrder(),
        frames=tuple(_frame(index, picture) for index, picture in enumerate(shown)),
        modality=facts["modality"],
        description=facts["description"],
        number=facts["number"],
    )


_PROMISES = (SpacingSource.UNKNOWN, SpacingSource.IMAGER, SpacingSource.PATIENT)


def _stack(pictures: list[_Picture]) -> Stack | None:
    """How two or more pictures with a place lie to each other; None where there is none to speak of."""
    planes = [picture.plane for picture in pictures if picture.plane is not None]
    if len(pictures) < 2 or len(planes) < len(pictures):
        return None
    if len({picture.instance.facts["frame_of_reference_uid"] for picture in pictures}) > 1:
        order = tuple(int(n) for n in np.argsort(along_normal(planes), kind="stable"))
        return Stack(order, None, "the pictures come from different frames of reference")
    stack = stack_planes(planes, may_be_tilted_gantry=pictures[0].instance.facts["modality"] == "CT")
    if stack.reason is None and any(picture.spacing is None for picture in pictures):
        return Stack(stack.order, None, "the pixel spacing is missing")
    return stack


def _kind(pictures: list[_Picture], stack: Stack | None) -> tuple[SeriesKind, str | None]:
    content = pictures[0].instance.facts["content"]
    is_one_object = len({picture.instance.id for picture in pictures}) == 1
    if content is not None:
        return SeriesKind.PICTURES, _CONTENT_REASONS[content]
    if len(pictures) == 1:
        return SeriesKind.PICTURE, None
    if stack is None:
        if is_one_object:
            return SeriesKind.MULTIFRAME, "one object of several frames without a place for each: a loop"
        return SeriesKind.PICTURES, NO_POSITIONS
    if stack.reason is None:
        return SeriesKind.VOLUME, None
    is_loop = is_one_object and len({tuple(p.plane.origin_lps_mm) for p in pictures if p.plane is not None}) == 1
    return (SeriesKind.MULTIFRAME if is_loop else SeriesKind.PICTURES), stack.reason


def _geometry(shown: list[_Picture], step_lps_mm: FloatArray) -> VolumeGeometry | None:
    """The grid of pictures in order: k along the row of slices, j down a picture, i across it."""
    first, facts = shown[0].plane, shown[0].instance.facts
    if first is None:
        return None
    affine = np.eye(4)
    affine[:3, 0] = step_lps_mm
    affine[:3, 1] = first.column_direction_lps * first.spacing_row_column_mm[0]
    affine[:3, 2] = first.row_direction_lps * first.spacing_row_column_mm[1]
    affine[:3, 3] = first.origin_lps_mm
    return VolumeGeometry((len(shown), facts["rows"], facts["columns"]), affine, facts["frame_of_reference_uid"])


def _frame(index: int, picture: _Picture) -> Frame:
    return Frame(
        index=index,
        instance_id=picture.instance.id,
        frame_number=picture.frame_number,
        values=picture.values,
        plane=picture.plane if picture.spacing else None,
        spacing_row_column_mm=picture.spacing,
        time_ms=picture.time_ms,
    )


def _pixel(facts: dict[str, Any]) -> PixelFormat:
    return PixelFormat(
        facts["rows"], facts["columns"], facts["samples"], facts["dtype"], Photometric(facts["photometric"])
    )


# ---- files that are not DICOM: each is a series of its own


def _arrange_file(instance: StoredInstance, without_grid: str | None) -> SeriesLayout:
    facts = instance.facts
    if facts["format"] == "nifti" and without_grid is not None:
        layout = arrange_nifti(facts | {"affine_kji_to_lps_mm": None}, instance.id)
        layout = replace(layout, kind_reason=layout.kind_reason and without_grid)
    elif facts["format"] == "nifti":
        layout = arrange_nifti(facts, instance.id)
    else:
        frame = Frame(index=0, instance_id=instance.id, frame_number=0, values=FrameValues())
        layout = FileLayout(SeriesKind.PICTURE, None, None, picture_order(facts), (frame,))
    return SeriesLayout(
        part=facts["format"],
        kind=layout.kind,
        kind_reason=layout.kind_reason,
        pixel=_pixel(facts),
        unit=facts.get("unit"),
        spacing_source=SpacingSource(facts["spacing_source"]),
        geometry=layout.geometry,
        display=layout.display,
        frames=layout.frames,
        modality=facts["modality"],
        description=facts["description"],
        number=facts["number"],
    )
