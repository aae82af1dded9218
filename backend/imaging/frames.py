"""The stored values of a frame, of whatever file it came in."""

from typing import Any, BinaryIO

import numpy as np

from backend.imaging.dicom_frames import decode_dicom_frame, raw_frame_location
from backend.imaging.limits import Limits
from backend.imaging.nifti import decode_nifti_frame, decode_nifti_volume, nifti_raw_location
from backend.imaging.pictures import decode_picture

Array = np.ndarray[Any, np.dtype[Any]]


def raw_location(facts: dict[str, Any], frame_number: int) -> tuple[int, int] | None:
    """Where the original holds the frame's stored values as they are served: (offset, size), or None.

    The bytes there are rows x columns x samples of `PixelFormat.dtype`, little endian.
    """
    if facts["format"] == "dicom":
        return raw_frame_location(facts, frame_number)
    return nifti_raw_location(facts, frame_number) if facts["format"] == "nifti" else None


def decode_frame(file: BinaryIO, facts: dict[str, Any], frame_number: int, *, limits: Limits | None = None) -> Array:
    """Stored values of one frame, (rows, columns) or (rows, columns, 3), in `PixelFormat.dtype`; not rescaled, not
    turned for display.

    Raises:
        UndecodableFrame: If the bytes do not decode, or not to what the header says.
    """
    limits = limits or Limits()
    if facts["format"] == "dicom":
        return decode_dicom_frame(file, facts, frame_number, limits)
    if facts["format"] == "nifti":
        return decode_nifti_frame(file, facts, frame_number)
    return decode_picture(file, facts, limits)


def decode_volume(file: BinaryIO, facts: dict[str, Any]) -> Array:
    """All stored values of a NIfTI, (k, j, i) or (k, j, i, 3); the times of a 4D file follow each other in k.

    Raises:
        UndecodableFrame: If the voxels do not unpack.
    """
    return decode_nifti_volume(file, facts)
