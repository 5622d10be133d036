"""Kernels beside padding: on which rows they run, and what goes back from the others, which is nothing.

Read `level`, which kernels have finite slopes; then `apart`, what padding is made of for these, and `valid`, how the
others run on the rows that there are.
"""
