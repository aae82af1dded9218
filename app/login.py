"""The page to sign in: plain HTML with its own script, so that nothing of Gradio is served before that."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from string import Template

from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

_FILES = Path(__file__).parent / "static" / "login"


@dataclass(frozen=True, slots=True)
class OfferedLogin:
    """A sample user of demo mode, whose password is public."""

    name: str
    display_name: str
    password: str


def add_login(app: FastAPI, *, offered: Iterable[OfferedLogin]) -> None:
    """Serve `/login` and its files; `offered` are the users that a click fills in."""
    page = login_page(offered)

    @app.get("/login", response_class=HTMLResponse, include_in_schema=False)
    async def login() -> str:
        return page

    app.mount("/login", StaticFiles(directory=_FILES), name="login files")


def login_page(offered: Iterable[OfferedLogin]) -> str:
    """The page with the users that it offers as JSON inside it."""
    people = [{"name": one.name, "display_name": one.display_name, "password": one.password} for one in offered]
    # Inside a script element only `</` and `<!--` could end the data early.
    data = json.dumps(people).replace("<", "\\u003c")
    return Template((_FILES / "page.html").read_text(encoding="utf-8")).substitute(people=data)
