"""What becomes of received files: read, stored, found to be there already, kept apart, unpacked or refused.

Files are looked at outside a transaction and settled in one, a batch at a time; whatever was not settled is looked at
again by whoever takes the upload up.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import structlog

from backend.domain.errors import (
    FileRefused,
    FileTooLarge,
    NoPixels,
    PatientMismatch,
    PlatformError,
    SopInstanceConflict,
)
from backend.domain.study import FileState, Series
from backend.imaging.arrange import SeriesLayout, StoredInstance, arrange
from backend.imaging.header import InstanceHeader, read_header
from backend.imaging.instance import hash_key
from backend.imaging.limits import Limits
from backend.services.archive import HEAD_BYTES, Archive, Member, is_archive, is_litter, open_archive
from backend.settings import Settings
from backend.store.blobs import Blobs
from backend.store.repository import Transaction, new_id
from backend.store.studies import KnownInstance, NewInstance, NewStudy, SeriesKey
from backend.store.uploads import NewFile, Outcome, ReceivedFile, UploadRecord

log = structlog.get_logger(__name__)

BATCH_S = 0.5
NO_GRID = "the positions and distances of the slices make no grid that can be measured"
_LITTER_CODE = "litter"
_KEY_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Readable:
    """A file whose header was read, and the id that its instance gets if it is new."""

    file: ReceivedFile
    header: InstanceHeader
    instance_id: str


@dataclass(slots=True)
class Batch:
    """Files looked at: settled already, or to be stored. `archive` is the file after them, if that is one."""

    outcomes: list[Outcome] = field(default_factory=list)
    readable: list[Readable] = field(default_factory=list)
    archive: ReceivedFile | None = None


def look_at(files: Sequence[ReceivedFile], upload: UploadRecord, *, blobs: Blobs, settings: Settings) -> Batch:
    """Read headers, in order, until half a second has gone or an archive comes."""
    batch = Batch()
    limits = Limits(max_frame_bytes=settings.max_frame_bytes, max_unpacked_bytes=settings.max_file_bytes)
    deadline = time.monotonic() + BATCH_S
    for file in files:
        if is_litter(file.name):
            batch.outcomes.append(_litter(file.id))
            continue
        with blobs.open(file.sha256) as opened:
            if is_archive(opened.read(HEAD_BYTES)):
                batch.archive = file
                break
            opened.seek(0)
            try:
                header = read_header(
                    opened,
                    sha256=file.sha256,
                    size=file.size,
                    stated_modality=upload.stated_modality,
                    limits=limits,
                )
            except FileRefused as error:
                batch.outcomes.append(_refused(file.id, error))
            else:
                batch.readable.append(Readable(file, _with_short_keys(header), new_id()))
        if time.monotonic() > deadline:
            break
    return batch


def store_batch(batch: Batch, upload: UploadRecord, tx: Transaction, *, now: datetime) -> None:
    """Settle a batch: new instances in, the same bytes again counted, other bytes of a known UID kept apart."""
    first_of_uid: dict[str, Readable] = {}
    for readable in batch.readable:
        first_of_uid.setdefault(readable.header.sop_instance_uid, readable)
    stored = tx.studies.known_instances(upload.project_id, list(first_of_uid))
    new = [readable for uid, readable in first_of_uid.items() if uid not in stored]
    mismatched: list[Outcome] = []
    if new:
        studies = {readable.header.study_key: _study(readable, upload) for readable in reversed(new)}
        study_ids = tx.studies.add_studies(upload.project_id, list(studies.values()), now=now)
        # After the studies are there, whoever made them: also what came a moment ago by another upload is compared.
        identities = tx.studies.identities(list(study_ids.values()))
        welcome = []
        for readable in new:
            study_id = study_ids[readable.header.study_key]
            if identities[study_id].contradicts(readable.header.identity):
                mismatched.append(_mismatch(readable.file, study_id))
            else:
                welcome.append(readable)
        stored |= tx.studies.add_instances(
            upload.project_id, [_instance(readable, upload) for readable in welcome], study_ids
        )
    # Another file with the UID of one that was kept apart is left as received: the next batch looks at it by itself.
    settled = [
        _outcome(readable, stored[readable.header.sop_instance_uid])
        for readable in batch.readable
        if readable.header.sop_instance_uid in stored
    ]
    tx.uploads.settle([*batch.outcomes, *mismatched, *settled])


def arrange_series(key: SeriesKey, tx: Transaction) -> None:
    """Make the rows of a series show all of its instances: as pictures where our arithmetic refuses their grid.

    Raises:
        PlatformError: If they cannot be shown even so.
    """
    instances = tx.studies.instances_to_arrange(key)
    stored = [StoredInstance(id=row_id, facts=facts) for row_id, facts in instances]
    try:
        layouts = arrange(stored)
    except PlatformError as error:
        log.warning("series_without_grid", study_id=key.study_id, code=error.code)
        layouts = arrange(stored, without_grid=NO_GRID)
    parts = {layout.part: _series(layout, key) for layout in layouts}
    tx.studies.put_series(key, parts, instance_count=len(instances))


# ---- archives


class Unpacking:
    """One archive of an upload on its way into files of the same upload; goes on where an earlier one stopped.

    A member's file has an id made of the archive's and its own place, so what is there already is known by its id.
    """

    def __init__(
        self,
        archive: ReceivedFile,
        *,
        known_ids: set[str],
        bytes_left: int,
        blobs: Blobs,
        settings: Settings,
        keep_lease: Callable[[], None],
    ) -> None:
        self._archive, self._known_ids, self._bytes_left = archive, known_ids, bytes_left
        self._files_left = settings.max_upload_files - len(known_ids)
        self._blobs, self._settings, self._keep_lease = blobs, settings, keep_lease

    def batches(self) -> Iterator[list[NewFile]]:
        """Members as files, some at a time.

        Raises:
            FileRefused: If the archive as a whole cannot be taken in.
        """
        with (
            self._blobs.open(self._archive.sha256) as file,
            open_archive(file, max_members=self._settings.max_upload_files) as opened,
        ):
            batch: list[NewFile] = []
            since = time.monotonic()
            for member in opened.members():
                file_id = self._member_id(member)
                if file_id in self._known_ids:
                    continue
                self._files_left -= 1
                if self._files_left < 0:
                    raise FileTooLarge(f"an upload has at most {self._settings.max_upload_files} files")
                batch.append(self._take(opened, member, file_id))
                if time.monotonic() - since > BATCH_S:
                    yield batch
                    batch, since = [], time.monotonic()
            yield batch

    def _take(self, opened: Archive, member: Member, file_id: str) -> NewFile:
        if is_litter(member.name):
            return NewFile(file_id, member.name, 0, state=FileState.SKIPPED, code=_LITTER_CODE)
        try:
            with self._blobs.writer() as writer:

                def write(chunk: bytes) -> None:
                    writer.write(chunk)
                    self._keep_lease()

                limit = min(self._settings.max_file_bytes, self._bytes_left)
                opened.unpack(member, write, max_bytes=limit)
                sha256, size = writer.commit(), writer.size
        except FileRefused as error:
            return NewFile(file_id, member.name, 0, state=FileState.REFUSED, code=error.code, message=error.message)
        self._bytes_left -= size
        return NewFile(file_id, member.name, size, sha256=sha256)

    def _member_id(self, member: Member) -> str:
        return hashlib.sha256(f"{self._archive.id}/{member.index}".encode()).hexdigest()[:20]


# ---- one file


def refusal(file: ReceivedFile, code: str, message: str) -> Outcome:
    """A file refused for a reason that is not in its bytes."""
    return Outcome(file.id, FileState.REFUSED, code, message)


def _litter(file_id: str) -> Outcome:
    return Outcome(file_id, FileState.SKIPPED, _LITTER_CODE, "a file of the operating system, without an image")


def _refused(file_id: str, error: FileRefused) -> Outcome:
    state = FileState.SKIPPED if isinstance(error, NoPixels) else FileState.REFUSED
    return Outcome(file_id, state, error.code, error.message)


def _outcome(readable: Readable, known: KnownInstance) -> Outcome:
    file = readable.file
    if known.id == readable.instance_id:
        return Outcome(file.id, FileState.STORED, instance_id=known.id)
    if known.sha256 == file.sha256:
        return Outcome(file.id, FileState.DUPLICATE, instance_id=known.id)
    conflict = SopInstanceConflict(
        "another file with this SOP Instance UID and other bytes is stored; this one is kept apart"
    )
    return Outcome(file.id, FileState.QUARANTINED, conflict.code, conflict.message)


def _mismatch(file: ReceivedFile, study_id: str) -> Outcome:
    mismatch = PatientMismatch(
        f"study {study_id} with this file's Study Instance UID is stored under another patient; this file is kept apart"
    )
    return Outcome(file.id, FileState.QUARANTINED, mismatch.code, mismatch.message)


def _with_short_keys(header: InstanceHeader) -> InstanceHeader:
    """UIDs have 64 characters at most (PS3.5 9.1); of a longer one its hash stands for it."""
    return replace(
        header,
        sop_instance_uid=_short(header.sop_instance_uid),
        study_key=_short(header.study_key),
        series_key=_short(header.series_key),
    )


def _short(key: str) -> str:
    return key if len(key) <= _KEY_CHARACTERS else hash_key(hashlib.sha256(key.encode()).hexdigest())


def _study(readable: Readable, upload: UploadRecord) -> NewStudy:
    header = readable.header
    if header.format == "dicom":
        return NewStudy(new_id(), header.study_key, header.study_description, header.identity)
    # A file that says nothing of itself goes by what its sender says of it; its name may name a patient.
    identity = replace(header.identity, source_name=readable.file.name)
    return NewStudy(new_id(), header.study_key, header.study_description or upload.stated_description, identity)


def _instance(readable: Readable, upload: UploadRecord) -> NewInstance:
    header = readable.header
    facts = header.facts
    if header.format != "dicom":
        facts = facts | {"description": header.series_description or upload.stated_description}
    return NewInstance(
        id=readable.instance_id,
        study_key=header.study_key,
        series_key=header.series_key,
        sop_instance_uid=header.sop_instance_uid,
        sha256=readable.file.sha256,
        size=readable.file.size,
        header=facts,
    )


def _series(layout: SeriesLayout, key: SeriesKey) -> Series:
    return Series(
        id=new_id(),
        study_id=key.study_id,
        project_id=key.project_id,
        modality=layout.modality,
        description=layout.description,
        number=layout.number,
        kind=layout.kind,
        kind_reason=layout.kind_reason,
        pixel=layout.pixel,
        unit=layout.unit,
        spacing_source=layout.spacing_source,
        geometry=layout.geometry,
        display=layout.display,
        frames=layout.frames,
    )
