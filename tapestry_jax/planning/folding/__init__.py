"""How partial states of folds become one over a mesh, and what that sends.

Read `merges`, `framed` for those by a frame, and `ordered` for what no collective merges; then `sent`, `sent_in_order`
and `traffic`.
"""
