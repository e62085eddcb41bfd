"""The account of each region's gatekeeper, where there are several regions."""

import sqlalchemy as sa
from alembic import op

revision = "v0015_limiter_regions"
down_revision = "v0014_regions"


def upgrade() -> None:
    """Create the tables; those of a service without regions stay as they are."""
    op.create_table(
        "region_limiter_state",
        sa.Column("region", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("journal", sa.String(40), nullable=False),
        sa.Column("segment", sa.BigInteger, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )
    op.create_table(
        "region_limiter_charges",
        sa.Column("region", sa.String(32), primary_key=True),
        sa.Column("key_id", sa.String(40), primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("requests", sa.LargeBinary, nullable=False),
        sa.Column("tokens", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_region_limiter_charges_at", "region_limiter_charges", ["at"])
