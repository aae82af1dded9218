"""Uploads become studies. The rows are the truth: a process that is lost is replaced by one that reads them.

The work on an upload is leased. It goes in batches that each commit what they did and extend the lease, so a kill at
any point costs one batch, and doing a batch twice stores nothing twice. When a holder was lost, the next one takes the
files one by one: so the file that kills its reader is the first in line, and after `MAX_ATTEMPTS` it is refused.
"""

import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import structlog

from backend.domain.access import Actor
from backend.domain.errors import FileRefused, PlatformError
from backend.domain.study import FileState, Upload, UploadState
from backend.services.context import Clock
from backend.services.intake import Unpacking, arrange_series, look_at, refusal, store_batch
from backend.services.paths import send_paths
from backend.services.uploads import (
    QUIET_S,
    Receiver,
    finish_receiving,
    open_receiver,
    open_upload,
    upload_status,
)
from backend.settings import Settings
from backend.store.blobs import Blobs
from backend.store.repository import Store, Transaction, new_id
from backend.store.sql import is_transient
from backend.store.studies import SeriesKey
from backend.store.uploads import Claim, Outcome, ReceivedFile

__all__ = [
    "Receiver",
    "finish_receiving",
    "ingest",
    "ingest_paths",
    "open_receiver",
    "open_upload",
    "stalled_uploads",
    "upload_status",
]

log = structlog.get_logger(__name__)

FILES_AT_ONCE = 200
MAX_ATTEMPTS = 5
_POLL_S = 0.2


class LeaseLost(Exception):
    """Another process has taken the work over; what this one did since its last commit counts for nothing."""


def ingest(
    upload_id: str, *, store: Store, blobs: Blobs, settings: Settings, clock: Clock, owner: str, until_s: float
) -> bool:
    """Work on an upload for about `until_s` seconds.

    Safe to call at any time, twice and at once: whoever holds the lease works, and others find nothing to do.

    Args:
        owner: Names the process in the lease.

    Returns:
        False if there is more to do and nobody holds the upload; True if it is finished or somebody else's.
    """
    deadline = time.monotonic() + until_s
    now = clock()
    with store.transaction() as tx:
        claim = tx.uploads.claim(
            upload_id, owner=f"{owner}:{new_id()}"[:80], now=now, until=now + timedelta(seconds=settings.lease_s)
        )
    if claim is None:
        return True
    work = _Work(claim, store=store, blobs=blobs, settings=settings, clock=clock)
    try:
        return work.run(deadline)
    except LeaseLost:
        log.warning("upload_lease_lost", upload_id=upload_id)
        return True
    except Exception as error:  # the last line of defence: the upload says that it failed
        if is_transient(error):
            raise
        work.fail(error)
        return True


def stalled_uploads(store: Store, clock: Clock) -> list[str]:
    """Uploads that wait and that nobody holds, each named once in 20 s; for the reaper to wake workers for."""
    now = clock()
    with store.transaction() as tx:
        return tx.uploads.take_stalled(now=now, quiet_until=now + timedelta(seconds=QUIET_S))


def ingest_paths(
    actor: Actor,
    project_id: str,
    paths: Sequence[Path],
    *,
    store: Store,
    blobs: Blobs,
    settings: Settings,
    clock: Clock,
    request_key: str | None = None,
    stated_modality: str = "",
    stated_description: str = "",
) -> Upload:
    """Take in files, folders and archives from this machine's disk, and return when they are studies.

    Links inside folders are not followed; links, devices and pipes are refused and the rest goes in.

    Args:
        request_key: Names this request, so that it can be made again; a new one if None.

    Raises:
        NotFound: If the person is no member of the project.
        UploadTooLarge: If the files are over the limits of an upload.
    """
    upload = open_upload(
        actor,
        project_id,
        request_key=request_key or new_id(),
        stated_modality=stated_modality,
        stated_description=stated_description,
        store=store,
        clock=clock,
    )
    if upload.state is UploadState.RECEIVING:
        with open_receiver(actor, upload.id, store=store, blobs=blobs, settings=settings) as receiver:
            send_paths(paths, receiver)
        upload = finish_receiving(actor, upload.id, store=store, clock=clock)
    while upload.state in (UploadState.QUEUED, UploadState.INGESTING):
        finished = ingest(
            upload.id,
            store=store,
            blobs=blobs,
            settings=settings,
            clock=clock,
            owner="ingest-paths",
            until_s=settings.ingest_batch_s,
        )
        upload = upload_status(actor, upload.id, store=store)
        if finished and upload.state is UploadState.INGESTING:
            time.sleep(_POLL_S)  # a worker has it
    return upload


