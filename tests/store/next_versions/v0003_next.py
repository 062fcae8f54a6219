"""A migration that no release has: it rebuilds a table and takes its time, as the next one may."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("run_set", sa.Column("rack", sa.String(), nullable=True))
    op.execute("UPDATE run_set SET rack = 'unknown'")
    # Rebuilds the table in SQLite: its runs must not go with the old one.
    with op.batch_alter_table("run_set") as batch:
        batch.alter_column("rack", existing_type=sa.String(), nullable=False)
    if op.get_bind().dialect.name == "sqlite":
        for number in range(300):
            op.execute(f"UPDATE run_set SET rack = 'rack {number}'")
