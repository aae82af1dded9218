"""The rows. `migrations` brings a database to this shape; a test holds the two equal on SQLite and PostgreSQL."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    ForeignKey,
    Index,
    LargeBinary,
    String,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

ID = String(24)
SHA256 = String(64)


class UtcDateTime(TypeDecorator[datetime]):
    """An instant in UTC on every database; SQLite forgets the zone, so it is put back when read."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse a time without a zone."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a stored time needs its zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Give the zone back."""
        return None if value is None else value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """All tables of Serpens."""

    type_annotation_map = {dict[str, Any]: JSON, list[Any]: JSON, datetime: UtcDateTime}  # noqa: RUF012


class UserRow(Base):
    """A person who may sign in."""

    __tablename__ = "users"

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    name: Mapped[str] = mapped_column(String(120), unique=True)
    display_name: Mapped[str] = mapped_column(String(200))
    password_hash: Mapped[str] = mapped_column(String(300))
    role: Mapped[str] = mapped_column(String(20))
    is_active: Mapped[bool]
    is_sample: Mapped[bool]
    created_at: Mapped[datetime]


class SessionRow(Base):
    """A signed-in browser or program. The token itself is not stored."""

    __tablename__ = "sessions"

    token_sha256: Mapped[str] = mapped_column(SHA256, primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    csrf_token: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime]
    seen_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)


class LoginFailureRow(Base):
    """One failed login, kept as long as it counts. The key is a hash of an account's name or of an address."""

    __tablename__ = "login_failures"

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    key_sha256: Mapped[str] = mapped_column(SHA256)
    failed_at: Mapped[datetime] = mapped_column(index=True)

    __table_args__ = (Index("ix_login_failures_key_at", "key_sha256", "failed_at"),)


class ProjectRow(Base):
    """What studies belong to and people are members of."""

    __tablename__ = "projects"

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    name: Mapped[str] = mapped_column(String(120), unique=True)
    is_demo: Mapped[bool]
    created_at: Mapped[datetime]


class MembershipRow(Base):
    """A person in a project."""

    __tablename__ = "memberships"

    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True, index=True)


class StudyRow(Base):
    """A study in one project. `study_key` is its Study Instance UID, or a hash of the bytes where a file has none."""

    __tablename__ = "studies"

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id", ondelete="CASCADE"))
    study_key: Mapped[str] = mapped_column(String(80))
    description: Mapped[str] = mapped_column(String(200))
    received_at: Mapped[datetime]

    __table_args__ = (
        UniqueConstraint("project_id", "study_key"),
        Index("ix_studies_project_received", "project_id", "received_at", "id"),
        Index("ix_studies_received", "received_at", "id"),
    )


class IdentityRow(Base):
    """The protected table: whose study it is and when it was made. Nothing else holds these values."""

    __tablename__ = "identities"

    study_id: Mapped[str] = mapped_column(ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True)
    patient_name: Mapped[str] = mapped_column(String(400))
    patient_id: Mapped[str] = mapped_column(String(100))
    patient_birth_date: Mapped[str] = mapped_column(String(20))
    patient_sex: Mapped[str] = mapped_column(String(20))
    accession_number: Mapped[str] = mapped_column(String(40))
    study_date: Mapped[str] = mapped_column(String(20))
    # The sender's name of a file that says nothing of itself (NIfTI, a picture).
    source_name: Mapped[str] = mapped_column(String(1000))


