<%!
def without_remarks(code):
    """Leave out Alembic's own remarks: what a revision does is read, and not who wrote it."""
    return "\n".join(line for line in (code or "pass").splitlines() if "# ###" not in line).strip()
%>\
"""${message}."""

import sqlalchemy as sa
from alembic import op
% if imports:
${imports}
% endif

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    """Go forward."""
    ${without_remarks(upgrades)}


def downgrade() -> None:
    """Go back."""
    ${without_remarks(downgrades)}
