"""What each policy offers, in what order, and what it refuses."""

from __future__ import annotations

import pytest

from tilewright.candidates import annotate_candidates, is_ordered, reorder_candidates, split_candidates
from tilewright.errors import SpaceError


def sizes(extent, num_outputs, policy, **options):
    return [split.size for split in split_candidates("t", extent, num_outputs, policy, **options)]


def test_factors_are_all_divisors_in_order():
    assert sizes(12, 2, "factors") == [(12, 1), (6, 2), (4, 3), (3, 4), (2, 6), (1, 12)]
    assert sizes(4, 3, "factors") == [(4, 1, 1), (2, 1, 2), (1, 1, 4), (2, 2, 1), (1, 2, 2), (1, 4, 1)]


def test_power2_runs_to_the_next_power_at_or_above_the_extent_with_tails():
    assert sizes(100, 2, "power2", min_factor=16) == [(7, 16), (4, 32), (2, 64), (1, 128)]
    assert sizes(100, 2, "power2", min_factor=16, max_factor=32) == [(7, 16), (4, 32)]


def test_power2_is_never_empty_however_small_the_extent():
    assert sizes(1, 2, "power2", min_factor=16, max_factor=256) == [(1, 16)]
    assert sizes(1, 3, "power2", min_factor=16) == [(1, 16, 16)]
    assert sizes(1, 2, "power2") == [(1, 1)]


def test_the_outermost_part_is_not_bounded():
    assert sizes(4096, 2, "power2", min_factor=16, max_factor=16) == [(256, 16)]


def test_verbose_is_the_sorted_union():
    assert [size[-1] for size in sizes(6, 2, "verbose")] == [1, 2, 3, 4, 6, 8]


def test_no_tail_keeps_exact_splits():
    assert sizes(24, 2, "power2", no_tail=True) == [(24, 1), (12, 2), (6, 4), (3, 8)]


def test_candidates_are_verbatim_and_minus_one_covers_the_extent():
    assert sizes(100, 2, "candidate", candidates=[[-1, 64], [50, 2], [-1, 16]]) == [(2, 64), (50, 2), (7, 16)]


def test_a_filter_keeps_what_it_is_true_of():
    assert sizes(16, 2, "power2", filter=lambda split: split.size[-1] % 4 == 0) == [(4, 4), (2, 8), (1, 16)]


def test_one_part_is_the_extent():
    assert sizes(7, 1, "factors") == [(7,)]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((8, 2, "power"), {}, "unknown policy 'power'; did you mean 'power2'"),
        ((0, 2, "factors"), {}, "extent=0 must be an integer of 1 or more"),
        ((8.0, 2, "factors"), {}, "extent=8.0 must be an integer"),
        ((8, 0, "factors"), {}, "num_outputs=0"),
        ((8, 2, "factors"), {"min_factor": 4, "max_factor": 2}, "max_factor=2 is below min_factor=4"),
        ((7, 2, "factors"), {"min_factor": 2, "max_factor": 6}, "no split of extent 7 into 2 parts under policy 'factors' with min_factor=2, max_factor=6"),
        ((8, 2, "factors"), {"candidates": [[1, 8]]}, "candidates go with policy='candidate'"),
        ((8, 2, "candidate"), {}, "candidates go with policy='candidate'"),
        ((8, 2, "candidate"), {"candidates": [[2, 2]]}, "covers 4 of extent 8"),
        ((8, 2, "candidate"), {"candidates": [[8]]}, "must be a list of 2 integers"),
    ],
)
def test_bad_splits_are_errors(arguments, options, message):
    with pytest.raises(SpaceError) as caught:
        split_candidates("t", *arguments, **options)
    assert message in str(caught.value)


def test_an_unreasonable_number_of_candidates_is_an_error(monkeypatch):
    monkeypatch.setattr("tilewright.candidates.MAX_CANDIDATES", 27)
    assert len(split_candidates("t", 64, 3, "factors", max_factor=32)) == 26
    with pytest.raises(SpaceError, match="more than 27 candidates; bound it with min_factor"):
        split_candidates("t", 64, 3, "factors")


def orders(policy, **options):
    return ["".join(entity.axes) for entity in reorder_candidates("r", ["i", "j", "k"], policy, **options)]


def test_reorder_policies():
    assert orders("identity") == ["ijk"]
    assert orders("all") == ["ijk", "ikj", "jik", "jki", "kij", "kji"]
    assert orders("interval_all", interval=[1, 3]) == ["ijk", "ikj"]
    assert orders("interleave", chains=[["i", "j"], ["k"]]) == ["ijk", "ikj", "kij"]
    assert orders("candidate", candidates=[["k", "i", "j"]]) == ["kij"]
    assert reorder_candidates("r", ["i", "j", "k"], "candidate", candidates=[["k", "i", "j"]])[0].perm == (2, 0, 1)


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        ("alll", {}, "unknown policy 'alll'; did you mean 'all'"),
        ("interval_all", {}, "interval goes with policy='interval_all'"),
        ("all", {"chains": [["i"]]}, "chains goes with policy='interleave'"),
        ("interval_all", {"interval": [2, 9]}, "within 0..3"),
        ("candidate", {"candidates": [["i", "j"]]}, "['i', 'j'] is no permutation of the axes ['i', 'j', 'k']"),
    ],
)
def test_bad_reorders_are_errors(policy, options, message):
    with pytest.raises(SpaceError) as caught:
        reorder_candidates("r", ["i", "j", "k"], policy, **options)
    assert message in str(caught.value)


def test_annotate_policies():
    assert [entity.anns for entity in annotate_candidates("u", ["i", "j"], "unroll")] == [("unroll", "unroll")]
    assert [entity.anns for entity in annotate_candidates("u", ["i", "j"], "try_unroll")] == [
        ("none", "none"),
        ("none", "unroll"),
        ("unroll", "none"),
        ("unroll", "unroll"),
    ]
    assert len(annotate_candidates("u", ["i", "j"], "try_unroll_vec")) == 9
    assert [entity.anns for entity in annotate_candidates("u", ["i"], "candidate", candidates=[["static"], ["none"]])] == [("static",), ("none",)]


@pytest.mark.parametrize(
    ("axes", "policy", "options", "message"),
    [
        (["i"], "bind_gpu", {}, "unknown policy 'bind_gpu'"),
        (["i"], "candidate", {"candidates": [["a", "b"]]}, "must be a list of 1 words"),
        (["i", "i"], "unroll", {}, "axes must be a list of different names"),
        ([], "unroll", {}, "axes must be a list of different names"),
    ],
)
def test_bad_annotations_are_errors(axes, policy, options, message):
    with pytest.raises(SpaceError) as caught:
        annotate_candidates("u", axes, policy, **options)
    assert message in str(caught.value)


def test_only_ascending_numbers_and_splits_are_ordered():
    assert is_ordered([1, 2.5, 4]) and not is_ordered([4, 2]) and not is_ordered([False, True]) and not is_ordered(["a", "b"])
    assert is_ordered(split_candidates("t", 64, 3, "power2")) and is_ordered(split_candidates("t", 30, 3, "verbose"))
