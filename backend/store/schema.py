"""Brings a database to the newest revision of `migrations`, from the command line and at the start of `serpens run`."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import structlog
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError

from backend.domain.errors import Misconfigured
from backend.store.repository import open_engine

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SchemaState:
    """Which revision a database is at and which one this version of Serpens needs; None is an empty database."""

    current: str | None
    head: str

    @property
    def is_current(self) -> bool:
        """Whether there is nothing to do."""
        return self.current == self.head


def schema_state(database_url: str) -> SchemaState:
    """Look, and change nothing.

    Raises:
        Misconfigured: If the database does not answer.
    """
    engine = open_engine(database_url)
    try:
        return SchemaState(_current(engine), _head())
    finally:
        engine.dispose()


def upgrade(database_url: str) -> SchemaState:
    """Make every missing table and column; does nothing where there is nothing to do, whoever else does it too.

    The revisions run in one transaction under a lock (`migrations/env.py`), so a second process waits and then finds
    the work done, and a process that is killed leaves the schema as it was.

    Raises:
        Misconfigured: If the database does not answer, or is at a revision that this version does not know.
    """
    engine = open_engine(database_url)
    try:
        current, head = _current(engine), _head()
        if current != head:
            _require_known(current)
            command.upgrade(_config(engine), "head")
            log.info("schema_upgraded", before=current, after=head)
        return SchemaState(_current(engine), head)
    finally:
        engine.dispose()


def make_revision(database_url: str, message: str) -> None:
    """Write the revision that brings a database at the newest revision to what `tables` says. For developers."""
    engine = open_engine(database_url)
    try:
        config = _config(engine)
        number = len(list(ScriptDirectory.from_config(config).walk_revisions())) + 1
        command.revision(config, message, autogenerate=True, rev_id=f"{number:04d}")
    finally:
        engine.dispose()


def _config(engine: Engine | None = None) -> Config:
    spec = importlib.util.find_spec("migrations")
    if spec is None or spec.origin is None:
        raise Misconfigured("the folder `migrations` is not installed beside `backend`")
    config = Config()
    config.set_main_option("script_location", str(Path(spec.origin).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["engine"] = engine
    return config


def _head() -> str:
    head = ScriptDirectory.from_config(_config()).get_current_head()
    if head is None:
        raise Misconfigured("the folder `migrations` holds no revision")
    return head


def _current(engine: Engine) -> str | None:
    try:
        with engine.connect().execution_options(read_only=True) as connection:
            return MigrationContext.configure(connection).get_current_revision()
    except OperationalError as error:
        place = engine.url.render_as_string(hide_password=True)
        raise Misconfigured(f"the database {place} does not answer; SERPENS_DATABASE_URL names it") from error


def _require_known(revision: str | None) -> None:
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if revision is not None and revision not in known:
        raise Misconfigured(
            f"the database is at revision {revision}, which this version of Serpens does not know: "
            "it was opened by a newer one. Install that version, or restore a backup."
        )
