"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go forward."""
    op.create_table(
        "login_failures",
        sa.Column("id", sa.String(length=24), nullable=False),
        sa.Column("key_sha256", sa.String(length=64), nullable=False),
        sa.Column("failed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("login_failures", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_login_failures_failed_at"), ["failed_at"], unique=False)
        batch_op.create_index("ix_login_failures_key_at", ["key_sha256", "failed_at"], unique=False)

    op.create_table(
        "mask_planes",
        sa.Column("mask_id", sa.String(length=24), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("slice_index", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("bits", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("mask_id", "segment", "slice_index", "version"),
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.String(length=24), nullable=False),
        sa.Column("name", sa.String(length=120), nullable=False),
        sa.Column("is_demo", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "users",
        sa.Column("id", sa.String(length=24), nullable=False),
        sa.Column("name", sa.String(length=120), nullable=False),
        sa.Column("display_name", sa.String(length=200), nullable=False),
        sa.Column("password_hash", sa.String(length=300), nullable=False),
        sa.Column("role", sa.String(length=20), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("is_sample", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "memberships",
        sa.Column("project_id", sa.String(length=24), nullable=False),
        sa.Column("user_id", sa.String(length=24), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("project_id", "user_id"),
    )
    with op.batch_alter_table("memberships", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_memberships_user_id"), ["user_id"], unique=False)

    op.create_table(
        "sessions",
        sa.Column("token_sha256", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=24), nullable=False),
        sa.Column("csrf_token", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("token_sha256"),
    )
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_sessions_expires_at"), ["expires_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_sessions_user_id"), ["user_id"], unique=False)

    op.create_table(
        "studies",
        sa.Column("id", sa.String(length=24), nullable=False),
        sa.Column("project_id", sa.String(length=24), nullable=False),
        sa.Column("study_key", sa.String(length=80), nullable=False),
        sa.Column("description", sa.String(length=200), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("project_id", "study_key"),
    )
    with op.batch_alter_table("studies", schema=None) as batch_op:
        batch_op.create_index("ix_studies_project_received", ["project_id", "received_at", "id"], unique=False)
        batch_op.create_index("ix_studies_received", ["received_at", "id"], unique=False)

    op.create_table(
        "uploads",
        sa.Column("id", sa.String(length=24), nullable=False),
        sa.Column("project_id", sa.String(length=24), nullable=False),
        sa.Column("user_id", sa.String(length=24), nullable=False),
        sa.Column("request_key", sa.String(length=80), nullable=False),
        sa.Column("stated_modality", sa.String(length=16), nullable=False),
        sa.Column("stated_description", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("message", sa.String(length=500), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("received_bytes", sa.BigInteger(), nullable=False),
        sa.Column("lease_owner", sa.String(length=80), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["users.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("user_id", "request_key"),
    )
    with op.batch_alter_table("uploads", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_uploads_project_id"), ["project_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_uploads_state"), ["state"], unique=False)

    op.create_table(
        "identities",
        sa.Column("study_id", sa.String(length=24), nullable=False),
        sa.Column("patient_name", sa.String(length=400), nullable=False),
        sa.Column("patient_id", sa.String(length=100), nullable=False),
        sa.Column("patient_birth_date", sa.String(length=20), nullable=False),
        sa.Column("patient_sex", sa.String(length=20), nullable=False),
        sa.Column("accession_number", sa.String(length=40), nullable=False),
        sa.Column("study_date", sa.String(length=20), nullable=False),
        sa.Column("source_name", sa.String(length=1000), nullable=False),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("study_id"),
    )
    op.create_table(
        "instances",
        sa.Column("id", sa.String(length=24), nullable=False),
        sa.Column("project_id", sa.String(length=24), nullable=False),
        sa.Column("study_id", sa.String(length=24), nullable=False),
        sa.Column("series_key", sa.String(length=80), nullable=False),
        sa.Column("sop_instance_uid", sa.String(length=80), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("header", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("project_id", "sop_instance_uid"),
    )
    with op.batch_alter_table("instances", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_instances_study_id"), ["study_id"], unique=False)
        batch_op.create_index("ix_instances_study_series", ["study_id", "series_key"], unique=False)

    op.create_table(
        "series",
        sa.Column("id", sa.String(length=24), nullable=False),
        sa.Column("study_id", sa.String(length=24), nullable=False),
        sa.Column("project_id", sa.String(length=24), nullable=False),
        sa.Column("series_key", sa.String(length=80), nullable=False),
        sa.Column("part", sa.String(length=120), nullable=False),
        sa.Column("modality", sa.String(length=16), nullable=False),
        sa.Column("description", sa.String(length=200), nullable=False),
        sa.Column("number", sa.Integer(), nullable=True),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("frame_count", sa.Integer(), nullable=False),
        sa.Column("layout", sa.JSON(), nullable=False),
        sa.Column("frames", sa.JSON(), nullable=False),
        sa.Column("auto_window", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("study_id", "series_key", "part"),
    )
    with op.batch_alter_table("series", schema=None) as batch_op:
        batch_op.create_index("ix_series_modality_project_study", ["modality", "project_id", "study_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_series_project_id"), ["project_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_series_study_id"), ["study_id"], unique=False)

    op.create_table(
        "decoded",
        sa.Column("instance_id", sa.String(length=24), nullable=False),
        sa.Column("frame_number", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["instance_id"], ["instances.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("instance_id", "frame_number"),
    )
    op.create_table(
        "mask_versions",
        sa.Column("id", sa.String(length=24), nullable=False),
        sa.Column("mask_id", sa.String(length=24), nullable=False),
        sa.Column("series_id", sa.String(length=24), nullable=False),
        sa.Column("project_id", sa.String(length=24), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("author", sa.JSON(), nullable=False),
        sa.Column("segments", sa.JSON(), nullable=False),
        sa.Column("voxels", sa.JSON(), nullable=False),
        sa.Column("is_resampled", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("request_key", sa.String(length=80), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"]),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("mask_id", "version"),
        sa.UniqueConstraint("series_id", "request_key"),
    )
    with op.batch_alter_table("mask_versions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_mask_versions_series_id"), ["series_id"], unique=False)

    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=24), nullable=False),
        sa.Column("series_id", sa.String(length=24), nullable=False),
        sa.Column("study_id", sa.String(length=24), nullable=False),
        sa.Column("project_id", sa.String(length=24), nullable=False),
        sa.Column("asked_by", sa.String(length=24), nullable=False),
        sa.Column("request_key", sa.String(length=80), nullable=False),
        sa.Column("question", sa.String(length=4000), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("frame_index", sa.Integer(), nullable=False),
        sa.Column("limits", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("stop_reason", sa.String(length=20), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("parent_run_id", sa.String(length=24), nullable=True),
        sa.Column("parent_sequence", sa.Integer(), nullable=True),
        sa.Column("correction", sa.JSON(), nullable=True),
        sa.Column("last_sequence", sa.Integer(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("lease_owner", sa.String(length=80), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["asked_by"],
            ["users.id"],
        ),
        sa.ForeignKeyConstraint(["parent_run_id"], ["runs.id"]),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"]),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"]),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("asked_by", "request_key"),
    )
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_runs_project_id"), ["project_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_runs_series_id"), ["series_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_runs_state"), ["state"], unique=False)
        batch_op.create_index(batch_op.f("ix_runs_study_id"), ["study_id"], unique=False)

    op.create_table(
        "thumbnails",
        sa.Column("series_id", sa.String(length=24), nullable=False),
        sa.Column("jpeg", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("series_id"),
    )
    op.create_table(
        "upload_files",
        sa.Column("id", sa.String(length=24), nullable=False),
        sa.Column("upload_id", sa.String(length=24), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=1000), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("code", sa.String(length=60), nullable=True),
        sa.Column("message", sa.String(length=500), nullable=True),
        sa.Column("instance_id", sa.String(length=24), nullable=True),
        sa.ForeignKeyConstraint(["instance_id"], ["instances.id"], ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["upload_id"], ["uploads.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("upload_id", "position"),
    )
    with op.batch_alter_table("upload_files", schema=None) as batch_op:
        batch_op.create_index("ix_upload_files_upload_state", ["upload_id", "state"], unique=False)

    op.create_table(
        "events",
        sa.Column("run_id", sa.String(length=24), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("parent", sa.Integer(), nullable=True),
        sa.Column("sampled", sa.Boolean(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"]),
        sa.PrimaryKeyConstraint("run_id", "sequence"),
    )
    op.create_table(
        "feedback",
        sa.Column("id", sa.String(length=24), nullable=False),
        sa.Column("run_id", sa.String(length=24), nullable=False),
        sa.Column("project_id", sa.String(length=24), nullable=False),
        sa.Column("user_id", sa.String(length=24), nullable=False),
        sa.Column("request_key", sa.String(length=80), nullable=False),
        sa.Column("target", sa.String(length=10), nullable=False),
        sa.Column("verdict", sa.String(length=10), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=True),
        sa.Column("mask_version_id", sa.String(length=24), nullable=True),
        sa.Column("correction", sa.JSON(), nullable=False),
        sa.Column("comment", sa.String(length=4000), nullable=False),
        sa.Column("marks", sa.JSON(), nullable=False),
        sa.Column("seconds_spent", sa.Double(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["mask_version_id"],
            ["mask_versions.id"],
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"]),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"]),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["users.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("user_id", "request_key"),
    )
    with op.batch_alter_table("feedback", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_feedback_project_id"), ["project_id"], unique=False)
        batch_op.create_index("ix_feedback_run_sequence", ["run_id", "sequence"], unique=False)


def downgrade() -> None:
    """Go back."""
    with op.batch_alter_table("feedback", schema=None) as batch_op:
        batch_op.drop_index("ix_feedback_run_sequence")
        batch_op.drop_index(batch_op.f("ix_feedback_project_id"))

    op.drop_table("feedback")
    op.drop_table("events")
    with op.batch_alter_table("upload_files", schema=None) as batch_op:
        batch_op.drop_index("ix_upload_files_upload_state")

    op.drop_table("upload_files")
    op.drop_table("thumbnails")
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_runs_study_id"))
        batch_op.drop_index(batch_op.f("ix_runs_state"))
        batch_op.drop_index(batch_op.f("ix_runs_series_id"))
        batch_op.drop_index(batch_op.f("ix_runs_project_id"))

    op.drop_table("runs")
    with op.batch_alter_table("mask_versions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_mask_versions_series_id"))

    op.drop_table("mask_versions")
    op.drop_table("decoded")
    with op.batch_alter_table("series", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_series_study_id"))
        batch_op.drop_index(batch_op.f("ix_series_project_id"))
        batch_op.drop_index("ix_series_modality_project_study")

    op.drop_table("series")
    with op.batch_alter_table("instances", schema=None) as batch_op:
        batch_op.drop_index("ix_instances_study_series")
        batch_op.drop_index(batch_op.f("ix_instances_study_id"))

    op.drop_table("instances")
    op.drop_table("identities")
    with op.batch_alter_table("uploads", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_uploads_state"))
        batch_op.drop_index(batch_op.f("ix_uploads_project_id"))

    op.drop_table("uploads")
    with op.batch_alter_table("studies", schema=None) as batch_op:
        batch_op.drop_index("ix_studies_received")
        batch_op.drop_index("ix_studies_project_received")

    op.drop_table("studies")
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_sessions_user_id"))
        batch_op.drop_index(batch_op.f("ix_sessions_expires_at"))

    op.drop_table("sessions")
    with op.batch_alter_table("memberships", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_memberships_user_id"))

    op.drop_table("memberships")
    op.drop_table("users")
    op.drop_table("projects")
    op.drop_table("mask_planes")
    with op.batch_alter_table("login_failures", schema=None) as batch_op:
        batch_op.drop_index("ix_login_failures_key_at")
        batch_op.drop_index(batch_op.f("ix_login_failures_failed_at"))

    op.drop_table("login_failures")
