"""Pictures of a series for models: a view as a policy sees it, and a frame as a segmenter sees it."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from backend.domain.crop import BoolArray, View, project_to_view
from backend.domain.segmenter import CanonicalPicture
from backend.domain.study import Photometric, Series
from backend.domain.view import Window
from backend.imaging.render import auto_window, render
from backend.services.frames import Frames, Values
from backend.services.studies import OpenedSeries

# The window under which a segmenter sees CT in HU, whatever the window on the screen: soft tissue, under which the
# published medical SAM models were trained too.
CT_CANONICAL = Window(40, 400)
OVERLAY_RGB = (255, 64, 64)
OVERLAY_ALPHA = 0.35


def canonical_picture(opened: OpenedSeries, frame_index: int, *, frames: Frames) -> CanonicalPicture:
    """A whole frame, as shown, under the fixed window of its modality.

    CT in HU has one window; any other frame is windowed by its own values, so that the answer does not change with
    what a reader sets on the screen.
    """
    series = opened.series
    stored = frames.shown(opened, frame_index)
    values = series.frames[frame_index].values
    is_ct = series.modality == "CT" and series.unit == "HU"
    window = CT_CANONICAL if is_ct else auto_window(stored, values, series.pixel.photometric)
    return CanonicalPicture(
        pixels=render(stored, values, series.pixel.photometric, window),
        values=None if series.pixel.photometric is Photometric.RGB else _rescaled(stored, series, frame_index),
        modality=series.modality,
        unit=series.unit,
        spacing_row_column_mm=series.frames[frame_index].spacing_row_column_mm,
    )


def view_picture(
    opened: OpenedSeries, view: View, *, frames: Frames, frame_mask: BoolArray | None = None
) -> NDArray[np.uint8]:
    """What a policy sees of a view: the frame under the view's window, cropped, resized, a mask drawn over it.

    Args:
        frame_mask: (frame_height, frame_width), as shown.

    Returns:
        (height, width), or (height, width, 3) for colour or with a mask.
    """
    series = opened.series
    stored = frames.shown(opened, view.frame_index)
    values = series.frames[view.frame_index].values
    window = view.window or auto_window(stored, values, series.pixel.photometric)
    whole = render(stored, values, series.pixel.photometric, window)
    x0, y0, x1, y1 = (float(edge) for edge in view.crop)
    # `box` is in edges, as the view's crop is; BICUBIC is what the model's own image processor resizes with.
    resized = Image.fromarray(whole).resize((view.width, view.height), Image.Resampling.BICUBIC, (x0, y0, x1, y1))
    picture: NDArray[np.uint8] = np.asarray(resized)
    return picture if frame_mask is None else _overlaid(picture, project_to_view(frame_mask, view))


def _rescaled(stored: Values, series: Series, frame_index: int) -> NDArray[np.float32]:
    """The values in the unit of the series; NaN for padding and for what is no finite number (casebook C17)."""
    values = series.frames[frame_index].values
    with np.errstate(over="ignore", invalid="ignore"):
        rescaled: NDArray[np.float32] = stored.astype(np.float32) * np.float32(values.slope)
        rescaled += np.float32(values.intercept)
    nowhere = ~np.isfinite(rescaled)
    if values.padding is not None:
        least, greatest = values.padding
        nowhere |= (stored >= least) & (stored <= greatest)
    rescaled[nowhere] = np.nan
    return rescaled


def _overlaid(picture: NDArray[np.uint8], mask: BoolArray) -> NDArray[np.uint8]:
    colour = picture if picture.ndim == 3 else np.repeat(picture[:, :, None], 3, axis=2)
    drawn = colour.astype(np.float32)
    drawn[mask] = drawn[mask] * (1 - OVERLAY_ALPHA) + np.array(OVERLAY_RGB, np.float32) * OVERLAY_ALPHA
    drawn[_edge(mask)] = OVERLAY_RGB
    return np.round(drawn).astype(np.uint8)


def _edge(mask: BoolArray) -> BoolArray:
    """The pixels of a mask that have a neighbour outside it."""
    padded = np.pad(mask, 1)
    inner = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    edge: BoolArray = mask & ~inner
    return edge
