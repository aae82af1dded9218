"""Uploads: open, send files, finish, look. `POST /api/studies` is the three in one, for programs."""

from typing import Annotated, Any

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from backend.api.deps import CurrentActor, CurrentServices, requires
from backend.api.multipart import read_form
from backend.domain.access import Actor, Permission
from backend.domain.errors import InvalidRequest, UploadTooLarge
from backend.domain.study import Upload, UploadState
from backend.services import uploads
from backend.services.context import Services
from backend.store.repository import new_id

SMALL_BODY = 16 * 1024

router = APIRouter(tags=["uploads"])

_UPLOAD = [requires(Permission.UPLOAD_STUDIES)]


class NewUpload(BaseModel):
    """What is said of files before they come. `request_key` makes the request safe to send again."""

    model_config = ConfigDict(extra="forbid")

    project_id: Annotated[str, Field(min_length=1, max_length=24)]
    request_key: Annotated[str, Field(min_length=1, max_length=80)]
    stated_modality: Annotated[str, Field(max_length=16)] = ""
    stated_description: Annotated[str, Field(max_length=200)] = ""


def upload_json(upload: Upload) -> dict[str, Any]:
    """An upload."""
    return {
        "id": upload.id,
        "project_id": upload.project_id,
        "state": upload.state.value,
        "created_at": upload.created_at.isoformat(),
        "received_bytes": upload.received_bytes,
        "counts": {state.value: count for state, count in upload.counts.items()},
        "study_ids": list(upload.study_ids),
        "problems": [
            {"name": file.name, "state": file.state.value, "code": file.code, "message": file.message}
            for file in upload.problems
        ],
        "message": upload.message,
    }


@router.post("/api/uploads", status_code=201, dependencies=_UPLOAD, max_body_size=SMALL_BODY)
def open_upload(body: NewUpload, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """Open an upload, or find the one that this key opened before."""
    opened = uploads.open_upload(
        actor,
        body.project_id,
        request_key=body.request_key,
        stated_modality=body.stated_modality,
        stated_description=body.stated_description,
        store=services.store,
        clock=services.clock,
    )
    return upload_json(opened)


@router.post("/api/uploads/{upload_id}/files", dependencies=_UPLOAD)
async def receive_files(
    upload_id: str, request: Request, actor: CurrentActor, services: CurrentServices
) -> dict[str, Any]:
    """Files as multipart/form-data, any number, each with its path as file name; streamed to disk."""
    receiver = await run_sync(lambda: _receiver(actor, upload_id, services))
    try:
        await read_form(request, _FilesOnly(receiver))
    finally:
        # Also when the sender hung up: the files that came whole stay.
        with anyio.CancelScope(shield=True):
            await run_sync(receiver.close)
    return {
        "received": [{"name": file.name, "size": file.size} for file in receiver.received],
        "refused": [{"name": file.name, "code": file.code, "message": file.message} for file in receiver.refused],
    }


@router.post("/api/uploads/{upload_id}/finish", status_code=202, dependencies=_UPLOAD, max_body_size=SMALL_BODY)
def finish(upload_id: str, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """No more files come: the upload is queued. Finishing twice changes nothing."""
    finished = uploads.finish_receiving(
        actor, upload_id, store=services.store, queue=services.queue, clock=services.clock
    )
    return upload_json(finished)


@router.get("/api/uploads/{upload_id}", dependencies=_UPLOAD)
def show_upload(upload_id: str, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """How far an upload is."""
    return upload_json(uploads.upload_status(actor, upload_id, store=services.store))


@router.post("/api/studies", status_code=202, dependencies=_UPLOAD)
async def post_studies(request: Request, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """Open, send and finish in one form: `project_id` before the files; `request_key`, `stated_...` if wanted."""
    form = _WholeUpload(actor, services)
    try:
        await read_form(request, form)
    finally:
        with anyio.CancelScope(shield=True):
            await run_sync(form.close)
    return upload_json(await run_sync(form.finish))


def _receiver(actor: Actor, upload_id: str, services: Services) -> uploads.Receiver:
    return uploads.open_receiver(
        actor, upload_id, store=services.store, blobs=services.blobs, settings=services.settings
    )


class _FilesOnly:
    """A form whose plain fields mean nothing."""

    def __init__(self, receiver: uploads.Receiver) -> None:
        self.open_file, self.write, self.close_file = receiver.open_file, receiver.write, receiver.close_file

    def take_field(self, name: str, value: str) -> None:
        """Nothing to do with it."""


class _WholeUpload:
    """A form that opens an upload with its fields and fills it with its files.

    Where the request key is that of an upload that is closed already, this is a repetition: its files are read past.
    """

    def __init__(self, actor: Actor, services: Services) -> None:
        self._actor, self._services = actor, services
        self._fields: dict[str, str] = {}
        self._upload: Upload | None = None
        self._receiver: uploads.Receiver | None = None
        self._bytes_past = 0

    def take_field(self, name: str, value: str) -> None:
        """A field; the upload is opened at the first file, so what stands behind it comes too late."""
        if name not in NewUpload.model_fields:
            raise InvalidRequest(f"the form has the fields {', '.join(NewUpload.model_fields)} and files")
        if self._upload is not None:
            raise InvalidRequest("the form's fields stand before its files")
        self._fields[name] = value

    def open_file(self, name: str) -> None:
        """A file begins."""
        self._open()
        if self._receiver is not None:
            self._receiver.open_file(name)

    def write(self, data: bytes) -> None:
        """Bytes of a file."""
        if self._receiver is not None:
            self._receiver.write(data)
            return
        self._bytes_past += len(data)
        if self._bytes_past > self._services.settings.max_upload_bytes:
            raise UploadTooLarge(f"an upload has at most {self._services.settings.max_upload_bytes} bytes")

    def close_file(self) -> None:
        """A file is complete."""
        if self._receiver is not None:
            self._receiver.close_file()

    def close(self) -> None:
        """Keep what is complete."""
        if self._receiver is not None:
            self._receiver.close()

    def finish(self) -> Upload:
        """Queue the upload."""
        upload = self._open()
        return uploads.finish_receiving(
            self._actor, upload.id, store=self._services.store, queue=self._services.queue, clock=self._services.clock
        )

    def _open(self) -> Upload:
        if self._upload is None:
            if "project_id" not in self._fields:
                raise InvalidRequest("the form needs the field project_id before its files")
            self._upload = uploads.open_upload(
                self._actor,
                self._fields["project_id"],
                request_key=self._fields.get("request_key") or new_id(),
                stated_modality=self._fields.get("stated_modality", ""),
                stated_description=self._fields.get("stated_description", ""),
                store=self._services.store,
                clock=self._services.clock,
            )
            if self._upload.state is UploadState.RECEIVING:
                self._receiver = _receiver(self._actor, self._upload.id, self._services)
        return self._upload
