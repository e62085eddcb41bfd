"""The keys that stored content is encrypted under, one for each account."""

import sqlalchemy as sa
from alembic import op

revision = "v0002_account_keys"
down_revision = "v0001_keys_limits_usage"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "account_keys",
        sa.Column("account", sa.String(64), primary_key=True),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
    )
