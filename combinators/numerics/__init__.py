"""Array code that is fast: rows, groups, windows, hashes, attention.

Each stands alone: `reductions`, `row_scan`, `sliding`, `groups`, `hashing`; `attention_kernel` and `fused_attention`
belong together.
"""
