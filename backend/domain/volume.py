"""Where voxels are in the patient.

Index order is `[k, j, i]`: slice, row, column. Patient axes are LPS in mm: +x left, +y posterior, +z head.
Source: DICOM PS3.3 C.7.6.2.1.1.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from backend.domain.errors import ShapeError

FloatArray = NDArray[np.float64]
PatientLetter = Literal["L", "R", "A", "P", "H", "F"]
# Axes that lean onto each other until they are 0.06 degrees apart have 0.001; a grid of a patient is far from it.
LEAST_DETERMINANT = 1e-6
_LETTERS: tuple[tuple[PatientLetter, PatientLetter], ...] = (("L", "R"), ("P", "A"), ("H", "F"))


@dataclass(frozen=True, slots=True)
class EdgeLetters:
    """The patient direction that each edge of a displayed picture faces, e.g. left "R", top "A"."""

    left: PatientLetter
    right: PatientLetter
    top: PatientLetter
    bottom: PatientLetter


@dataclass(frozen=True, slots=True)
class VolumeGeometry:
    """A uniform grid in one Frame of Reference.

    Attributes:
        shape_kji: Slices, rows, columns of the stored grid.
        affine_kji_to_lps_mm: (4, 4), a stored index `[k, j, i, 1]` to patient mm.
        frame_of_reference_uid: None where the file names none (NIfTI).
    """

    shape_kji: tuple[int, int, int]
    affine_kji_to_lps_mm: FloatArray
    frame_of_reference_uid: str | None = None

    def __post_init__(self) -> None:
        if self.affine_kji_to_lps_mm.shape != (4, 4):
            raise ShapeError(f"an affine is (4, 4), got {self.affine_kji_to_lps_mm.shape}")
        if not is_grid(self.affine_kji_to_lps_mm):
            raise ShapeError("an affine is finite and invertible")

    @property
    def spacing_kji_mm(self) -> tuple[float, float, float]:
        """Distance between neighbouring voxel centres along each index axis."""
        k, j, i = np.linalg.norm(self.affine_kji_to_lps_mm[:3, :3], axis=0)
        return float(k), float(j), float(i)


def is_grid(affine: FloatArray) -> bool:
    """Whether the three axes of an affine span space, whatever their lengths: microscopy counts in micrometres.

    Args:
        affine: (4, 4). Its determinant is that of the axes at length 1: 1 for right angles, 0 for axes in one plane.
    """
    axes = affine[:3, :3]
    if not np.isfinite(affine).all() or not np.array_equal(affine[3], (0, 0, 0, 1)):
        return False
    lengths = np.linalg.norm(axes, axis=0)
    if not (np.isfinite(lengths).all() and (lengths > 0).all()):
        return False
    return bool(abs(np.linalg.det(axes / lengths)) > LEAST_DETERMINANT)


def to_patient_mm(geometry: VolumeGeometry, index_kji: FloatArray) -> FloatArray:
    """Place voxel indices in the patient.

    Args:
        geometry: `affine_kji_to_lps_mm` (4, 4), array index to mm, in one Frame of Reference.
        index_kji: (N, 3) zero-based indices. Whole numbers are voxel centres.

    Returns:
        (N, 3) x, y, z in mm on DICOM patient axes (LPS: +x left, +y posterior, +z head).

    Raises:
        ShapeError: If `index_kji` is not (N, 3).

    Source: DICOM PS3.3 C.7.6.2.1.1, equation C.7.6.2.1-1.
    """
    if index_kji.ndim != 2 or index_kji.shape[1] != 3:
        raise ShapeError(f"voxel indices must be (N, 3), got {index_kji.shape}")
    placed: FloatArray = index_kji @ geometry.affine_kji_to_lps_mm[:3, :3].T + geometry.affine_kji_to_lps_mm[:3, 3]
    return placed


def patient_letter(direction_lps: FloatArray) -> PatientLetter:
    """Name the patient direction that a vector mostly points to."""
    axis = int(np.argmax(np.abs(direction_lps)))
    positive, negative = _LETTERS[axis]
    return positive if direction_lps[axis] > 0 else negative


def edge_letters(row_direction_lps: FloatArray, column_direction_lps: FloatArray) -> EdgeLetters:
    """Letters for the edges of a picture.

    Args:
        row_direction_lps: (3,) where the picture's rows run to, that is from its left edge to its right edge.
        column_direction_lps: (3,) where its columns run to, from top to bottom.

    Source: DICOM PS3.3 C.7.6.2.1.1 and C.7.6.1.1.1.
    """
    return EdgeLetters(
        left=patient_letter(-row_direction_lps),
        right=patient_letter(row_direction_lps),
        top=patient_letter(-column_direction_lps),
        bottom=patient_letter(column_direction_lps),
    )
