"""The service tier of requests, and how many of their tokens did not count against limits."""

import sqlalchemy as sa
from alembic import op

revision = "v0012_service_tiers"
down_revision = "v0011_object_copies"


def upgrade() -> None:
    """Add the columns."""
    op.add_column("request_log", sa.Column("service_tier", sa.String(16)))
    for table in ("request_log", "usage"):
        op.add_column(table, sa.Column("discounted_tokens", sa.BigInteger, nullable=False, server_default="0"))
