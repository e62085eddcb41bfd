"""The tables as the version of 2026-11-27 left them, the oldest that this one takes over.

A new database gets all tables at once, see `deployments.state.database.migrations`: nothing runs here.
"""

revision = "v0021_index_copies"
down_revision = None
