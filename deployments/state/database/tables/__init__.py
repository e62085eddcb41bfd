"""The tables of the metadata database. Times are Unix seconds; content is sealed, in columns named `sealed_...`."""
