"""The store: everything the service knows, in SQLite or PostgreSQL."""
