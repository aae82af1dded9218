"""Move the schema forward (Alembic)."""
