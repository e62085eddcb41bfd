"""The gatekeeper's account is that of one region; rows so far are those of the only region, which has no name."""

import sqlalchemy as sa
from alembic import op

revision = "v0015_limiter_regions"
down_revision = "v0014_regions"


def upgrade() -> None:
    """Make both tables anew with the region in their keys, and move the rows."""
    op.rename_table("limiter_state", "old_limiter_state")
    op.rename_table("limiter_charges", "old_limiter_charges")
    op.drop_index("ix_limiter_charges_at", "old_limiter_charges")
    # Constraints keep their names in a renamed table, so the new ones have names of their own.
    op.create_table(
        "limiter_state",
        sa.Column("region", sa.String(16), nullable=False),
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("journal", sa.String(40), nullable=False),
        sa.Column("segment", sa.BigInteger, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("region", "name", name="pk_limiter_state"),
    )
    op.create_table(
        "limiter_charges",
        sa.Column("region", sa.String(16), nullable=False),
        sa.Column("key_id", sa.String(40), nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("requests", sa.LargeBinary, nullable=False),
        sa.Column("tokens", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("region", "key_id", name="pk_limiter_charges"),
    )
    op.create_index("ix_limiter_charges_at", "limiter_charges", ["at"])
    for table, columns in (
        ("limiter_state", "name, journal, segment, at"),
        ("limiter_charges", "key_id, at, version, requests, tokens"),
    ):
        op.execute(f"INSERT INTO {table} (region, {columns}) SELECT '', {columns} FROM old_{table}")  # noqa: S608
        op.drop_table(f"old_{table}")
