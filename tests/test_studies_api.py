"""Uploads, the worklist and series over HTTP."""

import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from sqlalchemy.orm import Session

from backend.api.multipart import FormReader
from backend.domain.access import Actor, Role
from backend.domain.errors import InvalidRequest
from backend.main import create_app
from backend.services import frames
from backend.services.ingest import ingest
from backend.settings import Settings
from backend.store.repository import Store, new_id
from backend.store.tables import IdentityRow, SeriesRow, StudyRow
from tests.ingest_files import ct_series, dicom, png, zipped
from tests.people import RecordingQueue, signed_in

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
DICOM = "application/octet-stream"


class Site:
    """The application with a queue that only takes notes, and people at it."""

    def __init__(self, settings: Settings, store: Store, clock: Any, project: str, make_actor: Any) -> None:
        self.queue = RecordingQueue()
        self.app = create_app(settings, queue=self.queue, clock=clock)
        self.project, self.make_actor, self.store, self.clock = project, make_actor, store, clock
        self.client = self.sign_in(Role.CLINICIAN)

    def sign_in(self, role: Role, *projects: str) -> TestClient:
        actor: Actor = self.make_actor(role, *(projects or (self.project,)))
        return signed_in(self.app, actor)

    def work(self) -> None:
        services = self.app.state.services
        for upload_id in self.queue.woken:
            assert ingest(
                upload_id,
                store=services.store,
                blobs=services.blobs,
                settings=services.settings,
                clock=self.clock,
                owner="test",
                until_s=60,
            )

    def upload(self, files: dict[str, bytes], **fields: str) -> dict[str, Any]:
        parts = [("files", (name, data, DICOM)) for name, data in files.items()]
        answer = self.client.post("/api/studies", data={"project_id": self.project, **fields}, files=parts)
        assert answer.status_code == 202, answer.text
        self.work()
        return self.client.get(f"/api/uploads/{answer.json()['id']}").json()

    def series_of(self, upload: dict[str, Any]) -> dict[str, Any]:
        study = self.client.get(f"/api/studies/{upload['study_ids'][0]}").json()
        return self.client.get(f"/api/series/{study['series'][0]['id']}").json()


@pytest.fixture
def site(settings: Settings, store: Store, clock: Any, project: str, make_actor: Any) -> Any:
    opened = Site(settings, store, clock, project, make_actor)
    yield opened
    opened.app.state.services.store.close()


# ---- uploads


def test_an_upload_in_three_steps(site: Site) -> None:
    body = {"project_id": site.project, "request_key": "k", "stated_modality": "", "stated_description": ""}
    opened = site.client.post("/api/uploads", json=body)
    assert opened.status_code == 201
    path = f"/api/uploads/{opened.json()['id']}"
    sent = site.client.post(
        f"{path}/files", files=[("files", (name, data, DICOM)) for name, data in ct_series(3).items()]
    )
    assert sent.status_code == 200
    assert [file["name"] for file in sent.json()["received"]] == ["ct/0000.dcm", "ct/0001.dcm", "ct/0002.dcm"]
    assert sent.json()["refused"] == []
    finished = site.client.post(f"{path}/finish")
    assert (finished.status_code, finished.json()["state"]) == (202, "queued")
    site.work()

    done = site.client.get(path).json()
    assert (done["state"], done["counts"], done["problems"]) == ("done", {"stored": 3}, [])
    assert site.client.post("/api/uploads", json=body).json()["id"] == done["id"]
    assert (
        site.client.post(f"{path}/files", files=[("files", ("a", b"a", DICOM))]).json()["error"]["code"] == "conflict"
    )


def test_an_upload_in_one_request_lists_what_was_refused(site: Site) -> None:
    done = site.upload({"ct.zip": zipped(ct_series(3)), "note.pdf": b"%PDF-1.4 " + bytes(300)}, request_key="k")
    assert (done["state"], done["counts"]) == ("done", {"stored": 3, "unpacked": 1, "refused": 1})
    (problem,) = done["problems"]
    assert (problem["name"], problem["state"], problem["code"]) == ("note.pdf", "refused", "unsupported_file")


