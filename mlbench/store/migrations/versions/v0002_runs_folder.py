"""A run set tells which folder of run sets its files lie in, so that machines may share a database."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("run_set", sa.Column("runs_folder", sa.String(), nullable=True))
