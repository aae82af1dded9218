"""Place, windows and rescale of a frame: from the data set, or from the functional groups of an enhanced object.

Source: DICOM PS3.3 C.7.6.16 (functional groups), C.7.6.2 (plane), C.11.1 (rescale), C.11.2 (windows).
"""

import math
from typing import Any

from backend.domain.errors import InvalidWindow
from backend.domain.view import VoiLutFunction, Window
from backend.imaging import tags
from backend.imaging.elements import Elements

FrameFacts = dict[str, Any]


def top_level_facts(elements: Elements) -> FrameFacts:
    """What the data set itself says of its frames; only what it does say."""
    facts = _values(elements) | _windows(elements)
    return facts | _position(elements) | _orientation(elements) | _spacing(elements, tags.PIXEL_SPACING)


def group_facts(groups: Elements) -> FrameFacts:
    """What one item of the shared or the per-frame functional groups says; only what it does say."""
    return (
        _position(groups.first(tags.PLANE_POSITION_SEQUENCE))
        | _orientation(groups.first(tags.PLANE_ORIENTATION_SEQUENCE))
        | _spacing(groups.first(tags.PIXEL_MEASURES_SEQUENCE), tags.PIXEL_SPACING)
        | _windows(groups.first(tags.FRAME_VOI_LUT_SEQUENCE))
        | _values(groups.first(tags.PIXEL_VALUE_TRANSFORMATION_SEQUENCE))
    )


def spacing_pair(elements: Elements, tag: int) -> list[float] | None:
    """Two distances above 0 in mm, rows first (PS3.3 10.7.1.3); None for anything else."""
    pair = elements.numbers(tag)
    return pair if len(pair) == 2 and all(value > 0 for value in pair) else None


def _position(elements: Elements) -> FrameFacts:
    position = elements.numbers(tags.IMAGE_POSITION_PATIENT)
    return {"ipp": position} if len(position) == 3 and all(map(math.isfinite, position)) else {}


def _orientation(elements: Elements) -> FrameFacts:
    """Two unit vectors at a right angle, to 1 %: anything else says nothing about where the patient lies."""
    cosines = elements.numbers(tags.IMAGE_ORIENTATION_PATIENT)
    if len(cosines) != 6 or not all(map(math.isfinite, cosines)):
        return {}
    row, column = cosines[:3], cosines[3:]
    lengths = math.hypot(*row), math.hypot(*column)
    dot = sum(a * b for a, b in zip(row, column, strict=True))
    return {"iop": cosines} if max(abs(lengths[0] - 1), abs(lengths[1] - 1), abs(dot)) < 0.01 else {}


def _spacing(elements: Elements, tag: int) -> FrameFacts:
    pair = spacing_pair(elements, tag)
    return {"spacing": pair} if pair else {}


def _values(elements: Elements) -> FrameFacts:
    """Rescale; a slope of 0 would erase the picture and is no slope."""
    slope, intercept = elements.number(tags.RESCALE_SLOPE), elements.number(tags.RESCALE_INTERCEPT)
    facts: FrameFacts = {}
    if slope:
        facts["slope"] = slope
    if intercept is not None:
        facts["intercept"] = intercept
    if rescale_type := elements.text(tags.RESCALE_TYPE):
        facts["rescale_type"] = rescale_type[:16]
    return facts


def _windows(elements: Elements) -> FrameFacts:
    """The windows that are pairs and valid ones; the rest is dropped."""
    centers, widths = elements.numbers(tags.WINDOW_CENTER), elements.numbers(tags.WINDOW_WIDTH)
    labels = elements.texts(tags.WINDOW_EXPLANATION)
    function = elements.text(tags.VOI_LUT_FUNCTION) or VoiLutFunction.LINEAR
    if function not in VoiLutFunction.__members__:
        return {}
    windows = []
    for number, (center, width) in enumerate(zip(centers, widths, strict=False)):
        label = labels[number][:64] if number < len(labels) and labels[number].isprintable() else None
        try:
            Window(center, width, VoiLutFunction(function))
        except InvalidWindow:
            continue
        windows.append([center, width, str(function), label or None])
    return {"windows": windows} if windows else {}
