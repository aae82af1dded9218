"""The revisions bring a database from nothing to what the tables in code say, on SQLite and on PostgreSQL."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, insert, inspect, text

from backend.domain.errors import Misconfigured
from backend.store import schema
from backend.store.tables import Base, ProjectRow

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
UPGRADE = "import sys; from backend.store.schema import upgrade; print(upgrade(sys.argv[1]).current)"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgres"))])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database with nothing in it."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
    else:
        server = request.getfixturevalue("postgres_server")
        name = f"empty_{tmp_path.name}".lower().replace("-", "_")[-60:]
        engine = create_engine(f"{server}/postgres", isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f'CREATE DATABASE "{name}"'))
        yield f"{server}/{name}"
        with engine.connect() as connection:
            connection.execute(text(f'DROP DATABASE "{name}" WITH (FORCE)'))
        engine.dispose()


def test_from_nothing_the_schema_equals_the_tables_in_code(empty_url):
    state = schema.upgrade(empty_url)

    assert state.is_current
    engine = create_engine(empty_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_a_second_upgrade_changes_nothing_and_keeps_the_rows(empty_url):
    schema.upgrade(empty_url)
    engine = create_engine(empty_url)
    with engine.begin() as connection:
        connection.execute(insert(ProjectRow).values(id="p1", name="Chest", is_demo=False, created_at=NOON))

    schema.upgrade(empty_url)

    with engine.connect() as connection:
        assert connection.scalar(text("SELECT name FROM projects")) == "Chest"
    engine.dispose()


def test_processes_that_migrate_at_once_all_find_the_schema_there(empty_url):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", UPGRADE, empty_url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    answers = [process.communicate(timeout=120) for process in processes]

    head = schema.schema_state(empty_url).head
    assert [
        (process.returncode, answer[0].split()[-1:]) for process, answer in zip(processes, answers, strict=True)
    ] == [(0, [head])] * 3, answers


def test_a_failing_revision_leaves_the_database_as_it_was(empty_url):
    # The last table of the first revision is in the way, so the revision fails after it made the others.
    engine = create_engine(empty_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE thumbnails (series_id VARCHAR(24))"))

    with pytest.raises(Exception, match="thumbnails"):
        schema.upgrade(empty_url)

    assert sorted(set(inspect(engine).get_table_names()) - {"alembic_version"}) == ["thumbnails"]
    assert schema.schema_state(empty_url).current is None
    engine.dispose()


def test_a_database_of_a_newer_version_is_refused(empty_url):
    schema.upgrade(empty_url)
    engine = create_engine(empty_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()

    with pytest.raises(Misconfigured, match="9999"):
        schema.upgrade(empty_url)


def test_a_database_that_does_not_answer_is_named_without_its_password():
    with pytest.raises(Misconfigured, match="SERPENS_DATABASE_URL") as refused:
        schema.upgrade("postgresql+psycopg://serpens:geheim@127.0.0.1:1/serpens?connect_timeout=2")
    assert "geheim" not in str(refused.value)
