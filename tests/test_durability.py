"""What lasts: blobs through a power cut, a heartbeat through any error, a home that stays closed to others."""

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import exc

from backend import worker
from backend.domain.errors import Misconfigured
from backend.services import runs
from backend.services.context import open_services
from backend.settings import Settings
from backend.store import blobs as storing
from backend.store.blobs import DirectoryBlobs
from backend.store.sql import is_transient
from tests.clinic import Clinic
from tests.fakes import BoxSegmenter
from tests.people import RecordingQueue

# ---- blobs


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was brought to the disk and moved into place, in order, by the last two parts of its path."""
    done: list[str] = []
    fsync, replace, mkdir = os.fsync, Path.replace, Path.mkdir

    def told(path: Path) -> str:
        return "incoming/*" if path.parent.name == "incoming" else f"{path.parent.name[:5]}/{path.name[:4]}"

    def noted_fsync(descriptor: int) -> None:
        done.append(f"sync {told(Path(f'/proc/self/fd/{descriptor}').readlink())}")
        fsync(descriptor)

    def noted_replace(self: Path, target: Path) -> Path:
        done.append(f"move {told(target)}")
        return replace(self, target)

    def noted_mkdir(self: Path, *args: Any, **kwargs: Any) -> None:
        done.append(f"make {told(self)}")
        mkdir(self, *args, **kwargs)

    monkeypatch.setattr(storing.os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    monkeypatch.setattr(Path, "mkdir", noted_mkdir)
    return done


def test_a_blob_and_the_entries_that_lead_to_it_are_on_the_disk_before_it_has_a_name(
    tmp_path: Path, synced: list[str]
) -> None:
    # SHA-256 of "abc": ba7816bf...
    place = DirectoryBlobs(tmp_path / "home" / "blobs")
    synced.clear()
    place.put(b"abc")
    assert synced == ["sync incoming/*", "make blobs/ba", "sync home/blob", "move ba/ba78", "sync blobs/ba"]
    synced.clear()
    place.put(b"abc")
    assert synced == ["sync incoming/*", "sync blobs/ba"]


# ---- errors of the database


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (exc.OperationalError("select 1", None, Exception("gone")), True),
        (exc.InterfaceError("select 1", None, Exception("closed")), True),
        (exc.TimeoutError("no connection within 30 s"), True),
        (exc.DataError("insert", None, Exception("out of range")), False),
        (exc.ProgrammingError("select", None, Exception("no such column")), False),
        (exc.IntegrityError("insert", None, Exception("taken")), False),
        (TimeoutError("of something else"), False),
        (ValueError("of ours"), False),
    ],
)
def test_only_a_database_that_is_not_there_is_worth_another_try(error: Exception, expected: bool) -> None:
    assert is_transient(error) is expected


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_heartbeat_goes_on_after_any_error(
    store: Any, blobs: DirectoryBlobs, settings: Settings, clock: Any, actor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clinic = Clinic(store, blobs, settings.model_copy(update={"lease_s": 0.04}), clock, actor)
    runner, has_gone_on = clinic.runner(), threading.Event()
    beats = iter([ValueError("a"), exc.DataError("x", None, Exception())])

    def hold(*_: object, **__: object) -> None:
        for error in beats:
            raise error
        has_gone_on.set()

    monkeypatch.setattr(runs, "hold_runs", hold)
    beating = threading.Thread(target=runner._heartbeat, daemon=True)
    beating.start()
    assert has_gone_on.wait(5)
    runner._stopped.set()
    beating.join(5)
    assert not beating.is_alive()


# ---- home


@pytest.fixture
def open_mask() -> Iterator[None]:
    """A umask that hides nothing."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(home: Path) -> int:
    return stat.S_IMODE(home.stat().st_mode)


def by_web_and_runner(settings: Settings) -> None:
    open_services(settings, queue=RecordingQueue(), segmenter=BoxSegmenter()).store.close()


def by_worker(settings: Settings) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "serve", lambda _: None)
        worker.run_worker(settings)


def by_segmenter(settings: Settings) -> None:
    settings.segmenter_secret()


@pytest.mark.usefixtures("open_mask")
@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("start", [by_web_and_runner, by_worker, by_segmenter])
def test_home_is_closed_to_others_whichever_process_is_first(tmp_path: Path, start: Any, is_there: bool) -> None:
    home = tmp_path / "deep" / "home"
    if is_there:
        home.mkdir(parents=True)
        home.chmod(0o755)
    start(Settings(_env_file=None, home=home))
    assert mode_of(home) == 0o700


def test_a_home_that_is_not_ours_to_close_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(Misconfigured, match="mode 0755"):
        Settings(_env_file=None, home=tmp_path).make_home()


def test_a_folder_that_all_users_share_is_no_home(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(Misconfigured, match="all users share"):
        Settings(_env_file=None, home=tmp_path).make_home()
    assert mode_of(tmp_path) == 0o1777
