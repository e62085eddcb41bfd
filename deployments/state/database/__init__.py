"""The database: connection, tables, migrations, and the parts that all stores share: pages, leases, clocks."""
