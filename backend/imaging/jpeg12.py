"""JPEG Extended of 12 bits, which GDCM decodes and pydicom's plugin for it refuses. Source: DICOM PS3.5 8.2.1.

`tests/test_imaging_frames.py` holds it equal to DCMTK's values.
"""

from typing import Any

import gdcm
import numpy as np

from backend.domain.errors import UndecodableFrame


def decode_jpeg12(
    stream: bytes, syntax: str, rows: int, columns: int, *, stored: int, signed: bool
) -> np.ndarray[Any, Any]:
    """One grey frame as (rows, columns) of 16 bit words.

    Raises:
        UndecodableFrame: If GDCM gives another number of bytes than the header says.
    """
    fragment = gdcm.Fragment()
    fragment.SetByteStringValue(stream)
    fragments = gdcm.SequenceOfFragments.New()
    fragments.AddFragment(fragment)
    element = gdcm.DataElement(gdcm.Tag(0x7FE0, 0x0010))
    element.SetValue(fragments.__ref__())
    image = gdcm.Image()
    image.SetNumberOfDimensions(2)
    image.SetDimensions((columns, rows, 1))
    image.SetDataElement(element)
    image.SetPhotometricInterpretation(gdcm.PhotometricInterpretation(gdcm.PhotometricInterpretation.MONOCHROME2))
    image.SetTransferSyntax(gdcm.TransferSyntax(gdcm.TransferSyntax.GetTSType(syntax)))
    image.SetPixelFormat(gdcm.PixelFormat(1, 16, stored, stored - 1, int(signed)))
    # SWIG hands the bytes over as text.
    raw = image.GetBuffer().encode("utf-8", "surrogateescape")
    if len(raw) != 2 * rows * columns:
        raise UndecodableFrame(f"a frame of {rows} x {columns} needs {2 * rows * columns} bytes, {len(raw)} came")
    return np.frombuffer(raw, dtype="<i2" if signed else "<u2").reshape(rows, columns)
