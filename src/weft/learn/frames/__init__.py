"""Frames of other libraries as tables: pandas, polars, Arrow, DuckDB and Dask."""
