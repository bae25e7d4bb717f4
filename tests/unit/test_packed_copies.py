"""Copies of operands in one allocation."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tilewright.children.arena import PAGE_BYTES, packed_copies  # noqa: E402


def test_copies_keep_values_strides_and_gaps_and_never_overlap() -> None:
    padded = torch.arange(6 * 10, dtype=torch.float32).reshape(6, 10)[:, :7]
    column = torch.randn(3, 5, dtype=torch.float16).t()
    first, second = packed_copies([padded, 1e-5, column], 2, "cpu")
    for copy in (first, second):
        assert copy[1] == 1e-5
        for value, original in ((copy[0], padded), (copy[2], column)):
            assert torch.equal(value, original) and value.stride() == original.stride() and value.data_ptr() != original.data_ptr()
    assert float(first[0].as_strided((1,), (1,), first[0].storage_offset() + 7)) == 7.0  # a gap between rows
    second[0].zero_()
    second[2].zero_()
    assert torch.equal(first[0], padded) and torch.equal(first[2], column)


def test_places_within_a_page_do_not_depend_on_what_was_allocated_before() -> None:
    def places() -> list[int]:
        return [value.data_ptr() % PAGE_BYTES for one in packed_copies([torch.ones(1000), torch.ones(77)], 3, "cpu") for value in one]

    before = places()
    kept = [torch.empty(size) for size in (123, 45_678, 9)]
    assert places() == before and before[0] == 0
    assert len(set(before)) == 6 and len(kept) == 3


def test_no_elements_are_no_trouble() -> None:
    ((empty, other),) = packed_copies([torch.ones(0, 4), torch.ones(2)], 1, "cpu")
    assert empty.shape == (0, 4) and other.tolist() == [1.0, 1.0]
