"""Uploads and their files as rows: what came, how far the work is, and who holds it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, case, func, or_, select, update
from sqlalchemy.orm import Session

from backend.domain.errors import Conflict, NotFound
from backend.domain.study import FileState, Upload, UploadFile, UploadState
from backend.store.sql import in_pieces, insert, insert_new, storable
from backend.store.tables import InstanceRow, UploadFileRow, UploadRow

PROBLEMS_SHOWN = 500
_WORST_FIRST = (FileState.REFUSED, FileState.QUARANTINED, FileState.SKIPPED)
_TO_DO = (UploadState.QUEUED, UploadState.INGESTING)


@dataclass(frozen=True, slots=True)
class UploadRecord:
    """An upload's own row. `attempts` counts the holders that were lost since the last progress."""

    id: str
    project_id: str
    user_id: str
    state: UploadState
    stated_modality: str
    stated_description: str
    received_bytes: int
    attempts: int


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to note: received (with its blob), or already skipped or refused (without one)."""

    id: str
    name: str
    size: int
    sha256: str | None = None
    state: FileState = FileState.RECEIVED
    code: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A file that waits to be looked at."""

    id: str
    name: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one file."""

    file_id: str
    state: FileState
    code: str | None = None
    message: str | None = None
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A lease taken on an upload; `attempts` holders before this one were lost without progress."""

    upload: UploadRecord
    owner: str
    attempts: int


