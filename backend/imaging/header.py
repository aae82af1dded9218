"""One uploaded file, whatever it is, to its header or to the reason why it is refused."""

import re
from typing import BinaryIO

from backend.domain.errors import UnsupportedFile
from backend.imaging.data_set import OTHER_KIND
from backend.imaging.dicom import read_dicom
from backend.imaging.instance import InstanceHeader
from backend.imaging.limits import Limits
from backend.imaging.nifti import HEADER_BYTES, gunzipped_head, nifti_version, read_nifti
from backend.imaging.pictures import is_picture, read_picture

__all__ = ["InstanceHeader", "read_header"]

_MODALITY = re.compile(r"[A-Z0-9_]{0,16}\Z", re.ASCII)


def read_header(
    file: BinaryIO, *, sha256: str, size: int, stated_modality: str = "", limits: Limits | None = None
) -> InstanceHeader:
    """Read what ingest needs of one file, told by its bytes and never by its name.

    Args:
        file: Seekable, read from its beginning.
        sha256: Of the whole file, in hex; names what has no UID.
        size: Of the whole file in bytes.
        stated_modality: The sender's word for files that say nothing of themselves; DICOM speaks for itself.
        limits: Bounds on what the file may unpack to; the default ones unless given.

    Raises:
        FileRefused: `UnsupportedFile`, `NoPixels`, `UnreadableFile`, `TruncatedPixels` or `FileTooLarge`. Nothing else
            is raised for any bytes.
    """
    limits = limits or Limits()
    stated_modality = stated_modality if _MODALITY.match(stated_modality) else ""
    file.seek(0)
    head = file.read(HEADER_BYTES)
    if head[128:132] == b"DICM":
        return read_dicom(file, sha256=sha256, size=size, limits=limits)
    if is_picture(head):
        return read_picture(file, sha256=sha256, size=size, stated_modality=stated_modality, limits=limits)
    is_gzip = head[:2] == b"\x1f\x8b"
    unpacked = gunzipped_head(file) if is_gzip else head
    if nifti_version(unpacked):
        return read_nifti(
            file, unpacked, sha256=sha256, size=size, stated_modality=stated_modality, is_gzip=is_gzip, limits=limits
        )
    if is_gzip or size < 16:
        raise UnsupportedFile(OTHER_KIND)
    if unpacked[344:348] == b"ni1\0" or unpacked[4:8] == b"ni2\0":
        raise UnsupportedFile("a NIfTI of one file is read, one whose voxels lie in a second file came")
    return read_dicom(file, sha256=sha256, size=size, limits=limits)
