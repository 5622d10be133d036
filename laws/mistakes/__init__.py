"""Mistakes that people make, planted in a piece: which laws would have caught them.

Read `mutations`, then `mutants`.
"""
