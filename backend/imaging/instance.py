"""What ingest learns of one file from its header alone."""

from dataclasses import dataclass
from typing import Any, Literal

from backend.domain.study import Identity


@dataclass(frozen=True, slots=True)
class InstanceHeader:
    """What ingest needs of one file; no pixels are decoded for it.

    Attributes:
        sop_instance_uid: The file's own, or `sha256:` and the first 32 hex digits where it has none.
        study_key, series_key: Its UIDs, or the same hash: a file that is not DICOM is a study of its own.
        modality: DICOM's code or what the sender stated; "" where unknown.
        identity: For the protected table only.
        facts: JSON-able; all that `arrange` and `frames` need, and no identifying attribute.
    """

    format: Literal["dicom", "nifti", "picture"]
    sop_instance_uid: str
    study_key: str
    series_key: str
    modality: str
    study_description: str
    series_description: str
    series_number: int | None
    identity: Identity
    facts: dict[str, Any]


def hash_key(sha256: str) -> str:
    """The key of a thing that has no UID of its own."""
    return f"sha256:{sha256[:32]}"
