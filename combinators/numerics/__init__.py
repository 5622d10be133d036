"""Array code that is fast: rows, groups, windows, hashes, attention.

Each stands alone: `reductions`, `row_scan`, `sliding`, `groups`, `hashing`, `locating`, `hiding`, `apart` and `until`;
`attention_kernel`, `dropped_attention`, `fused_attention` and `splash_attention` belong together.
"""
