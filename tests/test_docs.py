"""The documents say what is so: settings, commands and targets that they name exist."""

import importlib
import re
import subprocess
from pathlib import Path

import pytest

from backend import cli
from backend.domain.errors import PlatformError
from backend.settings import Settings
from tests import services

ROOT = services.ROOT
SETTINGS = {f"SERPENS_{name.upper()}" for name in Settings.model_fields}
DOCUMENTS = sorted(path for path in [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")] if path.is_file())
# What only one machine has: a checkout's place, a user's home, a package registry of its own.
MACHINE_PATHS = re.compile(r"/(?:work|root)/(?!\.)\w")


def tracked_files() -> list[Path]:
    """What git tracks or would track, without a checkout every file that is no build output."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    paths = [ROOT / name for name in listing.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def quoted(document: Path) -> str:
    """The code of a document: its fenced blocks and its quoted words."""
    text = document.read_text(encoding="utf-8")
    blocks = re.findall(r"```.*?\n(.*?)```", text, re.DOTALL)
    words = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return "\n".join([*blocks, *words])


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def commands() -> set[str]:
    """Every command of `serpens`, those of other folders included."""
    import typer

    return set(typer.main.get_command(cli.app).list_commands(None))


@pytest.mark.parametrize("document", [ROOT / ".env.example", *DOCUMENTS], ids=lambda path: path.name)
def test_every_setting_that_is_named_exists(document):
    named = set(re.findall(r"\bSERPENS_[A-Z][A-Z_]*[A-Z]\b", document.read_text(encoding="utf-8")))
    assert named - SETTINGS == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_make_target_that_is_quoted_exists(document):
    assert set(re.findall(r"(?m)(?:^|\s|\$ )make ([a-z][\w-]*)", quoted(document))) - make_targets() == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_that_is_quoted_exists(document):
    assert set(re.findall(r"(?m)(?:^|[\s/])serpens ([a-z][\w-]*)", quoted(document))) - commands() == set()


def test_the_example_settings_are_readable_as_they_stand_and_uncommented(tmp_path):
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    for name, text in {"as-it-stands": example, "uncommented": re.sub(r"(?m)^#(?=SERPENS_)", "", example)}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        Settings(_env_file=tmp_path / name)


def test_no_tracked_file_names_a_place_on_one_machine():
    found = []
    for path in tracked_files():
        if path == Path(__file__).resolve():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # pictures and volumes
        found += [f"{path.relative_to(ROOT)}: {match.group()}" for match in MACHINE_PATHS.finditer(text)]
    assert found == []


def test_the_changelog_says_what_is_new():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"(?m)^## ", changelog)
    assert re.search(r"(?m)^- ", changelog)


def test_every_directory_of_the_top_level_is_an_agreed_one():
    agreed = {"app", "backend", "trainer", "annotation", "migrations", "tests", "docs", ".ci"}
    assert {
        path.relative_to(ROOT).parts[0] for path in tracked_files() if len(path.relative_to(ROOT).parts) > 1
    } <= agreed


def error_codes() -> set[str]:
    """The code of every error that the code raises on purpose."""
    for folder in ("domain", "imaging", "store", "services", "agent", "api"):
        for path in (ROOT / "backend" / folder).rglob("*.py"):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    importlib.import_module("backend.asking")
    found, waiting = set(), [PlatformError]
    while waiting:
        error = waiting.pop()
        waiting += error.__subclasses__()
        if error.__module__.startswith("backend."):
            found.add(error.code)
    return found


def test_integrators_find_every_error_code():
    # The families themselves are never raised, what ends a run is told by its trace, and what ends `serpens run` by it.
    unsaid = {"platform_error", "file_refused", "picture_changed", "runner_lost", "process_keeps_failing"}
    document = (ROOT / "docs" / "integrators.md").read_text(encoding="utf-8")
    assert {code for code in error_codes() - unsaid if f"`{code}`" not in document} == set()
