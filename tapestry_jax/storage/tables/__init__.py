"""Columns of numbers in tables: Parquet, Arrow, DuckDB, PostgreSQL.

Read `columns` (a `Stored` over groups of rows), then `arrow_arrays` (columns of Arrow as arrays), `parquet` and
`arrow`; then `sql` (what databases have in common), `duck`, and `postgres` with
`waited` (tables that others hold).
"""
