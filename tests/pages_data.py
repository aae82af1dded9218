"""Studies for the browser tests: real ones, and phantoms in which left, right, up and down are known."""

import io
from pathlib import Path

import nibabel
import numpy as np
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian

CANARY_NAME, CANARY_ID = "ZZTEST^CANARY", "CANARY-123"

# The phantom in the patient: 40 x 32 x 6 voxels of 2 x 2 x 3 mm on LPS axes. A block of 100 lies right and anterior in
# every slice, a block of 50 left and posterior in the slice nearest the head only. All else is -200.
COLUMNS, ROWS, SLICES = 40, 32, 6
BACKGROUND, RIGHT_ANTERIOR, HEAD_ONLY = -200, 100, 50


def phantom_lps() -> np.ndarray:
    """The phantom as (z to the head, y to posterior, x to the left)."""
    volume = np.full((SLICES, ROWS, COLUMNS), BACKGROUND, np.int16)
    volume[:, 3:9, 4:16] = RIGHT_ANTERIOR
    volume[-1, 24:30, 28:36] = HEAD_ONLY
    return volume


def dicom_phantom(*, reversed_rows_and_columns: bool = False) -> list[tuple[str, bytes]]:
    """The phantom as axial CT files, in no order; reversed, each picture begins at the patient's left back."""
    volume, sign = phantom_lps(), 1
    if reversed_rows_and_columns:
        volume, sign = volume[:, ::-1, ::-1], -1
    uid = "1.2.826.0.1.3680043.10.1338." + ("2" if reversed_rows_and_columns else "1")
    first = np.array([0.0, 0.0]) if sign == 1 else np.array([2.0 * (COLUMNS - 1), 2.0 * (ROWS - 1)])
    files = []
    for k in (3, 0, 5, 1, 4, 2):
        meta = FileMetaDataset()
        meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = CTImageStorage, f"{uid}.3.{k + 1}"
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
        instance = FileDataset("", Dataset(), file_meta=meta, preamble=b"\0" * 128)
        instance.SOPClassUID, instance.SOPInstanceUID = CTImageStorage, f"{uid}.3.{k + 1}"
        instance.StudyInstanceUID, instance.SeriesInstanceUID = f"{uid}.1", f"{uid}.2"
        instance.FrameOfReferenceUID = f"{uid}.4"
        instance.Modality, instance.SeriesNumber, instance.InstanceNumber = "CT", 1, SLICES - k
        instance.PatientName, instance.PatientID = CANARY_NAME, CANARY_ID
        instance.StudyDescription, instance.SeriesDescription = "Asymmetric phantom", "axial"
        instance.ImagePositionPatient = [float(first[0]), float(first[1]), 3.0 * k]
        instance.ImageOrientationPatient = [sign, 0, 0, 0, sign, 0]
        instance.PixelSpacing, instance.SliceThickness = [2.0, 2.0], 3.0
        instance.Rows, instance.Columns = ROWS, COLUMNS
        instance.SamplesPerPixel, instance.PhotometricInterpretation = 1, "MONOCHROME2"
        instance.BitsAllocated, instance.BitsStored, instance.HighBit, instance.PixelRepresentation = 16, 16, 15, 1
        instance.RescaleSlope, instance.RescaleIntercept, instance.RescaleType = 1, 0, "HU"
        instance.WindowCenter, instance.WindowWidth = 0, 401
        instance.PixelData = np.ascontiguousarray(volume[k]).astype("<i2").tobytes()
        written = io.BytesIO()
        instance.save_as(written, enforce_file_format=True)
        files.append((f"slice{k}.dcm", written.getvalue()))
    return files


def nifti_phantom(*, stored_to_the_left: bool) -> bytes:
    """The phantom as NIfTI with x stored to the patient's left or to the right, y to anterior, z to the head."""
    # (x, y, z) of RAS: from the volume on LPS, y turns round, and x where it is stored to the right.
    stored = phantom_lps().transpose(2, 1, 0)[:, ::-1]
    affine = np.diag([-2.0, 2.0, 3.0, 1.0])
    if not stored_to_the_left:
        stored, affine = stored[::-1], np.diag([2.0, 2.0, 3.0, 1.0])
    image = nibabel.Nifti1Image(np.ascontiguousarray(stored), affine)
    image.header.set_xyzt_units("mm", "sec")
    return bytes(image.to_bytes())


def folder_files(folder: Path) -> list[tuple[str, bytes]]:
    """The files of a folder, by name."""
    return [(path.name, path.read_bytes()) for path in sorted(folder.iterdir()) if path.is_file()]
