"""One series for its viewer: what it is, its frames, pictures of them and a thumbnail."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.domain.access import Actor
from backend.domain.errors import UndecodableFrame
from backend.domain.study import Frame, FrameValues, Series, SeriesKind
from backend.domain.view import VoiLutFunction, Window
from backend.imaging.render import auto_window, encode_jpeg, encode_png, render
from backend.services.frames import Frames, Values, frame_at
from backend.services.studies import OpenedSeries, open_series
from backend.settings import Settings
from backend.store.blobs import Blobs
from backend.store.repository import Store

THUMBNAIL_LONGEST_SIDE = 256
_AUTO, _FULL = "auto", "full range"


@dataclass(frozen=True, slots=True)
class Preset:
    """A window by name."""

    label: str
    window: Window


# Windows that radiology departments use for CT, in HU; they mean nothing for other numbers.
CT_PRESETS = (
    Preset("soft tissue", Window(40, 400)),
    Preset("lung", Window(-600, 1500)),
    Preset("bone", Window(400, 1800)),
    Preset("brain", Window(40, 80)),
    Preset("mediastinum", Window(50, 350)),
)


@dataclass(frozen=True, slots=True)
class Description:
    """A series as its viewer needs it.

    Attributes:
        windows: The file's own first, else the one made of a middle frame's values; empty for colour.
        presets: Further windows to choose from, in the order of their keys.
    """

    series: Series
    windows: tuple[Window, ...]
    presets: tuple[Preset, ...]

    @property
    def is_three_d(self) -> bool:
        """Whether 3D measures hold."""
        return self.series.kind is SeriesKind.VOLUME and self.series.geometry is not None

    @property
    def kind_label(self) -> str:
        """What it is, in a clinician's words."""
        count = len(self.series.frames)
        if self.series.kind is SeriesKind.PICTURES:
            return f"shown as 2D pictures: {self.series.kind_reason}"
        if self.series.kind is SeriesKind.VOLUME:
            return f"{count} slices · volume" if self.is_three_d else f"{count} slices"
        return f"{count} frames · loop" if self.series.kind is SeriesKind.MULTIFRAME else "single picture"

    def window_of(self, frame: Frame) -> Window | None:
        """The window that a frame is first shown with; None for colour."""
        if self.series.pixel.samples > 1:
            return None
        return frame.values.windows[0] if frame.values.windows else self.windows[0] if self.windows else None


def describe(actor: Actor, series_id: str, *, store: Store, blobs: Blobs, settings: Settings) -> Description:
    """What a viewer needs to know of a series. Raises `NotFound` for who is no member of its project."""
    opened = _open(actor, series_id, store)
    return _describe(opened, store=store, blobs=blobs, settings=settings)


def frame_values(actor: Actor, series_id: str, index: int, *, store: Store, blobs: Blobs, settings: Settings) -> bytes:
    """A frame's stored values as shown: rows x columns x samples, little endian.

    Raises:
        NotFound: If there is no such frame in a project of this person.
        UndecodableFrame: If its pixels cannot be read.
    """
    opened = _open(actor, series_id, store)
    return Frames(store=store, blobs=blobs, settings=settings).shown_bytes(opened, index)


def picture(
    actor: Actor,
    series_id: str,
    index: int,
    *,
    window: Window | None = None,
    longest_side: int | None = None,
    store: Store,
    blobs: Blobs,
    settings: Settings,
) -> bytes:
    """A frame as a PNG, by `window` or by its own. Raises what `frame_values` raises."""
    opened = _open(actor, series_id, store)
    if window is None:
        described = _describe(opened, store=store, blobs=blobs, settings=settings)
        window = described.window_of(frame_at(opened.series, index))
    values = Frames(store=store, blobs=blobs, settings=settings).shown(opened, index)
    return encode_png(_shrunk(_rendered(opened, index, values, window), longest_side))


