"""Floors of a time, operand sets to rotate through, and how sure a median is."""

import itertools
from math import comb

import pytest

from tilewright.operator import OperatorSpec, ScalarSpec, TensorSpec, Tolerance
from tilewright.roofline import MAX_OPERAND_SETS, floor_us, operand_sets, roofline, set_bytes
from tilewright.sampling import measurement, median_interval, relative_interval
from tilewright.target import named_target

H200 = named_target("sm_90")


def gemm_spec():
    def shapes(w):
        return {
            "a": TensorSpec(shape=(w["M"], w["K"]), dtype=w["dtype"]),
            "b": TensorSpec(shape=(w["K"], w["N"]), dtype=w["dtype"]),
            "alpha": ScalarSpec(value=1.0),
        }

    return OperatorSpec(
        name="gemm",
        summary="",
        dims=("M", "N", "K"),
        dtypes={"dtype": ("bfloat16", "int64")},
        arguments=("a", "b", "alpha"),
        inputs=shapes,
        outputs=lambda w: {"c": TensorSpec(shape=(w["M"], w["N"]), dtype=w["dtype"])},
        flops=lambda w: 2 * w["M"] * w["N"] * w["K"],
        bytes_moved=lambda w: 2 * (w["M"] * w["K"] + w["K"] * w["N"] + w["M"] * w["N"]),
        tolerance=lambda w: Tolerance(rel_norm=1e-2, max_error=1e-1, reason=""),
        infer=lambda args: {},
    )


def test_a_large_product_is_bound_by_compute():
    spec = gemm_spec()
    line = roofline(spec, spec.workload("M=4096,N=4096,K=4096"), H200)
    assert line.bound == "compute" and line.floor_us == pytest.approx(2 * 4096**3 / 989e12 * 1e6)
    assert line.fraction(200.0) == pytest.approx(line.floor_us / 200.0)
    assert line.tflops(200.0) == pytest.approx(687.2, rel=1e-3)


def test_a_thin_product_is_bound_by_memory():
    spec = gemm_spec()
    workload = spec.workload("M=16,N=6144,K=4096")
    line = roofline(spec, workload, H200)
    assert line.bound == "memory" and line.floor_us == pytest.approx(line.bytes_moved / 4800e9 * 1e6) == floor_us(spec, workload, H200)
    assert line.gb_s(16.8) == pytest.approx(line.bytes_moved / 16.8e-6 * 1e-9)
    assert not line.impossible(line.floor_us * 0.91) and line.impossible(line.floor_us * 0.89)


def test_operands_that_stay_in_l2_have_no_memory_floor():
    spec = gemm_spec()
    small = spec.workload("M=16,N=16,K=16")
    assert set_bytes(spec, small) * MAX_OPERAND_SETS < H200.l2_bytes
    assert roofline(spec, small, H200).memory_us is None
    large = spec.workload("M=16,N=6144,K=4096")
    assert roofline(spec, large, H200, operand_bytes=set_bytes(spec, large)).memory_us is None


def test_unknown_rates_and_the_interpreter_have_no_floor():
    spec = gemm_spec()
    assert roofline(spec, spec.workload("M=4096,N=4096,K=4096,dtype=int64"), H200).compute_us is None
    line = roofline(spec, spec.workload("M=4096,N=4096,K=4096"), H200.interpreted())
    assert line.floor_us is None and line.bound == "" and line.fraction(1.0) is None and not line.impossible(1e-9)
    assert line.tflops(1000.0) > 0


def test_operand_sets_outgrow_l2_within_bounds():
    l2 = H200.l2_bytes
    for one in (2**20 * 4, 2**20 * 96, 10**9):
        sets = operand_sets(one, l2)
        assert sets * one >= 2 * l2 and (sets == 1 or (sets - 1) * one < 2 * l2)
    assert operand_sets(1000, l2) == MAX_OPERAND_SETS
    assert operand_sets(2**20 * 4, l2, memory_bytes=2**20 * 20) == 5
    assert operand_sets(10**9, l2, memory_bytes=10) == 1


@pytest.mark.parametrize("count", range(6, 60))
def test_the_interval_covers_the_median_and_is_the_narrowest_that_does(count):
    low, high = median_interval(range(1, count + 1))
    rank = int(low)
    assert (low, high) == (rank, count + 1 - rank)

    def coverage(k):
        return 1 - 2 * sum(comb(count, i) for i in range(k)) / 2**count

    assert coverage(rank) >= 0.95 > coverage(rank + 1)


def test_few_samples_give_their_range():
    for count in range(1, 6):
        assert median_interval(range(count)) == (0, count - 1)
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert relative_interval([99.0, 100.0, 101.0]) == pytest.approx(0.02)
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])


def test_a_measurement_is_of_all_samples_in_any_order():
    for samples in itertools.permutations([10.0, 12.0, 11.0]):
        found = measurement("graph/1", samples)
        assert (found.median_us, found.min_us, found.max_us, found.samples) == (11.0, 10.0, 12.0, 3)
        assert found.cv == pytest.approx(0.07423, abs=1e-5)
