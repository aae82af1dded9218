"""Every setting, read once from the environment and `.env`, handed down from there."""

import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from backend.domain.errors import Misconfigured

MIB = 1024 * 1024
GIB = 1024 * MIB


class Settings(BaseSettings):
    """Read in the entry points; nothing else reads the environment."""

    model_config = SettingsConfigDict(env_prefix="SERPENS_", env_file=".env", frozen=True, extra="ignore")

    home: Path = Field(Path("var"), description="Database, blobs and queue live here; its owner alone may read it")
    host: str = Field("127.0.0.1", description="Address that the web process binds")
    port: int = Field(7860, ge=0, le=65535, description="Its port; 0 takes a free one")
    public_origins: tuple[str, ...] = Field(
        (),
        description='Further origins that the browser may come from, as a JSON list, for a reverse proxy: ["https://serpens.example"]',
    )
    trusted_proxies: tuple[str, ...] = Field(
        (), description="Addresses of reverse proxies whose X-Forwarded-For is believed, as a JSON list"
    )
    demo: bool = Field(False, description="Sample users with known passwords; loopback only")

    database_url: str | None = Field(None, description="SQLite in `home` unless set")
    broker_url: str | None = Field(None, description="kombu's sqla+sqlite in `home` unless set; or redis://")

    session_hours: float = Field(12, gt=0, description="A session ends this long after signing in")
    session_idle_minutes: float = Field(60, gt=0, description="A session ends this long after its last request")
    login_attempts: int = Field(8, gt=0, description="Failed logins for one name or one address before a pause")
    login_window_s: float = Field(300, gt=0, description="How long a failed login counts")

    max_upload_bytes: int = Field(8 * GIB, gt=0, description="One upload, archives counted as unpacked")
    max_upload_files: int = Field(50_000, gt=0, description="Files of one upload, those in archives counted")
    max_file_bytes: int = Field(4 * GIB, gt=0, description="One file, or what it unpacks to")
    max_frame_bytes: int = Field(512 * MIB, gt=0, description="One decoded frame")
    ingest_batch_s: float = Field(20, gt=0, lt=60, description="One Celery task of ingest; the next goes on from there")
    lease_s: float = Field(60, gt=0, description="How long work is held by a process that has stopped talking")

    segmenter_url: str | None = Field(None, description="A segmenter elsewhere; unset: the one at segmenter_port here")
    segmenter_host: str = Field("127.0.0.1", description="Address that the segmenter process binds")
    segmenter_port: int = Field(7861, ge=0, le=65535, description="Its port")
    segmenter_token: SecretStr | None = Field(
        None, min_length=16, description="Shared with the segmenter; unset: made in `home` on first use"
    )
    segmenter_timeout_s: float = Field(60, gt=0, description="One prompt, waiting included")
    segmenter_queue: int = Field(16, gt=0, description="Prompts that wait or run at once; more are refused")
    segmenter_max_picture_bytes: int = Field(256 * MIB, gt=0, description="One picture with its values")
    segmenter_cache_bytes: int = Field(GIB, gt=0, description="Pictures that the segmenter holds in memory")

    policy_url: str | None = Field(
        None, description="An OpenAI-compatible server, up to and including /v1; unset: the demonstration policy"
    )
    policy_model: str = Field("", description="The name under which that server serves the model")
    policy_api_key: SecretStr = Field(SecretStr(""), description="Sent to that server alone")
    policy_coordinates: Literal["pixels", "thousandths"] = Field(
        "pixels", description="The space of the model's boxes: of the picture it saw, or 0 to 1000"
    )
    runner_threads: int = Field(4, gt=0, description="Agent runs that a runner works on at a time")

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

    def make_home(self) -> None:
        """Make `home` where it is missing, and keep everybody but its owner out: patient data and keys lie there.

        Every process does this before it writes there, as each may be started by itself.

        Raises:
            Misconfigured: If others may enter it and it is not ours to close, or it is a folder that all share (/tmp).
        """
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = stat.S_IMODE(self.home.stat().st_mode)
        if mode & 0o077 == 0:
            return
        if mode & stat.S_ISVTX:
            raise Misconfigured("SERPENS_HOME is a folder that all users share; name one inside it")
        try:
            self.home.chmod(0o700)
        except PermissionError as error:
            raise Misconfigured(
                f"the folder of SERPENS_HOME may be entered by others (mode {mode:04o}) and belongs to another user; "
                "make it this user's, with mode 0700"
            ) from error

    @property
    def segmenter(self) -> str:
        """Where the segmenter answers."""
        return self.segmenter_url or f"http://127.0.0.1:{self.segmenter_port}"

    def segmenter_secret(self) -> str:
        """The token of every call to the segmenter: the one that is set, else the one in `home`, made on first use."""
        if self.segmenter_token is not None:
            return self.segmenter_token.get_secret_value()
        self.make_home()
        return _kept_secret(self.segmenter_secret_path)

    @property
    def segmenter_secret_path(self) -> Path:
        """Where the token lies that was made on first use."""
        return self.home / "segmenter.token"


def _kept_secret(path: Path) -> str:
    """A secret of 32 random bytes in a file that only its owner reads. Two processes that make it at once agree."""
    if not path.exists():
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(32), encoding="ascii")
        # A link, unlike a rename, leaves a file as it is that another process made meanwhile.
        with suppress(FileExistsError):
            path.hardlink_to(draft)
        draft.unlink()
    return path.read_text(encoding="ascii")