def thumbnail(actor: Actor, series_id: str, *, store: Store, blobs: Blobs, settings: Settings) -> bytes:
    """A JPEG of the middle frame, made once, in its true proportions. Raises what `frame_values` raises."""
    with store.transaction(read_only=True) as tx:
        opened = open_series(actor, series_id, tx)
        known = tx.studies.thumbnail(series_id)
    if known is not None:
        return known
    described = _describe(opened, store=store, blobs=blobs, settings=settings)
    index, values = _representative(opened, Frames(store=store, blobs=blobs, settings=settings))
    frame = opened.series.frames[index]
    spacing = frame.spacing_row_column_mm
    jpeg = encode_jpeg(
        _rendered(opened, index, values, described.window_of(frame)),
        longest_side=THUMBNAIL_LONGEST_SIDE,
        aspect=1.0 if spacing is None else spacing[0] / spacing[1],
    )
    with store.transaction() as tx:
        tx.studies.add_thumbnail(series_id, opened.head.digest, jpeg)
    return jpeg


def _open(actor: Actor, series_id: str, store: Store) -> OpenedSeries:
    with store.transaction(read_only=True) as tx:
        return open_series(actor, series_id, tx)


def _describe(opened: OpenedSeries, *, store: Store, blobs: Blobs, settings: Settings) -> Description:
    series = opened.series
    if series.pixel.samples > 1:
        return Description(series, (), ())
    kept = opened.head.auto_windows
    own = _own_windows(opened, store=store, blobs=blobs, settings=settings) if kept is None else kept
    from_file = series.frames[len(series.frames) // 2].values.windows or series.frames[0].values.windows
    windows = from_file or ((own[_AUTO],) if own else ())
    measured = tuple(Preset(label, own[label]) for label in (_AUTO, _FULL) if label in own)
    is_ct = series.modality == "CT" and series.unit == "HU"
    return Description(series, windows, (*CT_PRESETS, *measured) if is_ct else measured)


def _own_windows(opened: OpenedSeries, *, store: Store, blobs: Blobs, settings: Settings) -> Mapping[str, Window]:
    """Windows made of a frame's values, and kept; none where no frame decodes."""
    try:
        index, values = _representative(opened, Frames(store=store, blobs=blobs, settings=settings))
    except UndecodableFrame:
        return {}  # each frame says so itself when it is asked for
    described = opened.series.frames[index].values
    auto = auto_window(values, described, opened.series.pixel.photometric)
    made = {
        _AUTO: Window(auto.center, auto.width, auto.function, _AUTO),
        _FULL: full_range(values, described),
    }
    with store.transaction() as tx:
        tx.studies.set_auto_windows(opened.series.id, opened.head.digest, made)
    return made


def _representative(opened: OpenedSeries, frames: Frames) -> tuple[int, Values]:
    """The middle frame, or else the first or the last that decodes. Raises `UndecodableFrame`."""
    count = len(opened.series.frames)
    for index in (count // 2, 0, count - 1):
        try:
            return index, frames.shown(opened, index)
        except UndecodableFrame:
            continue
    raise UndecodableFrame(f"none of the first, middle and last frames of series {opened.series.id} decodes")


def full_range(stored: Values, values: FrameValues) -> Window:
    """The window from the least to the greatest rescaled value of a frame, padding left out.

    Args:
        stored: (rows, columns) stored values.
    """
    kept = np.isfinite(stored)
    if values.padding is not None:
        kept &= (stored < values.padding[0]) | (stored > values.padding[1])
    chosen = stored[kept]
    if chosen.size == 0:
        return Window(0.5, 1.0, VoiLutFunction.LINEAR_EXACT, _FULL)
    ends = [float(end) * values.slope + values.intercept for end in (chosen.min(), chosen.max())]
    width = max(ends) - min(ends)
    return Window(sum(ends) / 2, width if width > 0 else 1.0, VoiLutFunction.LINEAR_EXACT, _FULL)


def _rendered(opened: OpenedSeries, index: int, values: Values, window: Window | None) -> NDArray[np.uint8]:
    series = opened.series
    # A colour frame needs none, and a frame without any values to window by is one grey.
    chosen = window or Window(128, 256)
    return render(values, series.frames[index].values, series.pixel.photometric, chosen)


def _shrunk(picture: NDArray[np.uint8], longest_side: int | None) -> NDArray[np.uint8]:
    """The picture with every n-th row and column, so that no side is longer than asked for."""
    step = 1 if longest_side is None else -(-max(picture.shape[:2]) // longest_side)
    return picture[::step, ::step]
