"""Checksums of rows: the same in every release, and of every field with its type."""

from __future__ import annotations

import pytest

import tapestry_jax as tp
from tapestry_jax.fabric.catalogue.seals import BLOCKS, TENSORS, checked, is_sealed, seal

ROW = (7, 3, "0123456789abcdef/5", "d41d8cd98f00b204", None, 9)


def test_a_seal_is_the_same_for_ever():
    """It stands in files; letters that a release of Python may learn to print are written as numbers."""
    assert seal(BLOCKS, ROW) == 5486962336564561658
    assert seal(TENSORS, ("名前/ß\U0001fae8", 3)) == -3221890726399178648


@pytest.mark.parametrize("at", range(len(ROW)))
def test_every_field_and_its_type_counts(at: int):
    sealed = (*ROW, seal(BLOCKS, ROW))
    assert is_sealed(BLOCKS, sealed) and checked(BLOCKS, sealed, ROW[:2]) == ROW
    for other in {4, 4.5, "4", b"4", "\udcff", float("inf"), None} - {ROW[at]}:
        changed = (*sealed[:at], other, *sealed[at + 1 :])
        assert not is_sealed(BLOCKS, changed)
        with pytest.raises(tp.FormatError, match="the catalogue of the fabric is damaged"):
            checked(BLOCKS, changed)


def test_a_row_of_another_key_or_table_is_told():
    sealed = (*ROW, seal(BLOCKS, ROW))
    with pytest.raises(tp.FormatError, match="a row of `blocks` is not as it was written"):
        checked(BLOCKS, sealed, (8,))
    assert not is_sealed(TENSORS, ("x", 1, seal(BLOCKS, ("x", 1))))