class SeriesRow(Base):
    """One grid of frames. A DICOM Series gives one or several: `series_key` is its UID, `part` tells them apart.

    `layout` is the series without its frames and `frames` are the frames, both as `backend.store.studies` writes them;
    `auto_window` is made of the first decoded frame where the file has no window.
    """

    __tablename__ = "series"

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    study_id: Mapped[str] = mapped_column(ForeignKey("studies.id", ondelete="CASCADE"), index=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id", ondelete="CASCADE"), index=True)
    series_key: Mapped[str] = mapped_column(String(80))
    part: Mapped[str] = mapped_column(String(120))
    modality: Mapped[str] = mapped_column(String(16))
    description: Mapped[str] = mapped_column(String(200))
    number: Mapped[int | None]
    kind: Mapped[str] = mapped_column(String(20))
    frame_count: Mapped[int]
    layout: Mapped[dict[str, Any]]
    frames: Mapped[list[Any]]
    auto_window: Mapped[dict[str, Any] | None]

    __table_args__ = (
        UniqueConstraint("study_id", "series_key", "part"),
        # The worklist filters by modality without reading the layouts.
        Index("ix_series_modality_project_study", "modality", "project_id", "study_id"),
    )


class InstanceRow(Base):
    """One stored object: a DICOM instance, a NIfTI file or a picture. Its original lies byte for byte in the blobs.

    `sop_instance_uid` is the file's own, or `sha256:` and the hash of its bytes where it is not DICOM. `header` holds
    the facts that geometry and decoding need and no identifying attribute.
    """

    __tablename__ = "instances"

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id", ondelete="CASCADE"))
    study_id: Mapped[str] = mapped_column(ForeignKey("studies.id", ondelete="CASCADE"), index=True)
    series_key: Mapped[str] = mapped_column(String(80))
    sop_instance_uid: Mapped[str] = mapped_column(String(80))
    sha256: Mapped[str] = mapped_column(SHA256)
    size: Mapped[int] = mapped_column(BigInteger)
    header: Mapped[dict[str, Any]]

    __table_args__ = (
        UniqueConstraint("project_id", "sop_instance_uid"),
        Index("ix_instances_study_series", "study_id", "series_key"),
    )


class DecodedRow(Base):
    """The stored values of one compressed frame, or of a whole NIfTI, decoded once and kept as a blob."""

    __tablename__ = "decoded"

    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id", ondelete="CASCADE"), primary_key=True)
    frame_number: Mapped[int] = mapped_column(primary_key=True)
    sha256: Mapped[str] = mapped_column(SHA256)


class ThumbnailRow(Base):
    """A small JPEG of a series' middle frame, made once."""

    __tablename__ = "thumbnails"

    series_id: Mapped[str] = mapped_column(ForeignKey("series.id", ondelete="CASCADE"), primary_key=True)
    jpeg: Mapped[bytes] = mapped_column(LargeBinary)


class UploadRow(Base):
    """Files that came together. The row is the truth about the work; the broker only wakes a worker."""

    __tablename__ = "uploads"

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id", ondelete="CASCADE"), index=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    # The sender's idempotency key: a retried request finds the upload that it made before.
    request_key: Mapped[str] = mapped_column(String(80))
    # What the sender says of files that name no modality themselves (NIfTI, pictures); "" is unknown.
    stated_modality: Mapped[str] = mapped_column(String(16))
    stated_description: Mapped[str] = mapped_column(String(200))
    state: Mapped[str] = mapped_column(String(20), index=True)
    message: Mapped[str | None] = mapped_column(String(500))
    created_at: Mapped[datetime]
    received_bytes: Mapped[int] = mapped_column(BigInteger)
    lease_owner: Mapped[str | None] = mapped_column(String(80))
    lease_until: Mapped[datetime | None]
    attempts: Mapped[int]

    __table_args__ = (UniqueConstraint("user_id", "request_key"),)


class UploadFileRow(Base):
    """One file of an upload. `name` is the sender's and may name a patient: it is shown to members and never logged."""

    __tablename__ = "upload_files"

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    upload_id: Mapped[str] = mapped_column(ForeignKey("uploads.id", ondelete="CASCADE"))
    position: Mapped[int]
    name: Mapped[str] = mapped_column(String(1000))
    sha256: Mapped[str | None] = mapped_column(SHA256)
    size: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(20))
    code: Mapped[str | None] = mapped_column(String(60))
    message: Mapped[str | None] = mapped_column(String(500))
    instance_id: Mapped[str | None] = mapped_column(ForeignKey("instances.id", ondelete="SET NULL"))

    __table_args__ = (
        Index("ix_upload_files_upload_state", "upload_id", "state"),
        UniqueConstraint("upload_id", "position"),
    )


