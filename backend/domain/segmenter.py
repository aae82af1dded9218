"""What a segmenter is asked and what it answers, whichever body does the work.

A segmenter sees one canonical picture: a whole displayed frame under a fixed window by modality, so that a change of
the window on the screen costs no new encoding. DESIGN 5 and 6.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from backend.domain.errors import NotFound, PlatformError, ShapeError

MAX_POINTS = 64


class ToolError(PlatformError):
    """A tool could not do what it was asked and the model may try again. Anything else ends the run."""

    code = "tool_error"
    http_status = 422


class UnknownConcept(ToolError):
    """No body here finds this by name; `details["known"]` lists what can be found in such a picture."""

    code = "unknown_concept"


class UnusablePrompt(ToolError):
    """A box without area or outside the picture, or points that contradict each other."""

    code = "unusable_prompt"


class SegmenterUnavailable(PlatformError):
    """No segmenter answers."""

    code = "segmenter_unavailable"
    http_status = 503


class SegmenterBusy(SegmenterUnavailable):
    """More prompts wait than the segmenter keeps in line; `details["retry_after_s"]` says when to try again."""

    code = "segmenter_busy"


class SegmenterTimeout(SegmenterUnavailable):
    """The segmenter took longer than it is given for one prompt."""

    code = "segmenter_timeout"
    http_status = 504


class PictureUnknown(NotFound):
    """The segmenter process does not hold this picture (any more): send it again."""

    code = "picture_unknown"


@dataclass(frozen=True, slots=True)
class CanonicalPicture:
    """What a segmenter looks at.

    Attributes:
        pixels: (rows, columns) or (rows, columns, 3) uint8, the frame under the canonical window.
        values: (rows, columns) float32 in `unit`, or None for colour: what intensity rules read. NaN where the file
            has no value: padding, or what is no finite number.
        modality: DICOM's code, "" where unknown.
        unit: "HU" or None where unknown.
        spacing_row_column_mm: None where unknown.
    """

    pixels: NDArray[np.uint8]
    values: NDArray[np.float32] | None = None
    modality: str = ""
    unit: str | None = None
    spacing_row_column_mm: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.pixels.ndim not in (2, 3) or (self.pixels.ndim == 3 and self.pixels.shape[2] != 3):
            raise ShapeError(f"a canonical picture is (rows, columns[, 3]), got {self.pixels.shape}")
        if self.values is not None and self.values.shape != self.pixels.shape[:2]:
            raise ShapeError(f"values are {self.pixels.shape[:2]} like the picture, got {self.values.shape}")


@dataclass(frozen=True, slots=True)
class BoxPrompt:
    """Outline what is in this box: (x0, y0, x1, y1), edges in pixels of the canonical picture."""

    box: tuple[float, float, float, float]

    def usable(self, rows: int, columns: int) -> tuple[float, float, float, float]:
        """The box in its picture: corners in order (casebook C50) and cut at the picture's edges.

        Raises:
            UnusablePrompt: If it is not finite or covers less than one pixel of the picture in either direction.
        """
        if not all(math.isfinite(edge) for edge in self.box):
            raise UnusablePrompt(f"a box is four finite edges (x0, y0, x1, y1), got {self.box}")
        x0, x1 = sorted((self.box[0], self.box[2]))
        y0, y1 = sorted((self.box[1], self.box[3]))
        x0, x1 = max(x0, 0.0), min(x1, float(columns))
        y0, y1 = max(y0, 0.0), min(y1, float(rows))
        if x1 - x0 < 1 or y1 - y0 < 1:
            raise UnusablePrompt(
                f"a box covers at least one pixel of its {columns} x {rows} picture (x0, y0, x1, y1), got {self.box}"
            )
        return x0, y0, x1, y1


@dataclass(frozen=True, slots=True)
class PointsPrompt:
    """Outline what holds the points with label 1 and none with label 0; (x, y) are edges in pixels."""

    points: tuple[tuple[float, float], ...]
    labels: tuple[Literal[0, 1], ...]

    def usable(self, rows: int, columns: int) -> "PointPixels":
        """The pixels that the points lie in.

        Raises:
            UnusablePrompt: If points and labels differ in number, none says 1, one lies outside the picture, or one
                pixel is labelled both 0 and 1.
        """
        if len(self.points) != len(self.labels) or not set(self.labels) <= {0, 1}:
            raise UnusablePrompt(
                f"each point has one label, 0 or 1: got {len(self.points)} points and {len(self.labels)} labels"
            )
        if len(self.points) > MAX_POINTS:
            raise UnusablePrompt(f"a prompt has at most {MAX_POINTS} points, got {len(self.points)}")
        for x, y in self.points:
            # A NaN fails both comparisons.
            if not (0 <= x <= columns and 0 <= y <= rows):
                raise UnusablePrompt(f"a point (x, y) lies in its {columns} x {rows} picture, got ({x}, {y})")
        pixels = [(min(int(y), rows - 1), min(int(x), columns - 1)) for x, y in self.points]
        inside = sorted({at for at, label in zip(pixels, self.labels, strict=True) if label == 1})
        outside = sorted({at for at, label in zip(pixels, self.labels, strict=True) if label == 0})
        if not inside:
            raise UnusablePrompt("at least one point has label 1 (inside); all have label 0")
        if both := set(inside) & set(outside):
            row, column = min(both)
            raise UnusablePrompt(f"pixel (x {column}, y {row}) is labelled both inside and outside")
        return PointPixels(inside=inside, outside=outside)


@dataclass(frozen=True, slots=True)
class PointPixels:
    """(row, column) of the pixels that a points prompt names, without repeats."""

    inside: Sequence[tuple[int, int]]
    outside: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ConceptPrompt:
    """Find this by name ("lungs", "bone")."""

    concept: str


Prompt = BoxPrompt | PointsPrompt | ConceptPrompt


@dataclass(frozen=True, slots=True)
class SegmenterBody:
    """Which body answered.

    Attributes:
        sha256: Of its weights; None where it has none (rules).
        is_demonstration: True for a body that no clinician should take for a trained model.
    """

    name: str
    version: str
    sha256: str | None
    is_demonstration: bool


@dataclass(frozen=True, slots=True)
class Segmentation:
    """A mask and how sure the body is.

    Attributes:
        mask: (rows, columns) of the canonical picture. All False with `is_present` False is an answer: "not present".
        score: 0 to 1 as the body means it; None where it says none.
        is_present: The body's own acceptance test (casebook C49).
        grid: (rows, columns) of the cells in which the body itself answered; None where they are the picture's pixels.
    """

    mask: NDArray[np.bool_]
    score: float | None
    is_present: bool
    body: SegmenterBody
    seconds: float
    grid: tuple[int, int] | None = None

    @property
    def is_resampled(self) -> bool:
        """Whether the body answered with less than one cell for each pixel."""
        rows, columns = self.mask.shape
        return self.grid is not None and (self.grid[0] < rows or self.grid[1] < columns)


class Segmenter(Protocol):
    """Turns a prompt on a picture into a mask. Raises `ToolError` where the prompt can be mended."""

    def segment(self, picture: CanonicalPicture, prompt: Prompt) -> Segmentation:
        """Answer one prompt."""
        ...

    def prepare(self, picture: CanonicalPicture) -> None:
        """Encode a picture ahead of its first prompt; may do nothing."""
        ...

    def concepts(self, modality: str) -> tuple[str, ...]:
        """What can be found by name in pictures of this modality."""
        ...

    def bodies(self) -> tuple[SegmenterBody, ...]:
        """Who would answer."""
        ...
