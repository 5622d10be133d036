"""Kernels and arguments as JSON, and reading it safely: files are data.

Read `json` and `sealed` (what every file begins with), then `readable` and `array_functions` (what a text may name),
then `fields` and `codec`; `trees` holds structures of arguments, `step_budget` bounds what reading may cost,
`whole` writes files whole or not at all, and reads them within bounds.
"""
