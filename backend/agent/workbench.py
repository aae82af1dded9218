"""What the loop and its tools need of the world: pictures to look at, values to measure, a place for masks.

Bodies: the clinic's (`backend.services`), the one of the tests, and the rollouts' of the trainer. None of them holds a
reference mask: there is no way from here to the truth, so no reward can leak through a tool (peers.md 6 a, b).
"""

from dataclasses import dataclass
from typing import Protocol

from backend.domain.crop import BoolArray, View
from backend.domain.segmenter import CanonicalPicture
from backend.domain.study import SpacingSource
from backend.domain.trace import MaskMade, ToolBody
from backend.domain.volume import EdgeLetters


@dataclass(frozen=True, slots=True)
class SeriesFacts:
    """What is true of the whole series.

    Attributes:
        modality: DICOM's code, "" where unknown.
        unit: Of the canonical picture's values ("HU"), None where unknown.
        spacing_source: Where millimetres come from; at the detector they are not the patient's.
    """

    id: str
    modality: str
    unit: str | None
    frame_count: int
    spacing_source: SpacingSource


@dataclass(frozen=True, slots=True)
class RenderedPicture:
    """A PNG that is stored as a blob already; the same view and mask give the same bytes again."""

    png: bytes
    sha256: str


@dataclass(frozen=True, slots=True)
class StoredMask:
    """A tool's mask as it is stored, with the body that made what is stored."""

    made: MaskMade
    body: ToolBody


@dataclass(frozen=True, slots=True)
class GivenMask:
    """A mask that a person gave with a correction, on one frame."""

    made: MaskMade
    label: str


class Workbench(Protocol):
    """One series, laid out for one run."""

    @property
    def series(self) -> SeriesFacts:
        """The series at hand."""
        ...

    def spacing_of_frame(self, frame_index: int) -> tuple[float, float] | None:
        """Distance between rows, then between columns, as shown, in mm; None where unknown."""
        ...

    def letters_of_frame(self, frame_index: int) -> EdgeLetters | None:
        """The patient direction that each edge of the displayed frame faces; None where unknown."""
        ...

    def first_view(self) -> View:
        """The whole frame that the question is about, as `view_of_frame` gives it."""
        ...

    def view_of_frame(self, frame_index: int) -> View:
        """A whole frame under its own window, in its physical aspect (`pictures.in_proportion`).

        Args:
            frame_index: Within the series.
        """
        ...

    def render(self, view: View, mask: MaskMade | None = None) -> RenderedPicture:
        """Draw a view, with a mask of this run over it where one is given, and store the picture."""
        ...

    def canonical(self, frame_index: int) -> CanonicalPicture:
        """What a segmenter sees: the whole displayed frame under the fixed window of its modality."""
        ...

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
        """Put a mask of the displayed frame on the stored grid as a new version.

        Args:
            frame_mask: (frame_height, frame_width), as shown.
            sequence: The `ToolReturned` that will report it. A tool makes one mask at most, so the run and this number
                name it: the same call again after a crash finds the version that it made.

        Returns:
            What is stored under that name, measured there. After a crash it may be another answer than `frame_mask`, by
            another body; its score is then unknown.
        """
        ...

    def given_mask(self, mask_version_id: str, *, frame_index: int) -> GivenMask:
        """A person's mask on one frame: the first segment that has something there. Raises `NotFound`."""
        ...

    def mask_on_frame(self, made: MaskMade) -> BoolArray:
        """A mask that was stored or given here, on its displayed frame: (frame_height, frame_width)."""
        ...
