"""How stored values become a picture: windows, and the order in which stored frames are laid on the screen."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from backend.domain.errors import InvalidWindow
from backend.domain.volume import EdgeLetters, FloatArray, edge_letters


class VoiLutFunction(StrEnum):
    """DICOM's VOI LUT Function (0028,1056). Source: PS3.3 C.11.2.1.2 and C.11.2.1.3."""

    LINEAR = "LINEAR"
    LINEAR_EXACT = "LINEAR_EXACT"
    SIGMOID = "SIGMOID"


@dataclass(frozen=True, slots=True)
class Window:
    """A window and its VOI LUT function, in the unit the modality LUT gives (HU for CT). Source: PS3.3 C.11.2.1."""

    center: float
    width: float
    function: VoiLutFunction = VoiLutFunction.LINEAR
    label: str | None = None

    def __post_init__(self) -> None:
        # LINEAR divides by width - 1, so its least width is 1 (PS3.3 C.11.2.1.2.1); the others need width > 0.
        least_ok = self.width >= 1 if self.function is VoiLutFunction.LINEAR else self.width > 0
        if not (least_ok and np.isfinite(self.center) and np.isfinite(self.width)):
            raise InvalidWindow(f"a {self.function} window has a width above its least one, got {self.width}")


@dataclass(frozen=True, slots=True)
class DisplayOrder:
    """How a stored frame `[j, i]` is laid out as a picture: transpose first, then flip.

    A DICOM frame is shown as it was acquired. A NIfTI has no order of its own for the screen, so its frames are turned
    to the radiological one (axial: patient right on the left, anterior on top; coronal: right on the left, head on
    top; sagittal: anterior on the left, head on top). Only the picture turns, the stored grid stays. DESIGN 3.
    """

    transpose: bool = False
    flip_rows: bool = False
    flip_columns: bool = False
    reverse_slices: bool = False

    def frame_to_picture(self, frame: np.ndarray) -> np.ndarray:
        """Lay a stored frame (rows, columns[, samples]) out for the screen; a view, not a copy."""
        picture = frame.swapaxes(0, 1) if self.transpose else frame
        if self.flip_rows:
            picture = picture[::-1]
        if self.flip_columns:
            picture = picture[:, ::-1]
        return picture

    def stored_slice(self, shown: int, slices: int) -> int:
        """The stored k of the picture at place `shown` of the stack."""
        return slices - 1 - shown if self.reverse_slices else shown


@dataclass(frozen=True, slots=True)
class PicturePlane:
    """Where a displayed picture lies in the patient, as DICOM's image plane describes it.

    Attributes:
        origin_lps_mm: (3,) the centre of the picture's first pixel.
        row_direction_lps: (3,) unit vector from the first column to the last.
        column_direction_lps: (3,) unit vector from the first row to the last.
        spacing_row_column_mm: Distance between rows, then between columns: the order of Pixel Spacing.

    Source: DICOM PS3.3 C.7.6.2 and 10.7.1.3.
    """

    origin_lps_mm: FloatArray
    row_direction_lps: FloatArray
    column_direction_lps: FloatArray
    spacing_row_column_mm: tuple[float, float]

    @property
    def letters(self) -> EdgeLetters:
        """The patient direction each edge faces."""
        return edge_letters(self.row_direction_lps, self.column_direction_lps)