@on_sqlite
def test_c61_a_whole_upload_sent_again_is_the_same_upload(site: Site) -> None:
    first, second = (site.upload(ct_series(3), request_key="again") for _ in range(2))
    assert first == second
    assert second["counts"] == {"stored": 3}
    assert site.client.get("/api/studies").json()["total"] == 1


@on_sqlite
@pytest.mark.parametrize(
    ("fields", "files", "status", "code"),
    [
        ({}, {"a": b"a"}, 422, "invalid_request"),
        ({"project_id": "of somebody else"}, {"a": b"a"}, 404, "not_found"),
        ({"project_id": "?", "color": "red"}, {"a": b"a"}, 422, "invalid_request"),
    ],
)
def test_a_form_that_says_too_little_is_refused(
    site: Site, fields: dict[str, str], files: dict[str, bytes], status: int, code: str
) -> None:
    fields = {name: site.project if value == "?" else value for name, value in fields.items()}
    parts = [("files", (name, data, DICOM)) for name, data in files.items()]
    answer = site.client.post("/api/studies", data=fields, files=parts)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@on_sqlite
def test_a_body_that_is_no_form_is_refused(site: Site) -> None:
    for content_type in ("application/json", "multipart/form-data", "multipart/form-data; boundary=x"):
        answer = site.client.post("/api/studies", content=b"{}", headers={"content-type": content_type})
        assert answer.json()["error"]["code"] == "invalid_request"