class RunRow(Base):
    """One question to one policy about one series. The row is leased by a runner; `last_sequence` counts its events.

    From here on no foreign key cascades: a series with runs, masks or judgements on it cannot be deleted under them.
    """

    __tablename__ = "runs"

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    series_id: Mapped[str] = mapped_column(ForeignKey("series.id"), index=True)
    study_id: Mapped[str] = mapped_column(ForeignKey("studies.id"), index=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    asked_by: Mapped[str] = mapped_column(ForeignKey("users.id"))
    request_key: Mapped[str] = mapped_column(String(80))
    question: Mapped[str] = mapped_column(String(4000))
    options: Mapped[list[Any]]
    frame_index: Mapped[int]
    limits: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(String(20), index=True)
    stop_reason: Mapped[str | None] = mapped_column(String(20))
    created_at: Mapped[datetime]
    parent_run_id: Mapped[str | None] = mapped_column(ForeignKey("runs.id"))
    parent_sequence: Mapped[int | None]
    correction: Mapped[dict[str, Any] | None]
    last_sequence: Mapped[int]
    cancel_requested: Mapped[bool]
    lease_owner: Mapped[str | None] = mapped_column(String(80))
    lease_until: Mapped[datetime | None]
    attempts: Mapped[int]

    __table_args__ = (UniqueConstraint("asked_by", "request_key"),)


class EventRow(Base):
    """One event of a run; the pair of run and sequence is its name, so nothing is stored twice and nothing skipped."""

    __tablename__ = "events"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    parent: Mapped[int | None]
    sampled: Mapped[bool]
    payload: Mapped[dict[str, Any]]


class MaskVersionRow(Base):
    """One immutable version of the mask `mask_id`; the unique pair refuses a second save on one base."""

    __tablename__ = "mask_versions"

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    mask_id: Mapped[str] = mapped_column(ID)
    series_id: Mapped[str] = mapped_column(ForeignKey("series.id"), index=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    version: Mapped[int]
    author: Mapped[dict[str, Any]]
    segments: Mapped[list[Any]]
    voxels: Mapped[dict[str, Any]]
    is_resampled: Mapped[bool]
    created_at: Mapped[datetime]
    request_key: Mapped[str] = mapped_column(String(80))

    __table_args__ = (UniqueConstraint("mask_id", "version"), UniqueConstraint("series_id", "request_key"))


class MaskPlaneRow(Base):
    """The bits of one segment on one stored slice as of one version. A version takes what it did not change from the
    newest earlier one, so an edit of one slice stores one plane. Empty bits say that the slice was cleared.
    """

    __tablename__ = "mask_planes"

    mask_id: Mapped[str] = mapped_column(ID, primary_key=True)
    segment: Mapped[int] = mapped_column(primary_key=True)
    slice_index: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    bits: Mapped[bytes] = mapped_column(LargeBinary)


class FeedbackRow(Base):
    """One judgement. Rows are only ever added."""

    __tablename__ = "feedback"

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"))
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    request_key: Mapped[str] = mapped_column(String(80))
    target: Mapped[str] = mapped_column(String(10))
    verdict: Mapped[str] = mapped_column(String(10))
    sequence: Mapped[int | None]
    mask_version_id: Mapped[str | None] = mapped_column(ForeignKey("mask_versions.id"))
    correction: Mapped[dict[str, Any]]
    comment: Mapped[str] = mapped_column(String(4000))
    marks: Mapped[dict[str, Any]]
    seconds_spent: Mapped[float | None]
    created_at: Mapped[datetime]

    __table_args__ = (
        UniqueConstraint("user_id", "request_key"),
        Index("ix_feedback_run_sequence", "run_id", "sequence"),
    )
