"""The sizes of an account's files, in an index of their own: they are added up whenever it stores another."""

from alembic import op

revision = "v0023_file_sizes"
down_revision = "v0022_turns"


def upgrade() -> None:
    """Add the index."""
    op.create_index("ix_files_account_bytes", "files", ["account", "num_bytes"])
