"""What several repositories need of SQL: inserts that leave taken keys alone, and text that every database takes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from sqlalchemy import ColumnElement, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionInTime
from sqlalchemy.orm import InstrumentedAttribute, Session

from backend.store.tables import Base

# SQLite binds 32,766 values in one statement; a list of keys is asked for in pieces far below that.
KEYS_AT_ONCE = 1_000

_Item = TypeVar("_Item")


def insert_new(session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows and leave out, silently, those whose unique key is taken.

    On PostgreSQL this waits for another transaction that is inserting the same key. Callers sort their rows by that
    key, so that two of them wait for each other in one order only.
    """
    if not rows:
        return
    values = [dict(row) for row in rows]
    into = columns_of(table)
    if session.get_bind().dialect.name == "postgresql":
        session.execute(postgresql.insert(into).on_conflict_do_nothing(), values)
    else:
        session.execute(sqlite.insert(into).on_conflict_do_nothing(), values)


def insert(session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows whose keys are free."""
    if rows:
        session.execute(columns_of(table).insert(), [dict(row) for row in rows])


def columns_of(table: type[Base]) -> Table:
    """The table itself: inserting many rows through it makes no objects of them."""
    return cast(Table, table.__table__)


def in_pieces(items: Iterable[_Item], size: int = KEYS_AT_ONCE) -> Iterator[list[_Item]]:
    """The items in lists of at most `size`."""
    piece: list[_Item] = []
    for item in items:
        piece.append(item)
        if len(piece) == size:
            yield piece
            piece = []
    if piece:
        yield piece


def storable(text: str, limit: int) -> str:
    """The text as a column of `limit` characters takes it.

    PostgreSQL takes no NUL and no half of a surrogate pair; file names and broken headers hold both.
    """
    return text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")[:limit]


def contains(session: Session, column: InstrumentedAttribute[str], text: str) -> ColumnElement[bool]:
    """Whether a column holds the text anywhere, in upper or lower case; `%` and `_` in it stand for themselves."""
    pattern = "%" + text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    if session.get_bind().dialect.name == "postgresql":
        return column.ilike(pattern, escape="\\")
    # SQLite's LIKE ignores the case of ASCII by itself; what SQLAlchemy writes for ilike lowers every row first.
    return column.like(pattern, escape="\\")


def is_transient(error: Exception) -> bool:
    """Whether the database was not to be had, and the same work may succeed at the next try.

    A value or a statement that it does not take (DataError, ProgrammingError) is refused at every try.
    """
    return isinstance(error, (OperationalError, InterfaceError, NoConnectionInTime))
