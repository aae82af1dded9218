"""The tables of `docs/` that are made from the code. `python -m tests.docs_tables` prints them, `--write` puts them in.

A table stands between two comments, `<!-- NAME -->` and `<!-- /NAME -->`; a test holds it equal to the code.
"""

import re
import sys
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from backend.domain.access import ALLOWED_ROLES, Permission, Role
from backend.services.accounts import SAMPLE_PEOPLE
from backend.settings import GIB, MIB, Settings

ADMIN_PAGE = Path(__file__).parents[1] / "docs" / "admin.md"


def access_table() -> str:
    """Permissions by role, as the domain has them."""
    header = ["permission", *Role]
    rows = [[f"`{one}`", *("yes" if role in ALLOWED_ROLES[one] else "" for role in Role)] for one in Permission]
    return _table(header, rows)


def people_table() -> str:
    """Demo mode's people with their public passwords."""
    return _table(
        ["name", "password", "role"],
        [[f"`{person.name}`", f"`{person.password}`", person.role] for person in SAMPLE_PEOPLE],
    )


def settings_table(settings: type[BaseSettings] = Settings) -> str:
    """Every setting by the variable that sets it."""
    prefix = settings.model_config.get("env_prefix", "")
    rows = [
        [f"`{prefix}{name.upper()}`", _default(field), (field.description or "").replace("|", "\\|")]
        for name, field in settings.model_fields.items()
    ]
    return _table(["variable", "default", "what it does"], rows)


def _default(field: FieldInfo) -> str:
    value: Any = field.default
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int) and value >= MIB and value % MIB == 0:
        return f"`{value}` ({value // GIB} GiB)" if value % GIB == 0 else f"`{value}` ({value // MIB} MiB)"
    if value is None or value == () or isinstance(value, SecretStr):
        return ""
    return f"`{value}`"


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


TABLES = {"access": access_table, "people": people_table, "settings": settings_table}


def with_tables(page: str) -> str:
    """The page with every table as the code has it."""
    for name, make in TABLES.items():
        place = re.compile(rf"<!-- {name} -->\n.*?<!-- /{name} -->", re.DOTALL)
        found = f"<!-- {name} -->\n{make()}\n<!-- /{name} -->"
        page, count = place.subn(lambda _, found=found: found, page)
        if count != 1:
            raise ValueError(f"the page needs one place for the table {name}, it has {count}")
    return page


def main() -> None:
    """Print the tables, or put them into their page."""
    if sys.argv[1:] == ["--write"]:
        ADMIN_PAGE.write_text(with_tables(ADMIN_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print("\n\n".join(make() for make in TABLES.values()))


if __name__ == "__main__":
    main()
