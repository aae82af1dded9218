"""`docs/admin.md` says what the code does."""

import re

from backend.services import passwords
from backend.settings import Settings
from tests.docs_tables import ADMIN_PAGE, access_table, settings_table, with_tables

PAGE = ADMIN_PAGE.read_text(encoding="utf-8")


def test_the_tables_of_the_page_are_those_of_the_code():
    assert with_tables(PAGE) == PAGE, "run `python -m tests.docs_tables --write`"


def test_the_roles_table_reads_like_this():
    lines = access_table().splitlines()
    assert lines[0] == "| permission | clinician | adjudicator | engineer | admin |"
    assert "| `see_identity` | yes | yes |  | yes |" in lines
    assert "| `manage_accounts` |  |  |  | yes |" in lines
    assert "| `see_system` |  |  | yes | yes |" in lines


def test_every_setting_says_what_it_does():
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []
    assert "| `SERPENS_PORT` | `7860` |" in settings_table()


def test_the_numbers_in_the_text_are_the_defaults():
    defaults = {name: field.default for name, field in Settings.model_fields.items()}
    assert f"{defaults['session_hours']} hours, or {defaults['session_idle_minutes']} minutes without" in PAGE
    assert f"{defaults['login_attempts']} failed sign-ins" in PAGE
    assert f"within {defaults['login_window_s'] // 60} minutes" in PAGE
    assert f"{passwords.LEAST_LENGTH} to {passwords.GREATEST_LENGTH} characters" in PAGE


def test_every_variable_that_the_text_names_exists():
    variables = {f"SERPENS_{name.upper()}" for name in Settings.model_fields}
    assert set(re.findall(r"SERPENS_[A-Z_]+", PAGE)) <= variables
