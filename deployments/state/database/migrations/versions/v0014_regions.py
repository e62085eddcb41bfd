"""Regions: which there are, which leads, whose the ingress replicas are, and to which a key is bound."""

import sqlalchemy as sa
from alembic import op

revision = "v0014_regions"
down_revision = "v0012_service_tiers"


def upgrade() -> None:
    """Make the tables and the column. The register of replicas is filled anew within seconds."""
    op.create_table(
        "regions",
        sa.Column("name", sa.String(16), primary_key=True),
        sa.Column("seen_at", sa.Double, nullable=False),
        sa.Column("drained_at", sa.Double),
        sa.Column("facts", sa.JSON, nullable=False),
    )
    op.create_table(
        "leaders",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("region", sa.String(16), nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("lease_until", sa.Double, nullable=False),
    )
    op.drop_table("ingress_replicas")
    op.create_table(
        "ingress_replicas",
        sa.Column("region", sa.String(16), primary_key=True),
        sa.Column("address", sa.String(64), primary_key=True),
        sa.Column("seen_at", sa.Double, nullable=False, index=True),
    )
    op.add_column("api_keys", sa.Column("regions", sa.JSON))
