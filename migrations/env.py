"""Runs the revisions in one transaction under a lock. `backend.store.schema` hands the engine over.

The lock makes two processes that start at once take turns: the second waits, and then finds the work done.
"""

from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext
from sqlalchemy import text
from sqlalchemy.engine import Engine

from backend.store.tables import Base, UtcDateTime

# Any number that nothing else in the database locks.
ADVISORY_LOCK = 5_377_3731


def render_item(kind: str, item: Any, autogen_context: AutogenContext) -> str | Literal[False]:
    """Write our column type as the plain one that it stores, so that a revision does not change with the code."""
    if kind == "type" and isinstance(item, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    return False


def run(engine: Engine) -> None:
    """Bring the database forward, or compare it with the tables."""
    with engine.connect() as connection, connection.begin():
        # On SQLite the engine begins with BEGIN IMMEDIATE, which is the lock.
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
        context.configure(
            connection=connection,
            target_metadata=Base.metadata,
            render_item=render_item,
            render_as_batch=True,
            compare_type=True,
            transactional_ddl=True,
        )
        context.run_migrations()


run(context.config.attributes["engine"])