class ListSink:
    """Notes what a form gives."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def take_field(self, name: str, value: str) -> None:
        self.told.append((name, value))

    def open_file(self, name: str) -> None:
        self.told.append((name, b""))

    def write(self, data: bytes) -> None:
        name, before = self.told[-1]
        self.told[-1] = (name, before + data)

    def close_file(self) -> None:
        pass


FORM = (
    b'--B\r\nContent-Disposition: form-data; name="project_id"\r\n\r\np1\r\n'
    b'--B\r\nContent-Disposition: form-data; name="files"; filename="M\xc3\xbcller/1.dcm"\r\n'
    b"Content-Type: application/dicom\r\n\r\n\r\n--\r\n--b\r\n\r\n"
    b'--B\r\nContent-Disposition: form-data; name="files"; filename=""\r\n\r\n\r\n--B--\r\n'
)


@pytest.mark.parametrize("piece", [1, 2, 7, 1000])
def test_a_form_reads_the_same_however_it_is_cut_on_its_way(piece: int) -> None:
    sink = ListSink()
    reader = FormReader(b"B", sink)
    reader.feed([FORM[at : at + piece] for at in range(0, len(FORM), piece)])
    reader.finish([])
    assert sink.told == [("project_id", "p1"), ("Müller/1.dcm", b"\r\n--\r\n--b\r\n")]


@pytest.mark.parametrize("length", [0, 30, 100, len(FORM) - 8])
def test_a_form_that_is_cut_off_is_no_form(length: int) -> None:
    reader = FormReader(b"B", ListSink())
    with pytest.raises(InvalidRequest):
        reader.finish([FORM[:length]])


# ---- the worklist


def add_studies(site: Site, count: int) -> None:
    with Session(site.store.engine) as session, session.begin():
        for n in range(count):
            study = StudyRow(
                id=new_id(),
                project_id=site.project,
                study_key=f"1.{n}",
                description=f"Study {n:03}",
                received_at=site.clock() + timedelta(seconds=n),
            )
            session.add(study)
            session.flush()
            session.add(
                IdentityRow(
                    study_id=study.id,
                    patient_name=f"DOE^{n:03}",
                    patient_id=f"ID-{n:03}",
                    patient_birth_date="",
                    patient_sex="",
                    accession_number="",
                    study_date="",
                    source_name="",
                )
            )
            session.add(
                SeriesRow(
                    id=new_id(),
                    study_id=study.id,
                    project_id=site.project,
                    series_key="1",
                    part="",
                    modality="CT" if n % 2 else "MR",
                    description="",
                    number=None,
                    kind="picture",
                    frame_count=1,
                    layout={},
                    frames=[],
                    auto_window=None,
                )
            )


def test_the_worklist_comes_in_pages_of_50_newest_first(site: Site) -> None:
    add_studies(site, 120)
    pages = [site.client.get("/api/studies", params={"page": number}).json() for number in (1, 2, 3, 4)]
    assert [len(page["studies"]) for page in pages] == [50, 50, 20, 0]
    assert {(page["pages"], page["total"]) for page in pages} == {(3, 120)}
    told = [study["description"] for page in pages for study in page["studies"]]
    assert told == [f"Study {n:03}" for n in reversed(range(120))]
    assert pages[0]["studies"][0]["identity"]["patient_name"] == "DOE^119"
    assert site.client.get("/api/studies", params={"page": 0}).status_code == 422


def test_the_worklist_is_filtered_by_words_and_modality(site: Site) -> None:
    add_studies(site, 12)

    def told(client: TestClient, **params: str) -> list[str]:
        return [study["description"] for study in client.post("/api/studies/search", json=params).json()["studies"]]

    assert told(site.client, q="study 011") == ["Study 011"]
    assert told(site.client, q="doe^003") == ["Study 003"]
    assert told(site.client, q="id-004") == ["Study 004"]
    assert told(site.client, q="%") == []
    assert told(site.client, q="_") == []
    assert told(site.client, modality="ct", q="00") == [f"Study {n:03}" for n in (9, 7, 5, 3, 1)]
    engineer = site.sign_in(Role.ENGINEER)
    assert told(engineer, q="doe^003") == []
    assert engineer.get("/api/studies").json()["studies"][0]["identity"] is None


def test_a_person_sees_the_studies_of_their_projects(site: Site, make_project: Any) -> None:
    """Casebook C69: a stranger's request reads like one for what does not exist."""
    done = site.upload(ct_series(2))
    series = site.series_of(done)
    stranger = site.sign_in(Role.CLINICIAN, make_project("Theirs"))
    assert stranger.get("/api/studies").json()["total"] == 0
    for path in (
        f"/api/studies?project_id={site.project}",
        f"/api/studies/{done['study_ids'][0]}",
        f"/api/uploads/{done['id']}",
        f"/api/series/{series['id']}",
        f"/api/series/{series['id']}/frames/0",
        f"/api/series/{series['id']}/frames/0/picture",
        f"/api/series/{series['id']}/thumbnail",
    ):
        answer = stranger.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found"), path
        assert site.client.get(path).status_code == 200, path


# ---- series


def test_a_ct_is_described_frame_by_frame(site: Site) -> None:
    series = site.series_of(site.upload(ct_series(3)))
    assert (series["kind"], series["kind_label"], series["three_d"]) == ("volume", "3 slices · volume", True)
    assert series["pixel"] == {
        "rows": 4, "columns": 6, "samples": 1, "dtype": "int16", "photometric": "MONOCHROME2",
    }  # fmt: skip
    assert (series["unit"], series["spacing_source"]) == ("HU", "patient")
    assert [preset["label"] for preset in series["presets"]] == [
        "soft tissue", "lung", "bone", "brain", "mediastinum", "auto", "full range",
    ]  # fmt: skip
    assert series["presets"][1] == {
        "key": "2", "label": "lung", "center": -600, "width": 1500, "function": "LINEAR",
    }  # fmt: skip
    second = series["frames"][1]
    assert (second["ipp"], second["iop"], second["spacing"]) == ([0, 0, 3], [1, 0, 0, 0, 1, 0], [1, 1])
    assert second["letters"] == {"left": "R", "right": "L", "top": "A", "bottom": "P"}
    assert (second["slope"], second["intercept"], second["position_mm"]) == (1, -1024, 3)
    assert second["window"]["width"] >= 0


