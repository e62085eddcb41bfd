"""The database: connection, tables, migrations, and what its stores share."""
