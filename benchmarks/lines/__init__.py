"""Lines that a user writes: ten programs, each written with this library and without it.

`ours` and `plain` hold the programs, files of one name; `given` what both are given; `count` the rule by which lines
are counted; `page` writes docs/lines.md.
"""
