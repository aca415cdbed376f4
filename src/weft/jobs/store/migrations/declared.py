"""All tables as they are declared today: every module with tables is imported here."""

from __future__ import annotations

from weft.jobs.store import data_tables, study_tables, tables, vision_tables, web_tables

METADATA = tables.metadata
assert all(module.metadata is METADATA for module in (data_tables, study_tables, vision_tables, web_tables))
