"""Columns of numbers in tables: Parquet, Arrow, DuckDB, PostgreSQL.

Read `columns` (a `Stored` of rows), then `arrow_arrays` (columns of Arrow as arrays), `parquet` with `pages` (how large
they are) and `arrow` with `arrow_laid` (where its cells lie; `flat` reads its metadata); then `sql` (what databases
have in common), `duck`, and `postgres` with `waited` (tables that others hold).
"""
