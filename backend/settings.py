"""Every setting, read once from the environment and `.env`, handed down from there."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

MIB = 1024 * 1024
GIB = 1024 * MIB


class Settings(BaseSettings):
    """Read in the entry points; nothing else reads the environment."""

    model_config = SettingsConfigDict(env_prefix="SERPENS_", env_file=".env", frozen=True, extra="ignore")

    home: Path = Field(Path("var"), description="Database, blobs, queue and logs live here")
    host: str = Field("127.0.0.1", description="Address that the web process binds")
    port: int = Field(7860, ge=0, le=65535)
    public_origins: tuple[str, ...] = Field(
        (), description="Further origins that the browser may come from, as a JSON list, for a reverse proxy: [\"https://serpens.example\"]"
    )
    demo: bool = Field(False, description="Sample users with known passwords; loopback only")

    database_url: str | None = Field(None, description="SQLite in `home` unless set")
    broker_url: str | None = Field(None, description="kombu's sqla+sqlite in `home` unless set; or redis://")

    session_hours: float = Field(12, gt=0)
    session_idle_minutes: float = Field(60, gt=0)
    login_attempts: int = Field(8, gt=0, description="Failed logins for one name or one address before a pause")
    login_window_s: float = Field(300, gt=0)

    max_upload_bytes: int = Field(8 * GIB, gt=0, description="One upload, archives counted as unpacked")
    max_upload_files: int = Field(50_000, gt=0)
    max_file_bytes: int = Field(4 * GIB, gt=0, description="One file, or what it unpacks to")
    max_frame_bytes: int = Field(512 * MIB, gt=0, description="One decoded frame")
    ingest_batch_s: float = Field(20, gt=0, lt=60, description="One Celery task of ingest; the next goes on from there")
    lease_s: float = Field(60, gt=0, description="How long work is held by a process that has stopped talking")

    log_json: bool = Field(False, description="JSON lines instead of text")

    @property
    def database(self) -> str:
        """The database's SQLAlchemy URL."""
        return self.database_url or f"sqlite:///{self.home.resolve() / 'serpens.db'}"

    @property
    def broker(self) -> str:
        """The broker's kombu URL; the embedded one has a file of its own."""
        return self.broker_url or f"sqla+sqlite:///{self.home.resolve() / 'queue.db'}"

    @property
    def blobs(self) -> Path:
        """Where the directory blobs live."""
        return self.home / "blobs"