class Uploads:
    """Rows of `uploads` and `upload_files` within one transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def open(
        self,
        *,
        upload_id: str,
        project_id: str,
        user_id: str,
        request_key: str,
        stated_modality: str,
        stated_description: str,
        now: datetime,
    ) -> UploadRecord:
        """The upload of this person's request key, made now if there is none.

        Raises:
            Conflict: If the key was used for another project.
        """
        key = storable(request_key, 80)
        insert_new(
            self._session,
            UploadRow,
            [
                {
                    "id": upload_id,
                    "project_id": project_id,
                    "user_id": user_id,
                    "request_key": key,
                    "stated_modality": storable(stated_modality, 16),
                    "stated_description": storable(stated_description, 200),
                    "state": UploadState.RECEIVING,
                    "message": None,
                    "created_at": now,
                    "received_bytes": 0,
                    "lease_owner": None,
                    "lease_until": None,
                    "attempts": 0,
                }
            ],
        )
        row = self._session.scalars(
            select(UploadRow).where(UploadRow.user_id == user_id, UploadRow.request_key == key)
        ).one()
        if row.project_id != project_id:
            raise Conflict(f"the request key belongs to upload {row.id} of another project")
        return _record(row)

    def get(self, upload_id: str, *, lock: bool = False) -> UploadRecord:
        """An upload's own row; `lock` keeps others from changing it until the commit. Raises `NotFound`."""
        query = select(UploadRow).where(UploadRow.id == upload_id).execution_options(populate_existing=True)
        row = self._session.scalars(query.with_for_update() if lock else query).one_or_none()
        if row is None:
            raise NotFound(f"no upload {storable(upload_id, 24)}")
        return _record(row)

    def finished_keys(self, user_id: str, request_keys: Sequence[str]) -> set[str]:
        """Those of the keys whose upload is done."""
        query = select(UploadRow.request_key).where(
            UploadRow.user_id == user_id, UploadRow.request_key.in_(request_keys), UploadRow.state == UploadState.DONE
        )
        return set(self._session.scalars(query))

    def set_state(
        self, upload_id: str, state: UploadState, *, message: str | None = None, quiet_until: datetime | None = None
    ) -> None:
        """Move an upload on and let go of its lease; until `quiet_until` nobody is woken for it again."""
        self._session.execute(
            update(UploadRow)
            .where(UploadRow.id == upload_id)
            .values(
                state=state,
                message=None if message is None else storable(message, 500),
                lease_owner=None,
                lease_until=quiet_until,
                attempts=0,
            )
        )

    # ---- files

    def received_before(self, upload_id: str, hashes: Sequence[str]) -> dict[tuple[str, str], str]:
        """`(name, sha256)` to file id, of the upload's files with these hashes."""
        found: dict[tuple[str, str], str] = {}
        for piece in in_pieces(hashes):
            query = select(UploadFileRow.name, UploadFileRow.sha256, UploadFileRow.id).where(
                UploadFileRow.upload_id == upload_id, UploadFileRow.sha256.in_(piece)
            )
            found |= {(name, sha256 or ""): file_id for name, sha256, file_id in self._session.execute(query)}
        return found

    def add_files(self, upload_id: str, files: Sequence[NewFile], *, received_bytes: int = 0) -> None:
        """Note files behind those that the upload has, and add to what was received. The caller has its row locked."""
        last = self._session.scalar(
            select(func.max(UploadFileRow.position)).where(UploadFileRow.upload_id == upload_id)
        )
        first = 0 if last is None else last + 1
        insert(self._session, UploadFileRow, [_file_values(upload_id, first + n, file) for n, file in enumerate(files)])
        if received_bytes:
            self._session.execute(
                update(UploadRow)
                .where(UploadRow.id == upload_id)
                .values(received_bytes=UploadRow.received_bytes + received_bytes)
            )

    def file_ids(self, upload_id: str) -> set[str]:
        """The ids of all files of an upload."""
        return set(self._session.scalars(select(UploadFileRow.id).where(UploadFileRow.upload_id == upload_id)))

    def file_count(self, upload_id: str) -> int:
        """How many files an upload has, archives and their members both counted."""
        return self._session.scalar(select(func.count()).where(UploadFileRow.upload_id == upload_id)) or 0

    def content_bytes(self, upload_id: str, *, without: str) -> int:
        """Bytes of the upload's files as unpacked: archives do not count, nor does the file `without`."""
        query = select(func.coalesce(func.sum(UploadFileRow.size), 0)).where(
            UploadFileRow.upload_id == upload_id,
            UploadFileRow.state != FileState.UNPACKED,
            UploadFileRow.id != without,
        )
        return int(self._session.scalar(query) or 0)

    def next_received(self, upload_id: str, limit: int) -> list[ReceivedFile]:
        """The first files that wait, in the order they came."""
        query = (
            select(UploadFileRow.id, UploadFileRow.name, UploadFileRow.sha256, UploadFileRow.size)
            .where(UploadFileRow.upload_id == upload_id, UploadFileRow.state == FileState.RECEIVED)
            .order_by(UploadFileRow.position)
            .limit(limit)
        )
        return [
            ReceivedFile(id=file_id, name=name, sha256=sha256 or "", size=size)
            for file_id, name, sha256, size in self._session.execute(query)
        ]

    def settle(self, outcomes: Sequence[Outcome]) -> None:
        """Write what became of files."""
        if not outcomes:
            return
        self._session.execute(
            update(UploadFileRow),
            [
                {
                    "id": outcome.file_id,
                    "state": outcome.state,
                    "code": outcome.code,
                    "message": None if outcome.message is None else storable(outcome.message, 500),
                    "instance_id": outcome.instance_id,
                }
                for outcome in outcomes
            ],
        )

    def refuse_series(self, upload_id: str, study_id: str, series_key: str, *, code: str, message: str) -> None:
        """Refuse the upload's files of one series that cannot be shown; their originals stay."""
        instances = select(InstanceRow.id).where(InstanceRow.study_id == study_id, InstanceRow.series_key == series_key)
        self._session.execute(
            update(UploadFileRow)
            .where(
                UploadFileRow.upload_id == upload_id,
                UploadFileRow.instance_id.in_(instances),
                UploadFileRow.state.in_((FileState.STORED, FileState.DUPLICATE)),
            )
            .values(state=FileState.REFUSED, code=code, message=storable(message, 500))
            .execution_options(synchronize_session=False)
        )

    # ---- leases

    def claim(self, upload_id: str, *, owner: str, now: datetime, until: datetime) -> Claim | None:
        """Take the upload's work, or None where there is none or somebody has it.

        A lease that ran out with its owner still in it belonged to a process that was lost: that counts as an attempt.
        """
        row = self._session.scalars(
            select(UploadRow)
            .where(UploadRow.id == upload_id)
            .with_for_update()
            .execution_options(populate_existing=True)
        ).one_or_none()
        if row is None or row.state not in _TO_DO:
            return None
        if row.lease_owner is not None:
            if row.lease_until is not None and row.lease_until > now:
                return None
            row.attempts += 1
        row.lease_owner, row.lease_until, row.state = owner, until, UploadState.INGESTING
        self._session.flush()
        return Claim(_record(row), owner, row.attempts)

    def keep_lease(self, upload_id: str, *, owner: str, until: datetime, attempts: int) -> bool:
        """Hold on to the work; False where it has been taken over."""
        kept = self._session.execute(
            update(UploadRow)
            .where(UploadRow.id == upload_id, UploadRow.lease_owner == owner)
            .values(lease_until=until, attempts=attempts)
            .returning(UploadRow.id)
        )
        return kept.first() is not None

    def release(self, upload_id: str, *, owner: str, quiet_until: datetime) -> None:
        """Give the work back unfinished; its giver goes on soon, so nobody else is woken before `quiet_until`."""
        self._session.execute(
            update(UploadRow)
            .where(UploadRow.id == upload_id, UploadRow.lease_owner == owner)
            .values(lease_owner=None, lease_until=quiet_until)
        )

    def take_stalled(self, *, now: datetime, quiet_until: datetime) -> list[str]:
        """Uploads with work that nobody holds, each given out once until `quiet_until`; lost holders are counted."""
        rows = self._session.scalars(
            select(UploadRow)
            .where(UploadRow.state.in_(_TO_DO), or_(UploadRow.lease_until.is_(None), UploadRow.lease_until <= now))
            .order_by(UploadRow.created_at)
            .limit(200)
            .with_for_update(skip_locked=True)
        ).all()
        for row in rows:
            if row.lease_owner is not None:
                row.attempts += 1
            row.lease_owner, row.lease_until = None, quiet_until
        self._session.flush()
        return [row.id for row in rows]

    # ---- what a person sees

    def status(self, upload_id: str, *, with_names: bool) -> Upload:
        """An upload as a person sees it; without `with_names` its files are named by their place. Raises `NotFound`."""
        row = self._session.get(UploadRow, upload_id)
        if row is None:
            raise NotFound(f"no upload {storable(upload_id, 24)}")
        return Upload(
            id=row.id,
            project_id=row.project_id,
            user_id=row.user_id,
            state=UploadState(row.state),
            created_at=row.created_at,
            received_bytes=row.received_bytes,
            counts=self._counts(upload_id),
            study_ids=self._study_ids(upload_id),
            problems=self._problems(upload_id, with_names=with_names),
            message=row.message,
        )

    def _counts(self, upload_id: str) -> dict[FileState, int]:
        query = (
            select(UploadFileRow.state, func.count())
            .where(UploadFileRow.upload_id == upload_id)
            .group_by(UploadFileRow.state)
        )
        return {FileState(state): count for state, count in self._session.execute(query)}

    def _study_ids(self, upload_id: str) -> tuple[str, ...]:
        query = (
            select(InstanceRow.study_id)
            .join(UploadFileRow, UploadFileRow.instance_id == InstanceRow.id)
            .where(
                UploadFileRow.upload_id == upload_id, UploadFileRow.state.in_((FileState.STORED, FileState.DUPLICATE))
            )
            .group_by(InstanceRow.study_id)
            .order_by(func.min(UploadFileRow.position))
        )
        return tuple(self._session.scalars(query))

    def _problems(self, upload_id: str, *, with_names: bool) -> tuple[UploadFile, ...]:
        severity: ColumnElement[int] = case(
            {state: n for n, state in enumerate(_WORST_FIRST)}, value=UploadFileRow.state
        )
        query = (
            select(UploadFileRow)
            .where(UploadFileRow.upload_id == upload_id, UploadFileRow.state.in_(_WORST_FIRST))
            .order_by(severity, UploadFileRow.position)
            .limit(PROBLEMS_SHOWN)
        )
        return tuple(
            UploadFile(
                id=row.id,
                name=row.name if with_names else f"file {row.position + 1}",
                size=row.size,
                state=FileState(row.state),
                code=row.code,
                message=row.message,
            )
            for row in self._session.scalars(query)
        )


def _record(row: UploadRow) -> UploadRecord:
    return UploadRecord(
        id=row.id,
        project_id=row.project_id,
        user_id=row.user_id,
        state=UploadState(row.state),
        stated_modality=row.stated_modality,
        stated_description=row.stated_description,
        received_bytes=row.received_bytes,
        attempts=row.attempts,
    )


def _file_values(upload_id: str, position: int, file: NewFile) -> Mapping[str, Any]:
    return {
        "id": file.id,
        "upload_id": upload_id,
        "position": position,
        "name": storable(file.name, 1000),
        "sha256": file.sha256,
        "size": file.size,
        "state": file.state,
        "code": file.code,
        "message": None if file.message is None else storable(file.message, 500),
        "instance_id": None,
    }