class _Work:
    """One holder's work on one upload."""

    def __init__(self, claim: Claim, *, store: Store, blobs: Blobs, settings: Settings, clock: Clock) -> None:
        self._upload, self._owner, self._attempts = claim.upload, claim.owner, claim.attempts
        self._store, self._blobs, self._settings, self._clock = store, blobs, settings, clock
        self._began = self._extended = time.monotonic()

    def run(self, deadline: float) -> bool:
        """Batches, one at least, until all is done (True) or the time is over (False)."""
        if self._attempts >= MAX_ATTEMPTS and not self._refuse_first():
            self._fail_with("ingest was lost again and again while it arranged the series")
            return True
        while True:
            with self._store.transaction(read_only=True) as tx:
                files = tx.uploads.next_received(self._upload.id, 1 if self._attempts else FILES_AT_ONCE)
            if not files:
                return self._arrange(deadline)
            archive = self._take_in(files)
            if archive is not None:
                self._unpack(archive, deadline)
            if time.monotonic() > deadline:
                self._release()
                return False

    def fail(self, error: Exception) -> None:
        """End the upload with the kind of an error that nobody expected, and nothing of what it says."""
        where = _raised_at(error)
        log.error("upload_failed", upload_id=self._upload.id, error=type(error).__name__, at=where)
        self._fail_with(f"ingest stopped on an error of ours: {type(error).__name__}")

    def _fail_with(self, message: str) -> None:
        with self._store.transaction() as tx:
            self._extend(tx)
            tx.uploads.set_state(self._upload.id, UploadState.FAILED, message=message)

    def _refuse_first(self) -> bool:
        with self._store.transaction() as tx:
            files = tx.uploads.next_received(self._upload.id, 1)
            if files:
                message = f"reading this file stopped the reader {MAX_ATTEMPTS} times"
                tx.uploads.settle([refusal(files[0], "ingest_crashed", message)])
                self._extend(tx, progress=True)
        if files:
            log.error("upload_file_gave_up", upload_id=self._upload.id, file_id=files[0].id)
        return bool(files)

    def _take_in(self, files: Sequence[ReceivedFile]) -> ReceivedFile | None:
        """Look at files and settle them; returns the archive that stands behind them, if one does."""
        batch = look_at(files, self._upload, blobs=self._blobs, settings=self._settings)
        if batch.outcomes or batch.readable:
            with self._store.transaction() as tx:
                self._extend(tx, progress=True)
                store_batch(batch, self._upload, tx, now=self._clock())
        return batch.archive

    def _unpack(self, archive: ReceivedFile, deadline: float) -> None:
        """Make an archive's members files of the upload; if the time is over before, the next holder goes on."""
        with self._store.transaction(read_only=True) as tx:
            known_ids = tx.uploads.file_ids(self._upload.id)
            bytes_left = self._settings.max_upload_bytes - tx.uploads.content_bytes(self._upload.id, without=archive.id)
        unpacking = Unpacking(
            archive,
            known_ids=known_ids,
            bytes_left=bytes_left,
            blobs=self._blobs,
            settings=self._settings,
            keep_lease=self._keep_lease,
        )
        outcome = Outcome(archive.id, FileState.UNPACKED)
        try:
            for members in unpacking.batches():
                with self._store.transaction() as tx:
                    self._extend(tx, progress=bool(members))
                    tx.uploads.add_files(self._upload.id, members)
                if time.monotonic() > deadline:
                    return
        except FileRefused as error:
            outcome = refusal(archive, error.code, error.message)
        with self._store.transaction() as tx:
            self._extend(tx, progress=True)
            tx.uploads.settle([outcome])

    def _arrange(self, deadline: float) -> bool:
        """Bring the series up to date one by one; the last one ends the upload."""
        with self._store.transaction(read_only=True) as tx:
            keys = tx.studies.series_to_arrange(self._upload.id)
        for place, key in enumerate(keys):
            if place and time.monotonic() > deadline:
                self._release()
                return False
            self._arrange_one(key)
        with self._store.transaction() as tx:
            self._extend(tx)
            tx.uploads.set_state(self._upload.id, UploadState.DONE)
        duration_s = round(time.monotonic() - self._began, 3)
        log.info("upload_done", upload_id=self._upload.id, series=len(keys), duration_s=duration_s)
        return True

    def _arrange_one(self, key: SeriesKey) -> None:
        """One series, or what is wrong with it told of its files: the others of the upload go in."""
        try:
            with self._store.transaction() as tx:
                self._extend(tx, progress=True)
                arrange_series(key, tx)
        except PlatformError as error:
            log.warning("series_refused", upload_id=self._upload.id, study_id=key.study_id, code=error.code)
            with self._store.transaction() as tx:
                self._extend(tx, progress=True)
                tx.uploads.refuse_series(
                    self._upload.id, key.study_id, key.series_key, code=error.code, message=error.message
                )

    # ---- the lease

    def _extend(self, tx: Transaction, *, progress: bool = False) -> None:
        """Hold on, within a transaction that changes something. Raises `LeaseLost`, and the change does not happen."""
        if progress:
            self._attempts = min(self._attempts, 1)
        until = self._clock() + timedelta(seconds=self._settings.lease_s)
        if not tx.uploads.keep_lease(self._upload.id, owner=self._owner, until=until, attempts=self._attempts):
            raise LeaseLost
        self._extended = time.monotonic()

    def _keep_lease(self) -> None:
        """Hold on in the middle of something long."""
        if time.monotonic() - self._extended > self._settings.lease_s / 4:
            with self._store.transaction() as tx:
                self._extend(tx)

    def _release(self) -> None:
        quiet_until = self._clock() + timedelta(seconds=QUIET_S)
        with self._store.transaction() as tx:
            tx.uploads.release(self._upload.id, owner=self._owner, quiet_until=quiet_until)


def _raised_at(error: Exception) -> str:
    """Module and line of the innermost frame: what can be told of an error without telling what it says."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
