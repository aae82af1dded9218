"""From received bytes to rows: what goes in once, what is kept apart, and what a lost process costs."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from backend.domain.access import Actor, Role
from backend.domain.errors import Conflict, InvalidRequest, InvalidWindow, NotFound, ShapeError, UploadTooLarge
from backend.domain.study import FileState, Identity, SeriesKind, Upload, UploadState
from backend.services import ingest as ingesting
from backend.services import intake
from backend.services.studies import list_studies, open_series, study_details
from backend.settings import Settings
from backend.store.blobs import DirectoryBlobs
from backend.store.repository import Store
from backend.store.tables import Base, IdentityRow, InstanceRow, SeriesRow, StudyRow, UploadFileRow, UploadRow
from tests.ingest_files import CANARY, ct_series, dicom, dicomdir, png, structured_report, zipped
from tests.people import RecordingQueue, with_settings


class Desk:
    """The services of ingest with one set of collaborators."""

    def __init__(self, store: Store, blobs: DirectoryBlobs, settings: Settings, clock: Any, actor: Actor) -> None:
        self.store, self.blobs, self.settings, self.clock, self.actor = store, blobs, settings, clock, actor
        self.project_id = next(iter(actor.project_ids))
        self.queue = RecordingQueue()

    def open(self, request_key: str = "key", **stated: str) -> Upload:
        return ingesting.open_upload(
            self.actor, self.project_id, request_key=request_key, store=self.store, clock=self.clock, **stated
        )

    def send(self, upload_id: str, files: Mapping[str, bytes]) -> ingesting.Receiver:
        with ingesting.open_receiver(
            self.actor, upload_id, store=self.store, blobs=self.blobs, settings=self.settings
        ) as receiver:
            for name, data in files.items():
                receiver.open_file(name)
                receiver.write(data)
                receiver.close_file()
        return receiver

    def finish(self, upload_id: str) -> Upload:
        return ingesting.finish_receiving(self.actor, upload_id, store=self.store, queue=self.queue, clock=self.clock)

    def received(self, files: Mapping[str, bytes], request_key: str = "key", **stated: str) -> str:
        upload = self.open(request_key, **stated)
        self.send(upload.id, files)
        return self.finish(upload.id).id

    def work(self, upload_id: str, *, until_s: float = 60) -> bool:
        return ingesting.ingest(
            upload_id,
            store=self.store,
            blobs=self.blobs,
            settings=self.settings,
            clock=self.clock,
            owner="test",
            until_s=until_s,
        )

    def status(self, upload_id: str) -> Upload:
        return ingesting.upload_status(self.actor, upload_id, store=self.store)

    def taken_in(self, files: Mapping[str, bytes], request_key: str = "key", **stated: str) -> Upload:
        upload_id = self.received(files, request_key, **stated)
        assert self.work(upload_id)
        return self.status(upload_id)

    def rows(self, table: type[Base]) -> int:
        with Session(self.store.engine) as session:
            return session.scalar(select(func.count()).select_from(table)) or 0

    def codes(self, upload: Upload) -> dict[str, tuple[str, str | None]]:
        return {file.name: (file.state.value, file.code) for file in upload.problems}


on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def desk(store: Store, blobs: DirectoryBlobs, settings: Settings, clock: Any, actor: Actor) -> Desk:
    return Desk(store, blobs, settings, clock, actor)


# ---- what goes in


def test_a_series_of_slices_becomes_one_study_with_one_volume(desk: Desk) -> None:
    upload = desk.taken_in(ct_series(5))

    assert (upload.state, upload.counts, upload.problems) == (UploadState.DONE, {FileState.STORED: 5}, ())
    details = study_details(desk.actor, upload.study_ids[0], store=desk.store)
    assert (details.row.description, details.row.modalities, details.row.frame_count) == ("Chest", ("CT",), 5)
    assert details.row.identity is not None
    assert details.row.identity.patient_name.startswith("ZZTEST")
    (series,) = details.series
    assert (series.kind, series.description, series.number, series.rows, series.columns) == (
        SeriesKind.VOLUME,
        "Axial",
        3,
        4,
        6,
    )
    with desk.store.transaction(read_only=True) as tx:
        opened = open_series(desk.actor, series.id, tx).series
    assert opened.geometry is not None
    assert opened.geometry.shape_kji == (5, 4, 6)
    assert opened.geometry.affine_kji_to_lps_mm.tolist() == [[0, 0, 1, 0], [0, 1, 0, 0], [3, 0, 0, 0], [0, 0, 0, 1]]
    assert [frame.plane.origin_lps_mm[2] for frame in opened.frames if frame.plane] == [0, 3, 6, 9, 12]


def test_slices_that_come_later_join_their_series_under_the_same_id(desk: Desk) -> None:
    files = ct_series(5)
    first = desk.taken_in(dict(list(files.items())[:3]), "first")
    before = study_details(desk.actor, first.study_ids[0], store=desk.store)
    desk.taken_in(dict(list(files.items())[3:]), "second")
    after = study_details(desk.actor, first.study_ids[0], store=desk.store)

    assert [series.id for series in before.series] == [series.id for series in after.series]
    assert (before.row.frame_count, after.row.frame_count) == (3, 5)


@on_sqlite
def test_a_picture_goes_by_what_its_sender_says_of_it(desk: Desk) -> None:
    upload = desk.taken_in({"folder/eye.png": png()}, stated_modality="op", stated_description="Fundus, left")
    row = study_details(desk.actor, upload.study_ids[0], store=desk.store).row
    assert (row.modalities, row.description) == (("OP",), "Fundus, left")
    assert row.identity is not None
    assert row.identity.source_name == "folder/eye.png"


# ---- duplicates and conflicts


def test_the_same_bytes_again_are_one_instance(desk: Desk) -> None:
    first = desk.taken_in(ct_series(3), "first")
    second = desk.taken_in(ct_series(3), "second")
    assert second.counts == {FileState.DUPLICATE: 3}
    assert second.study_ids == first.study_ids
    assert desk.rows(InstanceRow) == 3


def test_the_same_bytes_twice_in_one_upload_are_one_instance(desk: Desk) -> None:
    upload = desk.taken_in({"a.dcm": dicom(), "b.dcm": dicom()})
    assert upload.counts == {FileState.STORED: 1, FileState.DUPLICATE: 1}


def test_another_file_of_a_known_uid_is_kept_apart_and_nothing_shown_changes(desk: Desk) -> None:
    first = desk.taken_in({"a.dcm": dicom("1.2.3.1", value=7)}, "first")
    before = study_details(desk.actor, first.study_ids[0], store=desk.store)
    second = desk.taken_in({"a.dcm": dicom("1.2.3.1", value=8, study="1.99")}, "second")

    assert desk.codes(second) == {"a.dcm": ("quarantined", "sop_instance_conflict")}
    assert second.study_ids == ()
    assert study_details(desk.actor, first.study_ids[0], store=desk.store) == before
    assert desk.rows(StudyRow) == 1
    with Session(desk.store.engine) as session:
        for sha256 in session.scalars(select(UploadFileRow.sha256)):
            assert sha256 is not None
            assert desk.blobs.path(sha256).exists()


def test_two_files_of_one_uid_in_one_upload_keep_the_first(desk: Desk) -> None:
    upload = desk.taken_in({"a.dcm": dicom(value=7), "b.dcm": dicom(value=8)})
    assert desk.codes(upload) == {"b.dcm": ("quarantined", "sop_instance_conflict")}


def test_an_instance_belongs_to_its_project(desk: Desk, make_project: Any, make_actor: Any) -> None:
    desk.taken_in({"a.dcm": dicom()})
    other = make_project("Other")
    elsewhere = Desk(desk.store, desk.blobs, desk.settings, desk.clock, make_actor(Role.CLINICIAN, other))
    assert elsewhere.taken_in({"a.dcm": dicom()}).counts == {FileState.STORED: 1}
    assert desk.rows(InstanceRow) == 2


def test_the_same_files_uploaded_at_once_are_stored_once(desk: Desk) -> None:
    uploads = [desk.received(ct_series(20), f"key-{n}") for n in range(4)]
    threads = [threading.Thread(target=desk.work, args=(upload_id,)) for upload_id in uploads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    done = [desk.status(upload_id) for upload_id in uploads]
    assert [upload.state for upload in done] == [UploadState.DONE] * 4
    assert sum(upload.counts.get(FileState.STORED, 0) for upload in done) == 20
    assert sum(upload.counts.get(FileState.DUPLICATE, 0) for upload in done) == 60
    assert (desk.rows(InstanceRow), desk.rows(StudyRow), desk.rows(SeriesRow)) == (20, 1, 1)
    (row,) = list_studies(desk.actor, store=desk.store).studies
    assert row.frame_count == 20


# ---- another patient


ANNA = {"PatientName": "ANNA", "PatientID": "P1"}
BERTA = {"PatientName": "BERTA", "PatientID": "P2"}


def test_a_study_of_another_patient_is_kept_apart_and_no_identity_is_lost(desk: Desk) -> None:
    first = desk.taken_in({"a.dcm": dicom("1.2.3.1", **ANNA)}, "first")
    before = study_details(desk.actor, first.study_ids[0], store=desk.store)
    files = {"b.dcm": dicom("1.2.3.2", z=3, **BERTA), "c.dcm": dicom("1.2.3.3", study="1.5", series="1.5.2", **BERTA)}
    second = desk.taken_in(files, "second")

    assert desk.codes(second) == {"b.dcm": ("quarantined", "patient_mismatch")}
    assert second.counts == {FileState.STORED: 1, FileState.QUARANTINED: 1}
    assert study_details(desk.actor, first.study_ids[0], store=desk.store) == before
    (theirs,) = [row for row in list_studies(desk.actor, store=desk.store).studies if row.id in second.study_ids]
    assert theirs.identity is not None
    assert (theirs.identity.patient_name, theirs.frame_count) == ("BERTA", 1)
    (told,) = second.problems
    assert not any(word in str(told.message) for word in ("ANNA", "BERTA", "P1", "P2"))
    with Session(desk.store.engine) as session:
        kept = session.scalars(select(UploadFileRow.sha256).where(UploadFileRow.state == "quarantined")).one()
    assert desk.blobs.path(kept).exists()


@on_sqlite
def test_two_patients_in_one_upload_of_one_study_are_told_apart(desk: Desk) -> None:
    files = {
        "a": dicom("1.2.3.1", **ANNA),
        "b": dicom("1.2.3.2", z=3, **BERTA),
        "c": dicom("1.2.3.3", z=6, **ANNA),
    }
    upload = desk.taken_in(files)
    assert desk.codes(upload) == {"b": ("quarantined", "patient_mismatch")}
    (row,) = list_studies(desk.actor, store=desk.store).studies
    assert row.identity is not None
    assert (row.identity.patient_name, row.frame_count) == ("ANNA", 2)


@on_sqlite
def test_a_file_of_the_patient_goes_in_although_a_stranger_s_has_its_uid(desk: Desk) -> None:
    desk.taken_in({"a": dicom("1.2.3.1", **ANNA)}, "first")
    upload = desk.taken_in({"b": dicom("1.2.3.2", **BERTA), "c": dicom("1.2.3.2", z=3, **ANNA)}, "second")
    assert desk.codes(upload) == {"b": ("quarantined", "patient_mismatch")}
    assert upload.counts == {FileState.STORED: 1, FileState.QUARANTINED: 1}


def test_two_patients_of_one_study_at_once_are_never_mixed(desk: Desk) -> None:
    files = [{"a": dicom("1.2.3.1", **ANNA)}, {"b": dicom("1.2.3.2", z=3, **BERTA)}]
    uploads = [desk.received(each, f"key-{n}") for n, each in enumerate(files)]
    threads = [threading.Thread(target=desk.work, args=(upload_id,)) for upload_id in uploads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = [desk.status(upload_id).counts for upload_id in uploads]
    assert sorted(map(list, counts)) == [[FileState.QUARANTINED], [FileState.STORED]]


@pytest.mark.parametrize(
    ("one", "other", "contradict"),
    [
        (Identity(patient_id="P1"), Identity(patient_id="P2"), True),
        (Identity(patient_id="P1 "), Identity(patient_id="P1"), False),
        (Identity("ANNA", "P1"), Identity("ANNA^MARIE", "P1"), False),
        (Identity("ANNA", "P1"), Identity("ANNA", ""), False),
        (Identity("ANNA", "P1"), Identity("BERTA", ""), True),
        (Identity("Doe^Jane", ""), Identity("DOE^JANE^^^", ""), False),
        (Identity("DOE^JANE", ""), Identity("DOE^JANE=山田", ""), False),
        (Identity("=山田", ""), Identity("DOE=佐藤", ""), True),
        (Identity("ANNA", ""), Identity("", "P2"), False),
        (Identity(patient_birth_date="19700101"), Identity(patient_birth_date="19700102"), True),
        (Identity(patient_birth_date="19700101"), Identity(patient_name="ANNA"), False),
    ],
)
def test_who_is_another_patient(one: Identity, other: Identity, contradict: bool) -> None:
    assert one.contradicts(other) is contradict
    assert other.contradicts(one) is contradict


# ---- a series that cannot be arranged


@on_sqlite
def test_a_series_whose_grid_is_refused_becomes_pictures_and_the_one_beside_it_goes_in(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = intake.arrange

    def refusing(instances: Any, **given: Any) -> Any:
        layouts = real(instances, **given)
        if instances[0].facts["number"] == 9 and layouts[0].geometry is not None:
            raise ShapeError("an affine is finite and invertible")
        return layouts

    monkeypatch.setattr(intake, "arrange", refusing)
    odd = {f"odd/{k}": dicom(f"1.2.4.{k + 1}", series="1.2.5", z=3.0 * k, SeriesNumber=9) for k in range(3)}
    upload = desk.taken_in(ct_series(3) | odd)
    assert (upload.state, upload.counts) == (UploadState.DONE, {FileState.STORED: 6})
    series = study_details(desk.actor, upload.study_ids[0], store=desk.store).series
    assert [(one.number, one.kind, one.kind_reason) for one in series] == [
        (3, "volume", None),
        (9, "pictures", "the positions and distances of the slices make no grid that can be measured"),
    ]


@on_sqlite
def test_a_series_that_cannot_be_shown_at_all_is_told_of_its_files_and_the_others_go_in(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = intake.arrange

    def refusing(instances: Any, **given: Any) -> Any:
        if instances[0].facts["number"] == 9:
            raise InvalidWindow("a window has a width")
        return real(instances, **given)

    monkeypatch.setattr(intake, "arrange", refusing)
    odd = {"odd": dicom("1.2.4.1", series="1.2.5", SeriesNumber=9)}
    upload = desk.taken_in(odd | ct_series(3))
    assert (upload.state, desk.codes(upload)) == (UploadState.DONE, {"odd": ("refused", "invalid_window")})
    assert upload.counts == {FileState.STORED: 3, FileState.REFUSED: 1}
    assert study_details(desk.actor, upload.study_ids[0], store=desk.store).row.frame_count == 3


# ---- casebook


def test_c23_a_zipped_cd_gives_its_images_and_counts_the_rest(desk: Desk) -> None:
    cd = {
        "DICOMDIR": dicomdir(),
        "DICOM/IM0001": dicom("1.2.3.1", z=0),
        "DICOM/IM0002": dicom("1.2.3.2", z=3),
        "autorun.inf": b"[autorun]",
        "__MACOSX/._IM0001": b"\x00\x05\x16\x07" + bytes(100),
        "DICOM/REPORT": structured_report(),
        "readme.pdf": b"%PDF-1.4 " + bytes(300),
    }
    upload = desk.taken_in({"cd.zip": zipped(cd)})

    assert upload.state is UploadState.DONE
    assert upload.counts == {
        FileState.UNPACKED: 1,
        FileState.STORED: 2,
        FileState.SKIPPED: 4,
        FileState.REFUSED: 1,
    }
    assert desk.codes(upload) == {
        "readme.pdf": ("refused", "unsupported_file"),
        "DICOMDIR": ("skipped", "no_pixels"),
        "autorun.inf": ("skipped", "litter"),
        "__MACOSX/._IM0001": ("skipped", "litter"),
        "DICOM/REPORT": ("skipped", "no_pixels"),
    }
    assert study_details(desk.actor, upload.study_ids[0], store=desk.store).row.frame_count == 2


def test_c58_a_worker_that_is_woken_finds_the_upload_queued(desk: Desk) -> None:
    upload = desk.open()
    seen: list[UploadState] = []

    class EagerQueue:
        def wake_ingest(self, upload_id: str) -> None:
            thread = threading.Thread(target=lambda: seen.append(desk.status(upload_id).state))
            thread.start()
            thread.join()

    ingesting.finish_receiving(desk.actor, upload.id, store=desk.store, queue=EagerQueue(), clock=desk.clock)
    assert seen == [UploadState.QUEUED]


def test_c58_nobody_is_woken_for_what_was_rolled_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    upload = desk.open()

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the connection broke")

    monkeypatch.setattr("backend.store.uploads.Uploads.status", fail)
    with pytest.raises(RuntimeError):
        desk.finish(upload.id)
    monkeypatch.undo()
    assert desk.queue.woken == []
    assert desk.status(upload.id).state is UploadState.RECEIVING


def test_c61_every_step_of_an_upload_can_be_sent_again(desk: Desk) -> None:
    opened = [desk.open("key").id for _ in range(3)]
    assert len(set(opened)) == 1
    for _ in range(3):
        desk.send(opened[0], {"a.dcm": dicom("1.2.3.1"), "b.dcm": dicom("1.2.3.2")})
    for _ in range(3):
        desk.finish(opened[0])
    desk.work(opened[0])

    assert desk.rows(UploadRow) == 1
    assert desk.queue.woken == [opened[0]]
    assert desk.status(opened[0]).counts == {FileState.STORED: 2}
    assert desk.status(opened[0]).received_bytes == 2 * len(dicom("1.2.3.1"))
    assert desk.open("key").state is UploadState.DONE


def test_c61_a_request_key_of_another_project_is_a_conflict(desk: Desk, make_project: Any) -> None:
    desk.open("key")
    other = make_project("Other")
    actor = Actor(desk.actor.user_id, "x", Role.CLINICIAN, frozenset({desk.project_id, other}))
    with pytest.raises(Conflict):
        ingesting.open_upload(actor, other, request_key="key", store=desk.store, clock=desk.clock)


@on_sqlite
def test_c62_tricks_in_an_archive_are_refused_by_code_and_the_good_file_goes_in(desk: Desk) -> None:
    tricks = {"../../evil.dcm": dicom("9.1"), "/abs.dcm": dicom("9.2"), r"C:\x.dcm": dicom("9.3"), "good": dicom("9.4")}
    upload = desk.taken_in({"t.zip": zipped(tricks)})
    assert upload.counts == {FileState.UNPACKED: 1, FileState.REFUSED: 3, FileState.STORED: 1}
    assert {code for _, code in desk.codes(upload).values()} == {"unsafe_path"}
    assert not list(desk.settings.home.rglob("*evil*"))


@on_sqlite
def test_c63_what_an_archive_unpacks_to_counts_against_the_upload(desk: Desk) -> None:
    desk.settings = with_settings(desk.settings, max_upload_bytes=20_000)
    upload = desk.taken_in({"bomb.zip": zipped({"a": bytes(15_000), "b": bytes(15_000), "c": bytes(1000)})})
    assert desk.codes(upload)["b"] == ("refused", "file_too_large")
    stored = sum(path.stat().st_size for path in desk.settings.blobs.rglob("*") if path.is_file())
    assert stored < 20_000


@on_sqlite
def test_c63_an_archive_of_too_many_entries_is_refused_as_a_whole(desk: Desk) -> None:
    desk.settings = with_settings(desk.settings, max_upload_files=10)
    upload = desk.taken_in({"many.zip": zipped({f"{n}": b"x" for n in range(11)})})
    assert desk.codes(upload) == {"many.zip": ("refused", "file_too_large")}
    assert desk.rows(UploadFileRow) == 1


@on_sqlite
def test_c63_a_huge_declared_picture_is_refused_without_its_memory(desk: Desk) -> None:
    declared = dicom(Rows=65535, Columns=65535, NumberOfFrames=10_000)
    upload = desk.taken_in({"huge.dcm": declared})
    assert desk.codes(upload)["huge.dcm"][0] == "refused"


@on_sqlite
def test_a_damaged_archive_is_refused_and_the_rest_goes_in(desk: Desk) -> None:
    upload = desk.taken_in({"cut.zip": zipped({"a": dicom()})[:-30], "b.dcm": dicom("1.2.3.9")})
    assert desk.codes(upload) == {"cut.zip": ("refused", "unreadable_file")}
    assert upload.counts[FileState.STORED] == 1


# ---- limits while receiving


@on_sqlite
def test_a_file_over_its_limit_is_refused_and_the_next_goes_in(desk: Desk) -> None:
    desk.settings = with_settings(desk.settings, max_file_bytes=3000)
    receiver = desk.send(desk.open().id, {"big": bytes(3001), "small.dcm": dicom()})
    assert [file.code for file in receiver.refused] == ["file_too_large"]
    assert [file.name for file in receiver.received] == ["small.dcm"]


@on_sqlite
def test_an_upload_over_its_limit_ends_the_request_and_keeps_what_came_whole(desk: Desk) -> None:
    desk.settings = with_settings(desk.settings, max_upload_bytes=3000)
    upload = desk.open()
    with pytest.raises(UploadTooLarge):
        desk.send(upload.id, {"a": bytes(2000), "b": bytes(2000)})
    assert desk.status(upload.id).counts == {FileState.RECEIVED: 1}
    assert not list((desk.settings.blobs / "incoming").iterdir())


@on_sqlite
def test_one_file_too_many_ends_the_request(desk: Desk) -> None:
    desk.settings = with_settings(desk.settings, max_upload_files=2)
    with pytest.raises(UploadTooLarge):
        desk.send(desk.open().id, {"a": b"a", "b": b"b", "c": b"c"})


@on_sqlite
def test_a_finished_upload_takes_no_more_files(desk: Desk) -> None:
    upload_id = desk.received({"a": dicom()})
    with pytest.raises(Conflict):
        desk.send(upload_id, {"b": b"b"})


@on_sqlite
def test_an_upload_is_its_sender_s(desk: Desk, make_actor: Any) -> None:
    upload = desk.open()
    colleague = Desk(desk.store, desk.blobs, desk.settings, desk.clock, make_actor(Role.CLINICIAN, desk.project_id))
    with pytest.raises(NotFound):
        colleague.send(upload.id, {"a": b"a"})
    with pytest.raises(NotFound):
        colleague.finish(upload.id)
    assert colleague.status(upload.id).state is UploadState.RECEIVING


@on_sqlite
def test_a_stranger_finds_no_project_and_no_upload(desk: Desk, make_actor: Any, make_project: Any) -> None:
    upload = desk.open()
    stranger = make_actor(Role.CLINICIAN, make_project("Theirs"))
    with pytest.raises(NotFound):
        ingesting.open_upload(stranger, desk.project_id, request_key="k", store=desk.store, clock=desk.clock)
    with pytest.raises(NotFound):
        ingesting.upload_status(stranger, upload.id, store=desk.store)


@on_sqlite
def test_who_may_not_see_identities_sees_no_file_names_of_others(desk: Desk, make_actor: Any) -> None:
    upload = desk.taken_in({"DOE^JANE.txt": b"not an image"})
    engineer = make_actor(Role.ENGINEER, desk.project_id)
    theirs = ingesting.upload_status(engineer, upload.id, store=desk.store)
    assert [file.name for file in theirs.problems] == ["file 1"]
    assert [file.name for file in desk.status(upload.id).problems] == ["DOE^JANE.txt"]


@on_sqlite
@pytest.mark.parametrize("key", ["", "k" * 81])
def test_a_request_key_has_1_to_80_characters(desk: Desk, key: str) -> None:
    with pytest.raises(InvalidRequest):
        desk.open(key)


@pytest.mark.parametrize("name", ["a\x00b", "\udcff.dcm", "n" * 2000, "", "Müller ☃.dcm"])
def test_any_file_name_can_be_stored(desk: Desk, name: str) -> None:
    assert desk.taken_in({name: dicom()}).counts == {FileState.STORED: 1}


# ---- lost processes


class Killed(BaseException):
    """Stands for a kill: nothing that the code does on an `Exception` happens."""


def test_work_that_was_cut_short_between_batches_goes_on(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingesting, "FILES_AT_ONCE", 4)
    upload_id = desk.received(ct_series(10))
    batches = 0
    real = ingesting.store_batch

    def killed_at_the_third(*args: Any, **kwargs: Any) -> None:
        nonlocal batches
        batches += 1
        if batches == 3:
            raise Killed
        real(*args, **kwargs)

    monkeypatch.setattr(ingesting, "store_batch", killed_at_the_third)
    with pytest.raises(Killed):
        desk.work(upload_id)
    assert desk.status(upload_id).counts == {FileState.STORED: 8, FileState.RECEIVED: 2}
    assert desk.work(upload_id)  # the lease of the lost one still runs
    assert desk.status(upload_id).state is UploadState.INGESTING

    desk.clock.advance(desk.settings.lease_s + 1)
    assert desk.work(upload_id)
    assert desk.status(upload_id).counts == {FileState.STORED: 10}
    assert (desk.rows(InstanceRow), desk.rows(SeriesRow)) == (10, 1)


def test_an_archive_that_was_cut_short_goes_on_where_it_stopped(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "BATCH_S", 0)
    upload_id = desk.received({"ct.zip": zipped(ct_series(6))})
    real, batches = ingesting.Unpacking.batches, 0

    def killed_at_the_fourth(self: Any) -> Any:
        nonlocal batches
        for members in real(self):
            batches += 1
            if batches == 4:
                raise Killed
            yield members

    monkeypatch.setattr(ingesting.Unpacking, "batches", killed_at_the_fourth)
    with pytest.raises(Killed):
        desk.work(upload_id)
    assert desk.rows(UploadFileRow) == 4
    desk.clock.advance(desk.settings.lease_s + 1)
    assert desk.work(upload_id)
    assert desk.status(upload_id).counts == {FileState.UNPACKED: 1, FileState.STORED: 6}


@on_sqlite
def test_a_slice_of_time_ends_and_the_next_goes_on(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingesting, "FILES_AT_ONCE", 1)
    upload_id = desk.received(ct_series(3))
    turns = 1
    while not desk.work(upload_id, until_s=0.001):
        turns += 1
        assert turns < 200
    assert turns > 1
    assert desk.status(upload_id).counts == {FileState.STORED: 3}


def test_a_file_that_kills_its_reader_each_time_is_refused_in_the_end(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = intake.read_header
    poison = dicom("1.2.3.66", z=90)

    def reader(file: Any, *, size: int, **kwargs: Any) -> Any:
        if file.read() == poison:
            raise Killed
        return real(file, size=size, **kwargs)

    monkeypatch.setattr(intake, "read_header", reader)
    upload_id = desk.received(ct_series(3) | {"poison.dcm": poison} | {"after.dcm": dicom("1.2.3.67", z=93)})
    kills = 0
    while desk.status(upload_id).state in (UploadState.QUEUED, UploadState.INGESTING):
        try:
            desk.work(upload_id)
        except Killed:
            kills += 1
            assert kills < 20
        desk.clock.advance(desk.settings.lease_s + 1)

    upload = desk.status(upload_id)
    assert upload.state is UploadState.DONE
    assert kills == 5
    assert desk.codes(upload) == {"poison.dcm": ("refused", "ingest_crashed")}
    assert upload.counts == {FileState.STORED: 4, FileState.REFUSED: 1}


@on_sqlite
def test_an_unexpected_error_ends_the_upload_and_says_nothing_of_the_patient(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError(CANARY)

    monkeypatch.setattr(ingesting, "arrange_series", broken)
    upload = desk.taken_in({f"{CANARY}.dcm": dicom()})
    assert upload.state is UploadState.FAILED
    assert upload.message == "ingest stopped on an error of ours: ZeroDivisionError"
    printed = capsys.readouterr()
    assert "CANARY" not in caplog.text + printed.out + printed.err


def test_sending_again_mends_what_a_failed_upload_left(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ingesting, "arrange_series", lambda *_: 1 / 0)
        assert desk.taken_in(ct_series(3), "first").state is UploadState.FAILED
    again = desk.taken_in(ct_series(3), "second")
    assert again.counts == {FileState.DUPLICATE: 3}
    assert study_details(desk.actor, again.study_ids[0], store=desk.store).row.frame_count == 3


def test_who_lost_the_lease_changes_nothing_more(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    upload_id = desk.received(ct_series(3))
    real = ingesting.look_at

    def overtaken(*args: Any, **kwargs: Any) -> Any:
        batch = real(*args, **kwargs)
        monkeypatch.setattr(ingesting, "look_at", real)
        desk.clock.advance(desk.settings.lease_s + 1)
        assert desk.work(upload_id)  # another worker does it all
        return batch

    monkeypatch.setattr(ingesting, "look_at", overtaken)
    assert desk.work(upload_id)
    assert desk.status(upload_id).counts == {FileState.STORED: 3}
    assert desk.rows(InstanceRow) == 3


def test_an_upload_that_nobody_holds_is_named_once_in_a_while(desk: Desk) -> None:
    upload_id = desk.received(ct_series(1))
    assert ingesting.stalled_uploads(desk.store, desk.clock) == []  # its message is on the way
    desk.clock.advance(30)
    assert ingesting.stalled_uploads(desk.store, desk.clock) == [upload_id]
    assert ingesting.stalled_uploads(desk.store, desk.clock) == []
    desk.work(upload_id)
    desk.clock.advance(3600)
    assert ingesting.stalled_uploads(desk.store, desk.clock) == []


def test_a_finished_upload_that_is_worked_on_again_stays_as_it_is(desk: Desk) -> None:
    upload = desk.taken_in(ct_series(2))
    assert desk.work(upload.id)
    assert desk.work("no such upload")
    assert desk.status(upload.id) == upload


@on_sqlite
def test_an_upload_without_files_is_done(desk: Desk) -> None:
    assert desk.taken_in({}).state is UploadState.DONE


def test_identities_are_in_the_protected_table_only(desk: Desk) -> None:
    """Casebook C67: the name and the id of the patient are found in no other row."""
    desk.taken_in(ct_series(2))
    with Session(desk.store.engine) as session:
        for mapper in Base.registry.mappers:
            if mapper.class_ is IdentityRow:
                continue
            for row in session.scalars(select(mapper.class_)):
                values = str({column.key: getattr(row, column.key) for column in mapper.column_attrs})
                assert "CANARY" not in values, mapper.class_.__name__
