"""The receiving end of an upload: files go to the blobs as they come, and rows say what came.

An upload is opened with the sender's request key, receives files in one request or many, and is finished. Each step
can be sent again after a lost answer: the key finds the upload, the same name with the same bytes is one file, and
finishing what is finished changes nothing (casebook C61).
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType

import structlog

from backend.domain.access import Actor, Permission
from backend.domain.errors import Conflict, FileRefused, FileTooLarge, InvalidRequest, NotFound, UploadTooLarge
from backend.domain.study import FileState, Upload, UploadState
from backend.queue import Queue
from backend.services.context import Clock
from backend.settings import Settings
from backend.store.blobs import Blobs, BlobWriter
from backend.store.repository import Store, Transaction, new_id
from backend.store.uploads import NewFile, UploadRecord

log = structlog.get_logger(__name__)

# The message that wakes a worker is on its way; until then the reaper wakes nobody for the same upload.
QUIET_S = 20.0
_ROWS_AT_ONCE = 500
_MAX_KEY_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class TakenFile:
    """A file that was received: its name as sent, and its bytes counted."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """A file that was refused while it came in."""

    name: str
    code: str
    message: str


def open_upload(
    actor: Actor,
    project_id: str,
    *,
    request_key: str,
    stated_modality: str = "",
    stated_description: str = "",
    store: Store,
    clock: Clock,
) -> Upload:
    """Open an upload, or find the one that this person opened with the same key.

    Raises:
        NotFound: If the person is no member of the project.
        InvalidRequest: If the key is empty or longer than 80 characters.
        Conflict: If the key was used for another project.
    """
    if project_id not in actor.project_ids:
        raise NotFound("no such project")
    if not 0 < len(request_key) <= _MAX_KEY_CHARACTERS:
        raise InvalidRequest(f"a request key has 1 to {_MAX_KEY_CHARACTERS} characters, got {len(request_key)}")
    with store.transaction() as tx:
        opened = tx.uploads.open(
            upload_id=new_id(),
            project_id=project_id,
            user_id=actor.user_id,
            request_key=request_key,
            stated_modality=stated_modality.strip().upper(),
            stated_description=stated_description.strip(),
            now=clock(),
        )
        return tx.uploads.status(opened.id, with_names=True)


def finish_receiving(actor: Actor, upload_id: str, *, store: Store, queue: Queue | None = None, clock: Clock) -> Upload:
    """Close an upload for files and wake a worker for it; what is closed already is told as it is.

    Without a queue nobody is woken: the caller ingests by itself.

    Raises:
        NotFound: If the upload is not this person's.
    """
    with store.transaction() as tx:
        record = _own(tx, actor, upload_id, lock=True)
        if record.state is UploadState.RECEIVING:
            tx.uploads.set_state(upload_id, UploadState.QUEUED, quiet_until=clock() + timedelta(seconds=QUIET_S))
            if queue is not None:
                wake = queue.wake_ingest
                tx.after_commit(lambda: wake(upload_id))
            log.info("upload_queued", upload_id=upload_id, bytes=record.received_bytes)
        return tx.uploads.status(upload_id, with_names=True)


def upload_status(actor: Actor, upload_id: str, *, store: Store) -> Upload:
    """How far an upload is.

    A file's name may name a patient: it is shown to its sender and to who may see identities, others get its place.

    Raises:
        NotFound: If there is none in a project of this person.
    """
    with store.transaction(read_only=True) as tx:
        record = tx.uploads.get(upload_id)
        if record.project_id not in actor.project_ids:
            raise NotFound("no such upload")
        with_names = record.user_id == actor.user_id or actor.may(Permission.SEE_IDENTITY)
        return tx.uploads.status(upload_id, with_names=with_names)


def _own(tx: Transaction, actor: Actor, upload_id: str, *, lock: bool = False) -> UploadRecord:
    record = tx.uploads.get(upload_id, lock=lock)
    if record.user_id != actor.user_id or record.project_id not in actor.project_ids:
        raise NotFound("no such upload")
    return record


def open_receiver(actor: Actor, upload_id: str, *, store: Store, blobs: Blobs, settings: Settings) -> "Receiver":
    """Open an upload for files; to be closed, or used as a context manager.

    Raises:
        NotFound: If the upload is not this person's.
        Conflict: If it is closed for files.
    """
    with store.transaction(read_only=True) as tx:
        record = _own(tx, actor, upload_id)
        file_count = tx.uploads.file_count(upload_id)
    if record.state is not UploadState.RECEIVING:
        raise Conflict(f"upload {upload_id} takes files while it is receiving, it is {record.state.value}")
    return Receiver(record, file_count, store=store, blobs=blobs, settings=settings)


class Receiver:
    """Takes files one after another: `open_file`, `write` as bytes come, `close_file`. Not for two threads at once.

    The complete files stay, however it ends.
    """

    def __init__(
        self, upload: UploadRecord, file_count: int, *, store: Store, blobs: Blobs, settings: Settings
    ) -> None:
        self.received: list[TakenFile] = []
        self.refused: list[TurnedAway] = []
        self._upload_id = upload.id
        self._store, self._blobs, self._settings = store, blobs, settings
        self._bytes, self._files = upload.received_bytes, file_count
        self._current: _Incoming | None = None
        self._waiting: list[NewFile] = []
        self._own_ids: set[str] = set()

    def open_file(self, name: str) -> None:
        """A file begins. Raises `UploadTooLarge` where it is one too many."""
        self._count_file()
        self._current = _Incoming(name, self._blobs, self._settings.max_file_bytes)

    def write(self, data: bytes) -> None:
        """Bytes of the open file.

        Raises:
            UploadTooLarge: If the upload as a whole is over its limit; a file over its own limit is only noted.
        """
        self._bytes += len(data)
        if self._bytes > self._settings.max_upload_bytes:
            raise UploadTooLarge(f"an upload has at most {self._settings.max_upload_bytes} bytes")
        if self._current is None:
            raise InvalidRequest("bytes came and no file was open")
        self._current.write(data)

    def close_file(self) -> None:
        """The open file is complete."""
        incoming, self._current = self._current, None
        if incoming is None:
            raise InvalidRequest("a file ended and none was open")
        with incoming:
            file = incoming.finish()
        if file.state is FileState.RECEIVED:
            self.received.append(TakenFile(file.name, file.size))
        self._note(file)

    def refuse(self, name: str, error: FileRefused) -> None:
        """Note a file that is not even opened."""
        self._count_file()
        self._note(NewFile(new_id(), name, 0, state=FileState.REFUSED, code=error.code, message=error.message))

    def flush(self) -> None:
        """Write the rows of what is complete.

        Raises:
            Conflict: If the upload was closed for files meanwhile.
            UploadTooLarge: If it and what another request brought are over the limit together.
        """
        files, self._waiting = self._waiting, []
        if not files:
            return
        with self._store.transaction() as tx:
            record = tx.uploads.get(self._upload_id, lock=True)
            if record.state is not UploadState.RECEIVING:
                raise Conflict(f"upload {self._upload_id} was closed while files came, it is {record.state.value}")
            hashes = [file.sha256 for file in files if file.sha256 is not None]
            before = tx.uploads.received_before(self._upload_id, hashes)
            new = [file for file in files if before.get((file.name, file.sha256 or ""), "") in ("", *self._own_ids)]
            added = sum(file.size for file in new if file.sha256 is not None)
            if record.received_bytes + added > self._settings.max_upload_bytes:
                raise UploadTooLarge(f"an upload has at most {self._settings.max_upload_bytes} bytes")
            tx.uploads.add_files(self._upload_id, new, received_bytes=added)
        self._own_ids.update(file.id for file in new)

    def __enter__(self) -> "Receiver":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop a file that is not complete and write the rows of those that are."""
        incoming, self._current = self._current, None
        if incoming is not None:
            incoming.discard()
        self.flush()

    def _count_file(self) -> None:
        self._files += 1
        if self._files > self._settings.max_upload_files:
            raise UploadTooLarge(f"an upload has at most {self._settings.max_upload_files} files")

    def _note(self, file: NewFile) -> None:
        if file.state is FileState.REFUSED:
            self.refused.append(TurnedAway(file.name, file.code or "", file.message or ""))
        self._waiting.append(file)
        if len(self._waiting) >= _ROWS_AT_ONCE:
            self.flush()


class _Incoming:
    """One file on its way into a blob. Past its limit its bytes are dropped and only counted."""

    def __init__(self, name: str, blobs: Blobs, max_bytes: int) -> None:
        self._name, self._max_bytes = name or "file", max_bytes
        self._size = 0
        self._opened: AbstractContextManager[BlobWriter] = blobs.writer()
        self._writer: BlobWriter | None = self._opened.__enter__()

    def write(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._max_bytes:
            self.discard()
        if self._writer is not None:
            self._writer.write(data)

    def finish(self) -> NewFile:
        if self._writer is not None:
            return NewFile(new_id(), self._name, self._size, sha256=self._writer.commit())
        error = FileTooLarge(f"a file has at most {self._max_bytes} bytes, this one has {self._size}")
        return NewFile(
            new_id(), self._name, self._size, state=FileState.REFUSED, code=error.code, message=error.message
        )

    def discard(self) -> None:
        """Leave the writer; what was not committed is removed."""
        if self._writer is not None:
            self._writer = None
            self._opened.__exit__(None, None, None)

    def __enter__(self) -> "_Incoming":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()
