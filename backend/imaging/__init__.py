"""DICOM, NIfTI and pictures in; stored values, geometry and rendered views out."""
