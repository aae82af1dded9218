"""What every test may ask for, and the check that the skipped tests are the expected ones."""

import json
import logging
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backend.domain.access import Actor, Role
from backend.settings import Settings
from tests import services

# A capability follows from the fixture that hands it out; a test that needs one without the fixture says so itself.
FIXTURE_NEEDS = {
    "shared_data": "shared_data",
    "chromium": "chromium",
    "postgres_server": "postgres",
    "redis_url": "redis",
}


# ---------------------------------------------------------------------------------------------------------------------
# Fixtures
# ---------------------------------------------------------------------------------------------------------------------


@dataclass
class FakeClock:
    """A clock that stands still until it is moved."""

    instant: datetime = field(default=datetime(2026, 3, 2, 9, 0, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.instant

    def now(self) -> datetime:
        """The same as calling it."""
        return self.instant

    def advance(self, seconds: float) -> None:
        """Move it forward."""
        self.instant += timedelta(seconds=seconds)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """An entry point that runs inside a test sends the logs to that test's stderr, which is closed after it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def clock() -> FakeClock:
    """2026-03-02 09:00 UTC, standing still: `clock.advance(seconds)` moves it."""
    return FakeClock()


@pytest.fixture
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """Settings with a home of their own; the database is the one of `store` or `database_url` where the test has it."""
    url = request.getfixturevalue("database_url") if "database_url" in request.fixturenames else None
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    # The name that Starlette's TestClient calls: the guard serves no name that is not set up.
    return Settings(_env_file=None, home=home, database_url=url, public_origins=("http://testserver",))


@pytest.fixture
def blobs(settings: Settings) -> Any:
    """An empty `DirectoryBlobs` in the home of `settings`."""
    from backend.store.blobs import DirectoryBlobs

    return DirectoryBlobs(settings.blobs)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """One PostgreSQL for this test process: its URL without a database's name."""
    with services.postgres() as url:
        yield url


@pytest.fixture(scope="session")
def empty_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with every table and no row, to be copied."""
    from sqlalchemy import create_engine

    from backend.store.tables import Base

    path = tmp_path_factory.mktemp("sqlite") / "empty.db"
    engine = create_engine(f"sqlite:///{path}")
    Base.metadata.create_all(engine)
    engine.dispose()
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> str:
    """The name of a database with every table and no row, to be copied."""
    from sqlalchemy import create_engine

    from backend.store.tables import Base

    with _admin(postgres_server) as connection:
        connection.exec_driver_sql("CREATE DATABASE serpens_template")
    engine = create_engine(f"{postgres_server}/serpens_template")
    Base.metadata.create_all(engine)
    engine.dispose()
    return "serpens_template"


@pytest.fixture
def postgres_url(postgres_server: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A new and empty PostgreSQL database, without tables."""
    with _database(postgres_server, "template0") as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgres"))])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database with every table and no row: once on SQLite (in the home of `settings`), once on PostgreSQL."""
    if request.param == "sqlite":
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        shutil.copyfile(request.getfixturevalue("empty_sqlite"), home / "serpens.db")
        yield f"sqlite:///{home / 'serpens.db'}"
    else:
        template = request.getfixturevalue("postgres_template")
        with _database(request.getfixturevalue("postgres_server"), template) as url:
            yield url


@pytest.fixture
def store(database_url: str) -> Iterator[Any]:
    """A `Store` on `database_url`."""
    from backend.store.repository import Store

    opened = Store(database_url)
    yield opened
    opened.close()


def _admin(server: str) -> Any:
    from sqlalchemy import NullPool, create_engine

    return create_engine(f"{server}/postgres", isolation_level="AUTOCOMMIT", poolclass=NullPool).connect()


class _database:  # noqa: N801  (a context manager that reads as a verb)
    """A copy of a template database, dropped at the end whoever is still connected."""

    def __init__(self, server: str, template: str) -> None:
        self.server, self.template, self.name = server, template, f"t_{secrets.token_hex(8)}"

    def __enter__(self) -> str:
        with _admin(self.server) as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {self.name} TEMPLATE {self.template}")
        return f"{self.server}/{self.name}"

    def __exit__(self, *_: object) -> None:
        with _admin(self.server) as connection:
            connection.exec_driver_sql(f"DROP DATABASE {self.name} WITH (FORCE)")


MakeActor = Callable[..., Actor]


@pytest.fixture
def make_project(store: Any, clock: FakeClock) -> Callable[..., str]:
    """Adds a project and gives its id: `make_project("Chest", is_demo=False)`."""
    from sqlalchemy.orm import Session

    from backend.store.tables import ProjectRow

    def make(name: str = "Project", *, is_demo: bool = False) -> str:
        project_id = secrets.token_hex(10)
        with Session(store.engine) as session, session.begin():
            session.add(ProjectRow(id=project_id, name=name, is_demo=is_demo, created_at=clock()))
        return project_id

    return make


@pytest.fixture
def make_actor(store: Any, clock: FakeClock) -> MakeActor:
    """Adds a user without a usable password: `make_actor(Role.ENGINEER, project_id, ..., name="erin")`."""
    from sqlalchemy.orm import Session

    from backend.store.tables import MembershipRow, UserRow

    def make(role: Role = Role.CLINICIAN, *project_ids: str, name: str | None = None) -> Actor:
        user_id = secrets.token_hex(10)
        name = name or f"user-{user_id}"
        with Session(store.engine) as session, session.begin():
            session.add(
                UserRow(
                    id=user_id,
                    name=name,
                    display_name=name.title(),
                    password_hash="!",
                    role=role.value,
                    is_active=True,
                    is_sample=False,
                    created_at=clock(),
                )
            )
            session.flush()
            session.add_all(MembershipRow(project_id=project_id, user_id=user_id) for project_id in project_ids)
        return Actor(user_id=user_id, name=name, role=role, project_ids=frozenset(project_ids))

    return make


@pytest.fixture
def project(make_project: Callable[..., str]) -> str:
    """The id of a stored project."""
    return make_project()


@pytest.fixture
def actor(make_actor: MakeActor, project: str) -> Actor:
    """A stored clinician, member of `project`."""
    return make_actor(Role.CLINICIAN, project)


@pytest.fixture
def shared_data() -> Path:
    """The folder of real images with known facts (MANIFEST.json)."""
    return services.SHARED_DATA


@pytest.fixture(scope="session")
def chromium() -> str:
    """Chromium's executable; `services.CHROMIUM_CPU_ARGS` and `CHROMIUM_WEBGL_ARGS` start it without a network."""
    path = services.chromium_path()
    assert path is not None
    return path


@pytest.fixture(scope="session")
def _redis_server() -> Iterator[str]:
    with services.redis() as url:
        yield url


@pytest.fixture
def redis_url(_redis_server: str) -> str:
    """An empty Redis."""
    from redis import Redis

    with Redis.from_url(_redis_server) as client:
        client.flushall()
    return _redis_server


# ---------------------------------------------------------------------------------------------------------------------
# Capabilities: what is skipped, and that nothing else is
# ---------------------------------------------------------------------------------------------------------------------


class SkipLedger:
    """What the collected tests need, and which were skipped. One in each xdist worker and one in the controller."""

    def __init__(self) -> None:
        self.needs: dict[str, set[str]] = {capability: set() for capability in services.CAPABILITIES}
        self.skipped: set[str] = set()

    def add_needs(self, needs: dict[str, list[str]]) -> None:
        """Take in what one process collected."""
        for capability, nodes in needs.items():
            self.needs[capability].update(nodes)

    def differences(self) -> list[str]:
        """One line for each way in which `tests/expected_skips.txt` and this run disagree."""
        listed = services.read_expected_skips()
        lines = []
        for capability in services.CAPABILITIES:
            lines += [
                f"not listed under [{capability}]: {node}"
                for node in sorted(self.needs[capability] - listed[capability])
            ]
            lines += [
                f"listed under [{capability}] only: {node}"
                for node in sorted(listed[capability] - self.needs[capability])
            ]
        expected = set().union(
            *(listed[capability] for capability in services.CAPABILITIES if not services.has(capability))
        )
        lines += [f"skipped and not expected: {node}" for node in sorted(self.skipped - expected)]
        lines += [f"expected to be skipped and was not: {node}" for node in sorted(expected - self.skipped)]
        return lines


LEDGER = pytest.StashKey[SkipLedger]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--needs-to=FILE` is how `python -m tests.services --write-skips` asks what the tests need."""
    parser.addoption("--needs-to", default=None, help="write the tests' capabilities to this file as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Start the ledger; nothing of the caller's settings reaches a test."""
    config.stash[LEDGER] = SkipLedger()
    for name in [name for name in os.environ if name.startswith("SERPENS_") and name != "SERPENS_SCREENSHOTS"]:
        del os.environ[name]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, by name."""
    ledger = config.stash[LEDGER]
    for item in items:
        needs = {mark.args[0] for mark in item.iter_markers("needs")}
        needs |= {FIXTURE_NEEDS[name] for name in getattr(item, "fixturenames", ()) if name in FIXTURE_NEEDS}
        for capability in sorted(needs):
            ledger.needs[capability].add(item.nodeid)
            if not services.has(capability):
                item.add_marker(pytest.mark.skip(reason=f"needs {capability}"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Hand the collected needs to whoever asked: the controller of xdist, or `--needs-to`."""
    needs = {capability: sorted(nodes) for capability, nodes in session.config.stash[LEDGER].needs.items()}
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["needs"] = needs
    if listing := session.config.getoption("--needs-to"):
        Path(listing).write_text(json.dumps(needs), encoding="utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """In the controller of xdist: what a worker collected."""
    node.config.stash[LEDGER].add_needs(getattr(node, "workeroutput", {}).get("needs", {}))


class _SkipWatcher:
    def __init__(self, ledger: SkipLedger) -> None:
        self.ledger = ledger

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.ledger.skipped.add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.ledger.skipped.add(report.nodeid)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Watch what is skipped."""
    session.config.pluginmanager.register(_SkipWatcher(session.config.stash[LEDGER]), "serpens-skips")


def _is_full_run(session: pytest.Session) -> bool:
    config = session.config
    selecting = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "collectonly")
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS or [
        Path(arg).resolve() for arg in config.args
    ] == [services.ROOT / "tests"]
    return whole and not any(getattr(config.option, name, None) for name in selecting)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A full run fails where the skipped tests are not the expected ones."""
    config = session.config
    finished = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    if hasattr(config, "workerinput") or exitstatus not in finished or session.shouldstop or not _is_full_run(session):
        return
    if lines := config.stash[LEDGER].differences():
        lines.append("`python -m tests.services --write-skips` lists the tests that need a capability.")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        config.hook.pytest_runtest_logreport(
            report=pytest.TestReport(
                nodeid="tests/expected_skips.txt",
                location=("tests/expected_skips.txt", None, "expected skips"),
                keywords={},
                outcome="failed",
                longrepr="\n".join(lines),
                when="setup",
            )
        )
