"""Where the bytes of blocks lie: written once, never changed, removed when no version has them.

Read `store` (what both kinds do), then `files` with `session` (who writes, and what is left of those who were killed),
and `memory`.
"""
