"""The tables of the limiter, in the same database as the others; see deployments.limits.snapshots.

A service without regions has the first two. The others are the same for the gatekeepers of several regions.
"""

from sqlalchemy import JSON, BigInteger, Column, Double, LargeBinary, String, Table

from deployments.state.database.tables import metadata


def _state_table(name: str, *region: Column[str]) -> Table:
    return Table(
        name,
        metadata,
        *region,
        Column("name", String(32), primary_key=True),
        Column("journal", String(40), nullable=False),
        Column("segment", BigInteger, nullable=False),
        Column("at", Double, nullable=False),
        Column("stopped", JSON),
    )


def _charges_table(name: str, *region: Column[str]) -> Table:
    return Table(
        name,
        metadata,
        *region,
        Column("key_id", String(40), primary_key=True),
        Column("at", Double, nullable=False, index=True),
        Column("version", BigInteger, nullable=False),
        Column("requests", LargeBinary, nullable=False),
        Column("tokens", LargeBinary, nullable=False),
    )


# The charges of each key at the gatekeeper's last snapshot, and where its journal goes on.
limiter_state = _state_table("limiter_state")
limiter_charges = _charges_table("limiter_charges")
region_limiter_state = _state_table("region_limiter_state", Column("region", String(32), primary_key=True))
region_limiter_charges = _charges_table("region_limiter_charges", Column("region", String(32), primary_key=True))
