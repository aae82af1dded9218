"""Files of this machine: the command line's way in, the samples, and a worker that is killed for real."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from backend.domain.access import Actor
from backend.domain.errors import NotFound
from backend.domain.study import FileState, Upload, UploadState
from backend.samples import Sample
from backend.services.ingest import ingest, ingest_paths, upload_status
from backend.services.samples import load_samples
from backend.settings import Settings
from backend.store.blobs import DirectoryBlobs
from backend.store.repository import Store
from backend.store.tables import InstanceRow, SeriesRow, UploadRow
from tests.ingest_files import ct_series, dicom, png, zipped

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def take_in(store: Store, blobs: DirectoryBlobs, settings: Settings, clock: Any, actor: Actor, project: str) -> Any:
    def take_in(*paths: Path, **options: Any) -> Upload:
        return ingest_paths(actor, project, paths, store=store, blobs=blobs, settings=settings, clock=clock, **options)

    return take_in


def written(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@on_sqlite
def test_files_folders_and_zips_go_in_together(take_in: Any, tmp_path: Path) -> None:
    folder = written(tmp_path / "study", {"a/1.dcm": dicom("1.2.3.1"), "b/c/2.dcm": dicom("1.2.3.2", z=3)})
    written(tmp_path, {"more.zip": zipped({"3.dcm": dicom("1.2.3.3", z=6)}), "x.png": png()})
    upload = take_in(folder, tmp_path / "more.zip", tmp_path / "x.png")
    assert upload.state is UploadState.DONE
    assert upload.counts == {FileState.STORED: 4, FileState.UNPACKED: 1}
    assert len(upload.study_ids) == 2


@on_sqlite
def test_c62_links_and_pipes_in_a_folder_are_refused_and_not_followed(take_in: Any, tmp_path: Path) -> None:
    secret = written(tmp_path / "elsewhere", {"secret.dcm": dicom("1.2.3.99")})
    folder = written(tmp_path / "study", {"good.dcm": dicom("1.2.3.1")})
    (folder / "link.dcm").symlink_to(secret / "secret.dcm")
    (folder / "folder").symlink_to(secret)
    os.mkfifo(folder / "pipe")
    upload = take_in(folder)
    assert upload.counts == {FileState.STORED: 1, FileState.REFUSED: 3}
    assert {(file.name, file.code) for file in upload.problems} == {
        ("study/link.dcm", "unsafe_member"),
        ("study/folder", "unsafe_member"),
        ("study/pipe", "unsafe_member"),
    }


@on_sqlite
def test_a_path_that_is_not_there_is_reported(take_in: Any, tmp_path: Path) -> None:
    upload = take_in(tmp_path / "nothing.dcm")
    (problem,) = upload.problems
    assert (problem.name, problem.code) == ("nothing.dcm", "unreadable_file")
    assert str(tmp_path) not in (problem.message or "")


@on_sqlite
def test_a_stranger_cannot_take_files_in(take_in: Any, tmp_path: Path, make_project: Any, actor: Actor) -> None:
    with pytest.raises(NotFound):
        ingest_paths(
            actor,
            make_project("Theirs"),
            [tmp_path],
            store=None,  # type: ignore[arg-type]
            blobs=None,  # type: ignore[arg-type]
            settings=None,  # type: ignore[arg-type]
            clock=None,  # type: ignore[arg-type]
        )


@on_sqlite
def test_samples_are_loaded_once(
    store: Store, blobs: DirectoryBlobs, settings: Settings, clock: Any, actor: Actor, project: str, tmp_path: Path
) -> None:
    written(tmp_path, {"eye.png": png(), "ct.dcm": dicom()})

    def found() -> tuple[Sample, ...]:
        told = {"description": "", "licence": "CC0-1.0", "licence_path": tmp_path, "source": ""}
        return (
            Sample(id="eye", title="Fundus", paths=(tmp_path / "eye.png",), stated_modality="OP", **told),
            Sample(id="ct", title="CT", paths=(tmp_path / "ct.dcm",), stated_modality="", **told),
        )

    def load() -> list[Upload]:
        return load_samples(project, store=store, blobs=blobs, settings=settings, clock=clock, actor=actor, find=found)

    assert [upload.state for upload in load()] == [UploadState.DONE, UploadState.DONE]
    began = time.perf_counter()
    assert load() == []
    assert time.perf_counter() - began < 0.5
    with Session(store.engine) as session:
        assert session.scalar(select(func.count()).select_from(InstanceRow)) == 2


_SLOW_WORKER = """
import sys, time
from datetime import UTC, datetime
from pathlib import Path
from backend.services import ingest as ingesting
from backend.settings import Settings
from backend.store.blobs import DirectoryBlobs
from backend.store.repository import Store

ingesting.FILES_AT_ONCE = 5
settle = ingesting.store_batch
def slowly(*args, **kwargs):
    settle(*args, **kwargs)
    print("batch", flush=True)
    time.sleep(0.2)
ingesting.store_batch = slowly
upload_id, home, database_url = sys.argv[1:]
settings = Settings(_env_file=None, home=Path(home), database_url=database_url)
ingesting.ingest(
    upload_id, store=Store(database_url), blobs=DirectoryBlobs(settings.blobs), settings=settings,
    clock=lambda: datetime.now(UTC), owner="killed", until_s=60,
)
"""


def test_an_upload_whose_worker_is_killed_is_finished_by_the_next(
    store: Store,
    blobs: DirectoryBlobs,
    settings: Settings,
    clock: Any,
    actor: Actor,
    project: str,
    database_url: str,
    tmp_path: Path,
) -> None:
    from backend.services.ingest import finish_receiving, open_receiver, open_upload

    upload = open_upload(actor, project, request_key="k", store=store, clock=clock)
    with open_receiver(actor, upload.id, store=store, blobs=blobs, settings=settings) as receiver:
        for name, data in ct_series(30).items():
            receiver.open_file(name)
            receiver.write(data)
            receiver.close_file()
    finish_receiving(actor, upload.id, store=store, clock=clock)

    worker = subprocess.Popen(
        [sys.executable, "-c", _SLOW_WORKER, upload.id, str(settings.home), database_url], stdout=subprocess.PIPE
    )
    assert worker.stdout is not None
    seen = [worker.stdout.readline() for _ in range(2)]
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    worker.stdout.close()
    assert seen == [b"batch\n"] * 2
    lost = upload_status(actor, upload.id, store=store)
    assert lost.state is UploadState.INGESTING
    assert lost.counts[FileState.RECEIVED] >= 15

    with Session(store.engine) as session, session.begin():  # as if its minute was over
        session.execute(update(UploadRow).values(lease_until=clock()))
    clock.advance(1)
    assert ingest(upload.id, store=store, blobs=blobs, settings=settings, clock=clock, owner="next", until_s=60)
    assert upload_status(actor, upload.id, store=store).counts == {FileState.STORED: 30}
    with Session(store.engine) as session:
        assert session.scalars(select(SeriesRow.frame_count)).all() == [30]
