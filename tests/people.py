"""Signed-in clients of the application for the tests of its routes."""

import secrets
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from backend.domain.access import Actor
from backend.domain.account import SignedIn
from backend.services.sessions import token_sha256
from backend.settings import Settings
from backend.store.repository import Store

# What tests set by hand; long enough for the rule of new passwords.
PASSWORD = "correct horse battery"


class RecordingQueue:
    """Notes whom it should have woken."""

    def __init__(self) -> None:
        self.woken: list[str] = []

    def wake_ingest(self, upload_id: str) -> None:
        """Part of `Queue`."""
        self.woken.append(upload_id)


def open_session(store: Store, actor: Actor, now: datetime) -> tuple[str, str]:
    """A session of a stored user without their password: its token and its CSRF token."""
    token, csrf_token = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    with store.transaction() as tx:
        tx.accounts.add_session(
            SignedIn(
                actor=actor,
                display_name=actor.name,
                is_sample=False,
                created_at=now,
                seen_at=now,
                expires_at=now + timedelta(hours=12),
                token_sha256=token_sha256(token),
                csrf_token=csrf_token,
            )
        )
    return token, csrf_token


def signed_in(app: FastAPI, actor: Actor) -> TestClient:
    """A browser in which a stored user is signed in, with the headers that our pages send."""
    services = app.state.services
    token, csrf_token = open_session(services.store, actor, services.clock())
    return TestClient(app, headers={"X-CSRF-Token": csrf_token}, cookies={"serpens_session": token})


def anonymous(app: FastAPI) -> TestClient:
    """A browser in which nobody is signed in."""
    return TestClient(app)


def sqlite_url(settings_home: Path, empty_sqlite: Path) -> str:
    """A SQLite database with every table, for tests that are about no database."""
    settings_home.mkdir(exist_ok=True)
    path = settings_home / "serpens.db"
    path.write_bytes(empty_sqlite.read_bytes())
    return f"sqlite:///{path}"


def with_settings(settings: Settings, **changes: Any) -> Settings:
    """The same settings with some changed."""
    return settings.model_copy(update=changes)
