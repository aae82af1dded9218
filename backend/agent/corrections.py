"""What a model is told of a person's correction: the place meant on a picture, the outline that should have been."""

from collections.abc import Sequence

from backend.agent.coordinates import box_as_written
from backend.agent.prompt_tools import area_text
from backend.agent.schemas import Coordinates
from backend.agent.tool_context import KnownMask, ShownPicture
from backend.agent.workbench import Workbench
from backend.domain.trace import CorrectionGiven


def picture_of_box(correction: CorrectionGiven, shown: Sequence[ShownPicture]) -> ShownPicture | None:
    """The newest picture of the correction's own frame that holds the whole of its box; None where none was shown.

    A picture of another frame is never taken: the same numbers mean another place there.
    """
    if correction.box is None:
        return None
    x0, y0, x1, y1 = correction.box
    for picture in reversed(shown):
        view = picture.view
        # A box that a person dragged may reach beyond the frame, where no picture is.
        inside = max(x0, 0.0), max(y0, 0.0), min(x1, float(view.frame_width)), min(y1, float(view.frame_height))
        left, top, right, bottom = view.crop
        holds = left <= inside[0] and top <= inside[1] and inside[2] <= right and inside[3] <= bottom
        if view.frame_index == correction.frame_index and holds:
            return picture
    return None


def correction_text(correction: CorrectionGiven, shown: Sequence[ShownPicture], space: Coordinates) -> str:
    """The correction in words; its box as the policy would write it."""
    text = f"A clinician corrects you: {correction.text}".rstrip()
    picture = picture_of_box(correction, shown)
    box = None if correction.box is None or picture is None else box_as_written(correction.box, picture.view, space)
    if picture is None or box is None:
        return text
    return f"{text}\nThe place meant is {list(box)} on picture {picture.index}."


def outline_text(mask: KnownMask, shown: ShownPicture, *, workbench: Workbench, space: Coordinates) -> str:
    """The facts of a person's outline, its box on the picture that it is drawn on."""
    made = mask.made
    words = f'The clinician\'s outline is mask {mask.number} "{mask.label}", slice {made.frame_index + 1}'
    box = None if made.box is None else box_as_written(made.box, shown.view, space)
    if box is None:
        return f"{words}: nothing is outlined there."
    size = area_text(made.area_px, made.area_mm2, workbench.series.spacing_source)
    return f"{words}: area {size}, box {list(box)} on picture {shown.index}."
