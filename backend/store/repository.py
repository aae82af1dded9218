"""The database as transactions over repositories. A service opens one, and it commits once or not at all."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from backend.store.accounts import Accounts
from backend.store.masks import Masks
from backend.store.reviews import Reviews
from backend.store.runs import Runs
from backend.store.studies import Studies
from backend.store.uploads import Uploads

SQLITE_BUSY_TIMEOUT_MS = 30_000
# Thousands of headers go through JSON in one ingest; the standard library takes five times as long for them. What is
# no number becomes null, as JSON has no NaN and PostgreSQL refuses it.
_JSON: dict[str, Any] = {
    "json_serializer": lambda value: orjson.dumps(value).decode(),
    "json_deserializer": orjson.loads,
}


def new_id() -> str:
    """A random identifier of ours: it says nothing about what it names, so it may stand in URLs and logs."""
    return secrets.token_hex(10)


class Transaction:
    """One unit of work. What `after_commit` is given runs once the rows are really there (casebook C58)."""

    def __init__(self, session: Session) -> None:
        self.accounts = Accounts(session)
        self.studies = Studies(session)
        self.uploads = Uploads(session)
        self.runs = Runs(session)
        self.masks = Masks(session)
        self.reviews = Reviews(session)
        self._after_commit: list[Callable[[], object]] = []

    def after_commit(self, action: Callable[[], object]) -> None:
        """Do this when the transaction has committed; never when it rolled back."""
        self._after_commit.append(action)

    def run_after_commit(self) -> None:
        """Called by the store alone."""
        for action in self._after_commit:
            action()


class Store:
    """Opens transactions on one database."""

    def __init__(self, database_url: str) -> None:
        self.engine = open_engine(database_url)

    @contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[Transaction]:
        """Commit on leaving, roll back on an exception.

        Args:
            read_only: A promise to write nothing: on SQLite it takes no write lock and waits for no writer.
        """
        engine = self.engine.execution_options(read_only=True) if read_only else self.engine
        with Session(engine, expire_on_commit=False) as session:
            tx = Transaction(session)
            with session.begin():
                yield tx
        tx.run_after_commit()

    def close(self) -> None:
        """Give the connections back."""
        self.engine.dispose()


def open_engine(database_url: str) -> Engine:
    """An engine whose SQLite waits for its turn instead of failing (WAL, busy timeout, write lock taken at BEGIN).

    Without BEGIN IMMEDIATE a transaction that reads first and writes later fails at once with "database is locked",
    whatever the timeout (casebook C57).
    """
    if not database_url.startswith("sqlite"):
        return create_engine(database_url, pool_pre_ping=True, pool_size=10, max_overflow=20, **_JSON)
    engine = create_engine(database_url, connect_args={"check_same_thread": False}, **_JSON)

    @event.listens_for(engine, "connect")
    def set_pragmas(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # pysqlite would begin by itself, and later than we want
        cursor = connection.cursor()
        for pragma in (
            "journal_mode=WAL",
            "synchronous=NORMAL",
            "foreign_keys=ON",
            f"busy_timeout={SQLITE_BUSY_TIMEOUT_MS}",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql(
            "BEGIN IMMEDIATE" if not connection.get_execution_options().get("read_only") else "BEGIN"
        )

    return engine
