"""What a sharded graph costs on a machine, from its blocks, moves and merges alone: nothing is known of a plan.

Read `cuts` (an index box as cuts of dimensions), `live` (which pieces anybody needs), `computed` (blocks), `sent`
(moves, merges and scans) and `priced` (their sum).
"""
