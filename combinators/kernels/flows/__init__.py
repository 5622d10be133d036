"""Where the dimensions of a signature go in the program of a kernel.

Read `flow`, what is known of a value; `rules`, what primitives do with it; `followed`, a program from end to end.
"""