def test_a_frame_is_served_as_stored_values(site: Site) -> None:
    series = site.series_of(site.upload(ct_series(3)))
    answer = site.client.get(f"/api/series/{series['id']}/frames/2")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"] == DICOM
    assert np.frombuffer(answer.content, "<i2").tolist() == [2] * 24
    assert site.client.get(f"/api/series/{series['id']}/frames/3").status_code == 404


@on_sqlite
def test_a_picture_is_windowed_as_asked(site: Site) -> None:
    series = site.series_of(site.upload({"a": dicom(value=1064)}))
    path = f"/api/series/{series['id']}/frames/0/picture"
    png_bytes = site.client.get(path, params={"center": 40, "width": 400}).content
    # 1064 - 1024 = 40 HU; ((40 - 39.5) / 399 + 0.5) * 255 = 127.8: PS3.3 C.11.2.1.2.
    assert np.asarray(Image.open(io.BytesIO(png_bytes))).tolist() == [[128] * 6] * 4
    assert site.client.get(path, params={"center": 40}).json()["error"]["code"] == "invalid_request"
    assert site.client.get(path, params={"center": 40, "width": 0}).json()["error"]["code"] == "invalid_window"
    assert site.client.get(path).headers["content-type"] == "image/png"


@on_sqlite
def test_a_thumbnail_is_made_once_in_true_proportions(site: Site) -> None:
    series = site.series_of(site.upload({"a": dicom(PixelSpacing=[3, 1])}))
    path = f"/api/series/{series['id']}/thumbnail"
    first, second = site.client.get(path), site.client.get(path)
    assert first.content == second.content
    assert Image.open(io.BytesIO(first.content)).size == (6, 12)  # 4 rows 3 mm apart, 6 columns 1 mm apart


@on_sqlite
def test_a_grey_picture_and_its_bytes(site: Site) -> None:
    series = site.series_of(site.upload({"x.png": png()}, stated_modality="DX"))
    assert (series["modality"], series["kind_label"], series["frames"][0]["letters"]) == ("DX", "single picture", None)
    assert site.client.get(f"/api/series/{series['id']}/frames/0").content == b"\x10\x20\x30\x40"


@on_sqlite
def test_a_nifti_is_served_in_the_radiological_order(site: Site, shared_data: Path) -> None:
    facts = json.loads((shared_data / "MANIFEST.json").read_text())["files"]
    path = next(
        file["path"] for file in facts if file["path"].startswith("nifti/") and file["path"].endswith(".nii.gz")
    )
    series = site.series_of(site.upload({"v.nii.gz": (shared_data / path).read_bytes()}, stated_modality="MR"))
    pixel = series["pixel"]
    frame = site.client.get(f"/api/series/{series['id']}/frames/{len(series['frames']) // 2}").content
    assert len(frame) == pixel["rows"] * pixel["columns"] * pixel["samples"] * np.dtype(pixel["dtype"]).itemsize
    letters = series["frames"][0]["letters"]
    assert letters is None or (letters["left"], letters["top"]) in {("R", "A"), ("R", "H"), ("A", "H")}


@on_sqlite
def test_a_frame_that_does_not_decode_leaves_the_others(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    series = site.series_of(site.upload(ct_series(3)))
    real = frames.raw_location
    middle = series["frames"][1]

    def broken_in_the_middle(facts: dict[str, Any], number: int) -> tuple[int, int] | None:
        place = real(facts, number)
        return (10**6, 48) if facts["shared"]["ipp"] == middle["ipp"] else place

    monkeypatch.setattr(frames, "raw_location", broken_in_the_middle)
    answers = [site.client.get(f"/api/series/{series['id']}/frames/{n}") for n in range(3)]
    assert [answer.status_code for answer in answers] == [200, 422, 200]
    assert answers[1].json()["error"]["code"] == "undecodable_frame"
