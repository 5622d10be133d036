"""Which cells of what comes in a program's results read, held against what its signature says.

Read `followed` with `reading`, the linear forms by which cells are read; `sampled` follows single cells where no form
tells; `said` holds both against signatures.
"""
