"""Stored values to the picture that a person or a model sees. The browser windows raw frames to the same greys."""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from backend.domain.study import FrameValues, Photometric
from backend.domain.view import VoiLutFunction, Window

Array = np.ndarray[Any, np.dtype[Any]]
Picture = NDArray[np.uint8]
# The window that leaves 8 bit values as they are: LINEAR maps 0..255 to 0..255.
IDENTITY = Window(128, 256)


def auto_window(frame: Array, values: FrameValues, photometric: Photometric) -> Window:
    """A window for a frame whose file has none, of its values without padding.

    8 bit frames that use a quarter of their range or more, and colour, are shown as they are. Any other frame is
    windowed from its least to its greatest value; where half a percent at either end makes the range more than half as
    wide again (bright vessels, a metal clip), from the 0.5th to the 99.5th percentile.
    """
    if photometric is Photometric.RGB:
        return IDENTITY
    shown = frame[~_is_padding(frame, values)]
    if shown.size == 0:
        return IDENTITY
    least, greatest = float(shown.min()), float(shown.max())
    is_plain = frame.dtype == np.uint8 and (values.slope, values.intercept) == (1.0, 0.0)
    if is_plain and greatest - least >= 64:
        return IDENTITY
    low, high = (float(value) for value in np.percentile(shown, (0.5, 99.5)))
    if high > low and greatest - least > 1.5 * (high - low):
        least, greatest = low, high
    ends = (least * values.slope + values.intercept, greatest * values.slope + values.intercept)
    least, greatest = min(ends), max(ends)
    if greatest == least:
        return Window(least + 0.5, 1.0)
    if frame.dtype.kind == "f" or greatest - least < 1:
        return Window((least + greatest) / 2, greatest - least, VoiLutFunction.LINEAR_EXACT)
    # LINEAR is black up to center - 0.5 - (width - 1) / 2 and white above center - 0.5 + (width - 1) / 2.
    return Window((least + greatest + 1) / 2, greatest - least + 1)


def render(frame: Array, values: FrameValues, photometric: Photometric, window: Window) -> Picture:
    """Window a frame.

    Grey is rounded to the nearest of 0..255, halves up. MONOCHROME1 is turned over after the window and before
    rounding; padding and what is no number are black in either case. Colour has no window and stays as it is.

    Args:
        frame: Stored values, (rows, columns), or (rows, columns, 3) of 8 bits.

    Returns:
        (rows, columns) or (rows, columns, 3).

    Source: DICOM PS3.3 C.11.2.1.2, C.11.2.1.3 (VOI LUT functions), C.7.6.3.1.2 (MONOCHROME1).
    """
    if photometric is Photometric.RGB:
        return np.ascontiguousarray(frame, dtype=np.uint8)
    if frame.dtype.kind in "iu" and frame.dtype.itemsize <= 2 and frame.size > 0:
        # As many distinct values as 16 bits have: each is worked out once and looked up.
        least = int(frame.min())
        table = _window_values(np.arange(least, int(frame.max()) + 1), values, photometric, window)
        return table[frame.astype(np.int32) - least]
    return _window_values(frame, values, photometric, window)


def _window_values(stored: Array, values: FrameValues, photometric: Photometric, window: Window) -> Picture:
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = stored.astype(np.float64) * values.slope + values.intercept
        grey = _voi(scaled, window)
        if photometric is Photometric.MONOCHROME1:
            grey = 255.0 - grey
        rounded = np.floor(np.nan_to_num(grey, nan=0.0) + 0.5)
    rounded[_is_padding(stored, values)] = 0
    picture: Picture = rounded.astype(np.uint8)
    return picture


def _voi(scaled: NDArray[np.float64], window: Window) -> NDArray[np.float64]:
    """The VOI LUT function to 0..255. LINEAR counts in whole steps, hence its 0.5 and its width - 1."""
    center, width = window.center, window.width
    if window.function is VoiLutFunction.SIGMOID:
        sigmoid: NDArray[np.float64] = 255.0 / (1.0 + np.exp(-4.0 * (scaled - center) / width))
        return sigmoid
    if window.function is VoiLutFunction.LINEAR:
        center, width = center - 0.5, width - 1.0
    if width <= 0:
        return np.where(scaled <= center, 0.0, np.where(np.isnan(scaled), np.nan, 255.0))
    linear: NDArray[np.float64] = np.clip((scaled - center) / width + 0.5, 0.0, 1.0) * 255.0
    return linear


def _is_padding(stored: Array, values: FrameValues) -> NDArray[np.bool_]:
    """Where a value is no image: padding, or not a finite number."""
    if stored.dtype.kind == "f":
        nowhere: NDArray[np.bool_] = ~np.isfinite(stored)
    else:
        nowhere = np.zeros(stored.shape, dtype=np.bool_)
    if values.padding is not None:
        least, greatest = values.padding
        nowhere |= (stored >= least) & (stored <= greatest)
    return nowhere


def encode_png(picture: Picture) -> bytes:
    """The picture as it is, pixel for pixel."""
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def encode_jpeg(picture: Picture, *, longest_side: int, aspect: float = 1.0) -> bytes:
    """A small copy.

    Args:
        longest_side: In pixels; a smaller picture is not enlarged but for its aspect.
        aspect: Height of a pixel over its width: row spacing over column spacing.
    """
    height, width = picture.shape[0] * max(aspect, 1.0), picture.shape[1] * max(1.0 / aspect, 1.0)
    scale = min(1.0, longest_side / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    image = Image.fromarray(picture)
    if size != image.size:
        image = image.resize(size, Image.Resampling.BICUBIC, reducing_gap=3.0)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=85)
    return buffer.getvalue()
