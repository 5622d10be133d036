"""Cells on their way: out of versions, into new ones, and between a fabric and files of others.

Read `reading` (boxes of versions, each block checked), `copying` (a box of one tensor into another), `writing` (an
array into a box), then `files` (load and export).
"""
