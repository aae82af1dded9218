"""The clinic's workbench: what a run's loop and tools reach of one stored series."""

import numpy as np

from backend.agent.workbench import RenderedPicture, SeriesFacts
from backend.domain.crop import BoolArray, View, whole_frame
from backend.domain.mask import AuthorKind, MaskAuthor
from backend.domain.segmenter import CanonicalPicture
from backend.domain.trace import MaskMade, Run, ToolBody
from backend.domain.view import Window
from backend.domain.volume import EdgeLetters
from backend.imaging.render import auto_window, encode_png
from backend.services import masks
from backend.services.context import Services
from backend.services.frames import Frames, frame_at
from backend.services.pictures import canonical_picture, view_picture
from backend.services.studies import opened_from


class ClinicWorkbench:
    """One run's series in the database and the blobs. It holds no truth and no other run's masks."""

    def __init__(self, run: Run, *, services: Services) -> None:
        self._run, self._services = run, services
        with services.store.transaction(read_only=True) as tx:
            self._opened = opened_from(tx.studies.head(run.series_id), tx)
        self._frames = Frames(store=services.store, blobs=services.blobs, settings=services.settings)
        series = self._opened.series
        self.series = SeriesFacts(
            id=series.id,
            modality=series.modality,
            unit=series.unit,
            frame_count=len(series.frames),
            spacing_source=series.spacing_source,
        )

    def spacing_of_frame(self, frame_index: int) -> tuple[float, float] | None:
        """Distance between rows, then between columns, as shown, in mm; None where unknown."""
        return frame_at(self._opened.series, frame_index).spacing_row_column_mm

    def letters_of_frame(self, frame_index: int) -> EdgeLetters | None:
        """The patient direction of each edge; None where unknown."""
        plane = frame_at(self._opened.series, frame_index).plane
        return None if plane is None else plane.letters

    def first_view(self) -> View:
        """The whole frame that the question is about."""
        return self.view_of_frame(self._run.frame_index)

    def view_of_frame(self, frame_index: int) -> View:
        """A whole frame under its own window."""
        rows, columns = masks.shown_size(self._opened.series)
        return whole_frame(self.series.id, frame_index, width=columns, height=rows, window=self._window_of(frame_index))

    def render(self, view: View, mask: MaskMade | None = None) -> RenderedPicture:
        """Draw a view and store the picture."""
        frame_mask = None if mask is None else self.mask_on_frame(mask)
        png = encode_png(view_picture(self._opened, view, frames=self._frames, frame_mask=frame_mask))
        return RenderedPicture(png, self._services.blobs.put(png))

    def canonical(self, frame_index: int) -> CanonicalPicture:
        """What a segmenter sees of a frame."""
        return canonical_picture(self._opened, frame_index, frames=self._frames)

    def store_mask(
        self,
        frame_mask: BoolArray,
        *,
        frame_index: int,
        label: str,
        body: ToolBody,
        sequence: int,
        score: float | None,
        is_present: bool,
        is_resampled: bool,
    ) -> MaskMade:
        """Put a mask of the displayed frame on the stored grid; the same call again finds what it stored."""
        author = MaskAuthor(AuthorKind.TOOL, f"{body.name} {body.version}", run_id=self._run.id, sequence=sequence)
        with self._services.store.transaction() as tx:
            version = masks.add_tool_mask(
                tx,
                self._opened.series,
                {frame_index: frame_mask},
                label=_as_label(label),
                author=author,
                is_resampled=is_resampled,
                request_key=f"{self._run.id}:{sequence}",
                clock=self._services.clock,
            )
        spacing = self.spacing_of_frame(frame_index)
        area_px = int(frame_mask.sum())
        return MaskMade(
            mask_version_id=version.id,
            segment=1,
            frame_index=frame_index,
            area_px=area_px,
            area_mm2=None if spacing is None else area_px * spacing[0] * spacing[1],
            box=_tight_box(frame_mask),
            score=score,
            is_present=is_present,
            is_resampled=is_resampled,
        )

    def mask_on_frame(self, made: MaskMade) -> BoolArray:
        """A stored mask on its displayed frame."""
        with self._services.store.transaction(read_only=True) as tx:
            version = tx.masks.get(made.mask_version_id)
            return masks.frame_mask(tx, self._opened.series, version, made.segment, made.frame_index)

    def _window_of(self, frame_index: int) -> Window | None:
        """The frame's own window, as the viewer first shows it; None for colour."""
        series = self._opened.series
        if series.pixel.samples > 1:
            return None
        values = series.frames[frame_index].values
        if values.windows:
            return values.windows[0]
        return auto_window(self._frames.shown(self._opened, frame_index), values, series.pixel.photometric)


def _as_label(words: str) -> str:
    """What a model calls a structure, as a segment's name."""
    printable = "".join(character if character.isprintable() else " " for character in words)
    return " ".join(printable.split())[: masks.LABEL_LENGTH].strip() or "region"


def _tight_box(mask: BoolArray) -> tuple[float, float, float, float] | None:
    """(x0, y0, x1, y1), edges; None where nothing is set."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if rows.size == 0:
        return None
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)
