"""The clinic's workbench: what a run's loop and tools reach of one stored series."""

import numpy as np

from backend.agent.pictures import in_proportion
from backend.agent.workbench import GivenMask, RenderedPicture, SeriesFacts, StoredMask
from backend.domain.crop import BoolArray, View, whole_frame
from backend.domain.errors import NotFound
from backend.domain.mask import AuthorKind, MaskAuthor, MaskVersion
from backend.domain.segmenter import CanonicalPicture
from backend.domain.trace import MaskMade, QuestionAsked, Run, ToolBody
from backend.domain.view import Window
from backend.domain.volume import EdgeLetters
from backend.imaging.render import auto_window, encode_png
from backend.services import masks
from backend.services.context import Services
from backend.services.frames import Frames, frame_at
from backend.services.pictures import canonical_picture, view_picture
from backend.services.studies import opened_from
from backend.store.repository import Transaction


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
        """A whole frame under its own window, in its physical aspect."""
        rows, columns = masks.shown_size(self._opened.series)
        window = self._window_of(frame_index)
        view = whole_frame(self.series.id, frame_index, width=columns, height=rows, window=window)
        return in_proportion(view, self.spacing_of_frame(frame_index))

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
    ) -> StoredMask:
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
            stored = masks.frame_mask(tx, self._opened.series, version, 1, frame_index)
            maker = body if version.author.name == author.name else self._body_named(version.author.name, tx)
        # A score is not stored with a mask: it holds for the very same answer only.
        is_this_answer = maker == body and np.array_equal(stored, frame_mask)
        made = self._measured(version, 1, frame_index, stored, score=score if is_this_answer else None)
        return StoredMask(made.model_copy(update={"is_present": is_present}), maker)

    def given_mask(self, mask_version_id: str, *, frame_index: int) -> GivenMask:
        """A person's mask on one frame. Raises `NotFound`, for a mask of another series too (casebook C31)."""
        with self._services.store.transaction(read_only=True) as tx:
            version = tx.masks.get(mask_version_id)
            if version.series_id != self.series.id or not version.segments:
                raise NotFound(f"no mask version {mask_version_id} on series {self.series.id}")
            on_frame = {
                segment: masks.frame_mask(tx, self._opened.series, version, segment.number, frame_index)
                for segment in version.segments
            }
        segment = next((one for one, mask in on_frame.items() if mask.any()), version.segments[0])
        made = self._measured(version, segment.number, frame_index, on_frame[segment], score=None)
        return GivenMask(made, segment.label)

    def _measured(
        self, version: MaskVersion, segment: int, frame_index: int, stored: BoolArray, *, score: float | None
    ) -> MaskMade:
        """The facts of a stored plane, taken from what is stored."""
        spacing = self.spacing_of_frame(frame_index)
        area_px = int(stored.sum())
        return MaskMade(
            mask_version_id=version.id,
            segment=segment,
            frame_index=frame_index,
            area_px=area_px,
            area_mm2=None if spacing is None else area_px * spacing[0] * spacing[1],
            box=_tight_box(stored),
            score=score,
            is_resampled=version.is_resampled,
        )

    def _body_named(self, author_name: str, tx: Transaction) -> ToolBody:
        """The body that an author's name stands for: one of those that answered when the run was asked."""
        asked = tx.runs.event(self._run.id, 1)
        bodies = asked.payload.segmenter if asked is not None and isinstance(asked.payload, QuestionAsked) else ()
        name, _, version = author_name.rpartition(" ")
        unknown = ToolBody(name=name, version=version, is_demonstration=True)
        return next((body for body in bodies if f"{body.name} {body.version}" == author_name), unknown)

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
