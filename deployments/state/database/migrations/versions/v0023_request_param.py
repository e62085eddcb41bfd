"""The request log has the parameter at fault, or the limit that refused the request."""

import sqlalchemy as sa
from alembic import op

revision = "v0023_request_param"
down_revision = "v0022_turns"


def upgrade() -> None:
    """Add the column to the request log."""
    op.add_column("request_log", sa.Column("param", sa.String(128)))
