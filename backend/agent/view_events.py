"""A view as an event keeps it, and back: the crop's edges are exact fractions as text."""

from fractions import Fraction

from backend.domain.crop import View
from backend.domain.trace import ViewShown
from backend.domain.view import VoiLutFunction, Window


def view_shown(view: View) -> ViewShown:
    """A view as an event keeps it."""
    x0, y0, x1, y1 = (str(edge) for edge in view.crop)
    window = view.window
    return ViewShown(
        series_id=view.series_id,
        frame_index=view.frame_index,
        frame_width=view.frame_width,
        frame_height=view.frame_height,
        crop=(x0, y0, x1, y1),
        width=view.width,
        height=view.height,
        window=None
        if window is None
        else {
            "center": window.center,
            "width": window.width,
            "function": window.function.value,
            "label": window.label,
        },
    )


def view_of(shown: ViewShown) -> View:
    """The view that an event keeps: the exact one."""
    x0, y0, x1, y1 = (Fraction(edge) for edge in shown.crop)
    window = None
    if shown.window is not None:
        kept = shown.window
        window = Window(kept["center"], kept["width"], VoiLutFunction(kept["function"]), kept.get("label"))
    return View(
        series_id=shown.series_id,
        frame_index=shown.frame_index,
        frame_width=shown.frame_width,
        frame_height=shown.frame_height,
        crop=(x0, y0, x1, y1),
        width=shown.width,
        height=shown.height,
        window=window,
    )
