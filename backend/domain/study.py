"""Studies as DICOM names them, and what became of the files of an upload."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from backend.domain.view import DisplayOrder, PicturePlane, Window
from backend.domain.volume import VolumeGeometry


class SeriesKind(StrEnum):
    """What the frames of one of our series are to each other."""

    VOLUME = "volume"  # a uniform grid: measures in 3D hold
    PICTURES = "pictures"  # frames that form no uniform grid: 2D only, with the reason
    MULTIFRAME = "multiframe"  # one object with several frames and no position for each: a loop in time
    PICTURE = "picture"  # one frame


class Photometric(StrEnum):
    """What a served frame's samples mean after decoding; palette and YBR frames are served as RGB."""

    MONOCHROME1 = "MONOCHROME1"
    MONOCHROME2 = "MONOCHROME2"
    RGB = "RGB"


class SpacingSource(StrEnum):
    """Where a distance in mm comes from. Imager spacing is measured at the detector and not in the patient.

    Source: DICOM PS3.3 10.7 and C.8.3.1.1.
    """

    PATIENT = "patient"
    IMAGER = "imager"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PixelFormat:
    """How one stored frame is laid out in bytes: rows x columns x samples, little endian, interleaved samples.

    Attributes:
        dtype: numpy's name: uint8, int8, uint16, int16, uint32, int32, float32 or float64.
    """

    rows: int
    columns: int
    samples: int
    dtype: str
    photometric: Photometric


@dataclass(frozen=True, slots=True)
class FrameValues:
    """What turns the stored values of one frame into values with a unit, and which values are not image at all.

    Attributes:
        slope, intercept: Rescale Slope and Intercept; 1 and 0 where absent. Source: PS3.3 C.11.1.
        padding: (least, greatest) stored value that marks padding. Source: PS3.3 C.7.5.1.1.2.
        windows: The file's own windows, first one first; empty where it has none.
    """

    slope: float = 1.0
    intercept: float = 0.0
    padding: tuple[int, int] | None = None
    windows: tuple[Window, ...] = ()


@dataclass(frozen=True, slots=True)
class Frame:
    """One picture of a series, in the order it is shown.

    Attributes:
        index: Place in the series, from 0.
        instance_id: The stored object it comes from.
        frame_number: Which frame of that object, from 0.
        plane: None where the file does not say where it lies.
        spacing_row_column_mm: As shown; None where unknown, and then there are no millimetres.
        time_ms: Start of the frame from the first one, for a loop in time.
    """

    index: int
    instance_id: str
    frame_number: int
    values: FrameValues
    plane: PicturePlane | None = None
    spacing_row_column_mm: tuple[float, float] | None = None
    time_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """One grid of frames that are scrolled together; a DICOM Series whose frames differ in size or kind gives several.

    Attributes:
        kind_reason: Why it is no volume, in words for a clinician; None for a volume or a single picture.
        geometry: Present for a volume with a known place in the patient.
        unit: The unit of rescaled values ("HU"), None where unknown.
        display: How a stored frame becomes a picture.
    """

    id: str
    study_id: str
    project_id: str
    modality: str
    description: str
    number: int | None
    kind: SeriesKind
    kind_reason: str | None
    pixel: PixelFormat
    unit: str | None
    spacing_source: SpacingSource
    geometry: VolumeGeometry | None
    display: DisplayOrder
    frames: tuple[Frame, ...] = field(repr=False)

    def stored_k(self, index: int) -> int:
        """The stored slice of the frame shown at `index`, counted over the whole series.

        Slices that are shown from last to first are those of one file (NIfTI), and each volume of a 4D file is turned
        by itself: there the frame's own number is its place. All others are stored in the order that they are shown.
        """
        return self.frames[index].frame_number if self.display.reverse_slices else index

    def shown_index(self, k: int) -> int:
        """The index of the frame whose stored slice is `k`. What is turned twice is as it was: the same rule."""
        return self.stored_k(k)


class UploadState(StrEnum):
    """`receiving -> queued -> ingesting -> done`, or `failed`."""

    RECEIVING = "receiving"
    QUEUED = "queued"
    INGESTING = "ingesting"
    DONE = "done"
    FAILED = "failed"


class FileState(StrEnum):
    """What became of one uploaded file."""

    RECEIVED = "received"  # on disk, not looked at yet
    STORED = "stored"  # a new instance
    DUPLICATE = "duplicate"  # these very bytes were here already
    UNPACKED = "unpacked"  # an archive whose members are files of this upload
    SKIPPED = "skipped"  # no image, and nothing wrong with that (a DICOMDIR, `__MACOSX`)
    QUARANTINED = "quarantined"  # contradicts what is stored; kept, not shown
    REFUSED = "refused"  # cannot be taken in; `code` says why


@dataclass(frozen=True, slots=True)
class UploadFile:
    """One file of an upload. `name` is the sender's and may name a patient: shown to members, never logged."""

    id: str
    name: str
    size: int
    state: FileState
    code: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Upload:
    """A set of files that came together, and how far they are."""

    id: str
    project_id: str
    user_id: str
    state: UploadState
    created_at: datetime
    received_bytes: int
    counts: dict[FileState, int]
    study_ids: tuple[str, ...]
    problems: tuple[UploadFile, ...]
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Who and when: what must not leave the protected table without permission. Empty text is "unknown"."""

    patient_name: str = ""
    patient_id: str = ""
    patient_birth_date: str = ""
    patient_sex: str = ""
    accession_number: str = ""
    study_date: str = ""
    source_name: str = ""

    def contradicts(self, other: "Identity") -> bool:
        """Whether the two cannot be one patient's.

        Patient IDs decide where both have one. Where one has none, names and birth dates do that both have: names
        without regard to case and to empty components, in each way of writing (PS3.5 6.2.1.2) that both use.
        """
        if self.patient_id.strip() and other.patient_id.strip():
            return self.patient_id.strip() != other.patient_id.strip()
        born, other_born = self.patient_birth_date.strip(), other.patient_birth_date.strip()
        if born and other_born and born != other_born:
            return True
        pairs = zip(_name_groups(self.patient_name), _name_groups(other.patient_name), strict=False)
        return any(one and another and one != another for one, another in pairs)


def _name_groups(name: str) -> list[str]:
    """A DICOM name's ways of writing (alphabetic, ideographic, phonetic), each ready to be compared."""
    groups = []
    for group in name.casefold().split("="):
        components = [" ".join(component.split()) for component in group.split("^")]
        groups.append("^".join(components).rstrip("^"))
    return groups


@dataclass(frozen=True, slots=True)
class StudyRow:
    """One line of the worklist."""

    id: str
    project_id: str
    project_name: str
    description: str
    modalities: tuple[str, ...]
    series_count: int
    frame_count: int
    received_at: datetime
    cover_series_id: str | None
    identity: Identity | None
