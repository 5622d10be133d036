"""Columns of numbers in tables: Parquet, Arrow, DuckDB.

Read `columns` (a `Stored` over groups of rows), then `arrow_arrays` (columns of Arrow as arrays), `parquet`, `arrow`
and `duck`.
"""
