"""Casebook C67: a patient's name and identifier stand in the protected table and nowhere else."""

import io
import logging
import time
from pathlib import Path

import pydicom
import pytest
import structlog
from pydicom.encaps import encapsulate
from pydicom.uid import JPEG2000Lossless
from sqlalchemy import inspect, text

from backend.domain.access import Role
from backend.main import create_app
from backend.services.ingest import ingest
from tests.ingest_files import dicom
from tests.people import RecordingQueue, signed_in

CANARIES = ("ZZTEST", "CANARY-123")
# Where the sender's own name of a file is kept, shown to who may see it.
PROTECTED = {"identities", "upload_files"}


def undecodable() -> bytes:
    """A CT slice of the canary's whose header reads and whose JPEG 2000 pixels do not decode."""
    data_set = pydicom.dcmread(io.BytesIO(dicom("1.2.3.2", series="1.2.5")))
    data_set.file_meta.TransferSyntaxUID = JPEG2000Lossless
    data_set.PixelData = encapsulate([b"\xff\x4f\xff\x51 no codestream for ZZTEST^CANARY "])
    data_set["PixelData"].is_undefined_length = True
    written = io.BytesIO()
    data_set.save_as(written, enforce_file_format=True)
    return written.getvalue()


@pytest.fixture
def heard(monkeypatch):
    """Everything that any logger says meanwhile, ours and the libraries'."""
    lines: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record):
            if not record.name.startswith("httpx"):  # the test's own client
                lines.append(logging.Formatter().format(record))

    listener, root = Listener(), logging.getLogger()
    monkeypatch.setattr(root, "level", logging.DEBUG)
    root.addHandler(listener)
    with structlog.testing.capture_logs() as ours:
        yield lambda: "\n".join([*lines, *map(str, ours)])
    root.removeHandler(listener)


def test_c67_no_canary_in_logs_file_names_or_rows_after_upload_view_and_a_failed_decode(
    store, settings, clock, make_actor, project, heard
):
    app = create_app(settings, queue=(queue := RecordingQueue()), clock=clock)
    services = app.state.services
    browser = signed_in(app, make_actor(Role.CLINICIAN, project))
    files = [
        ("files", ("ZZTEST CANARY-123/0001.dcm", dicom("1.2.3.1"))),
        ("files", ("ZZTEST CANARY-123/0002.dcm", undecodable())),
        ("files", ("ZZTEST CANARY-123/broken.dcm", dicom("1.2.3.3")[:400])),
        ("files", ("../ZZTEST CANARY-123.txt", b"ZZTEST^CANARY has the identifier CANARY-123")),
    ]
    upload = browser.post("/api/studies", data={"project_id": project}, files=files).json()
    assert queue.woken == [upload["id"]]
    incoming = [path.name for path in Path(settings.home).rglob("*")]
    ingest(
        upload["id"],
        store=services.store,
        blobs=services.blobs,
        settings=settings,
        clock=clock,
        owner="test",
        until_s=time.monotonic() + 60,
    )
    done = browser.get(f"/api/uploads/{upload['id']}").json()
    assert done["state"] == "done"
    statuses = set()
    for study_id in done["study_ids"]:
        study = browser.get(f"/api/studies/{study_id}").json()
        assert study["identity"]["patient_name"] == "ZZTEST^CANARY"
        for series in study["series"]:
            for path in ("", "/frames/0", "/frames/0/picture", "/thumbnail"):
                statuses.add(browser.get(f"/api/series/{series['id']}{path}").status_code)
    browser.post("/api/studies/search", json={"q": "ZZTEST"})
    # The good slice is shown and the broken one is refused with our code.
    assert statuses == {200, 422}

    everything = heard()
    assert "request" in everything
    names = incoming + [path.name for path in Path(settings.home).rglob("*")]
    for canary in CANARIES:
        assert canary not in everything
        assert not any(canary in name for name in names)
    with store.engine.connect() as connection:
        for table in set(inspect(connection).get_table_names()) - PROTECTED:
            rows = str(connection.execute(text(f'SELECT * FROM "{table}"')).all())
            assert not any(canary in rows for canary in CANARIES), table
