"""What the general estimate makes of a tile that knobs name, of operands' layouts, and of what bounds a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tilewright.crosswise import crosswise_operands
from tilewright.errors import UsageError
from tilewright.estimate import estimate_for, general_us
from tilewright.history import Kinship
from tilewright.library import find_operator
from tilewright.operator import OperatorSpec, TensorSpec
from tilewright.record import Config, Resources
from tilewright.target import named_target
from tilewright.workload import Workload

MATMUL = replace(find_operator("matmul").spec, predict=None)
H200 = named_target("sm_90")


def product(dims: str, *, a_layout: str = "row", b_layout: str = "row") -> Workload:
    return MATMUL.workload(f"{dims},dtype=bfloat16,a_layout={a_layout},b_layout={b_layout}")


def estimated(workload: Workload, config: Config, *, registers: int = 64, shared: int = 98304, warps: int = 4) -> float:
    estimate = estimate_for(MATMUL, workload, H200)
    assert estimate is not None
    found = estimate(config, Resources(shared_memory_bytes=shared, registers=registers, num_warps=warps))
    assert found is not None
    return found


@pytest.mark.parametrize(("a_layout", "b_layout", "count"), [("row", "row", 1), ("row", "col", 0), ("col", "row", 2), ("col", "col", 1)])
def test_an_operand_lies_across_the_sums_or_along_them(a_layout: str, b_layout: str, count: int):
    # Told apart by dims, not by extents: here N and K are equal.
    assert crosswise_operands(MATMUL, product("M=64,N=4096,K=4096", a_layout=a_layout, b_layout=b_layout)) == count


def test_where_nothing_is_summed_or_told_it_is_the_usual_one():
    softmax = find_operator("softmax").spec
    assert crosswise_operands(softmax, softmax.workload("rows=64,cols=1024,dtype=bfloat16")) == 1

    def refusing(workload: Workload) -> Mapping[str, TensorSpec]:
        if workload.dims["K"] > 64:
            raise UsageError("K too large")
        return {"a": TensorSpec(shape=(workload.dims["M"], workload.dims["K"]), dtype="float16", strides=(1, workload.dims["M"]))}

    assert crosswise_operands(replace(MATMUL, inputs=refusing), product("M=64,N=64,K=64")) == 1


def test_a_workload_of_an_older_spec_is_history_without_an_estimate_or_with_the_usual_layout():
    kinship = Kinship(workload=product("M=16,N=4096,K=4096"), target=H200, spec=MATMUL)
    needs = Resources(shared_memory_bytes=98304, registers=64, num_warps=4)

    def heard(workload: Workload) -> float | None:
        result = kinship.heard(workload, {"BM": 16, "BN": 64}, 10.0, needs)
        assert result.time_us == 10.0
        return result.estimate_us

    dims = {"M": 16, "N": 4096, "K": 4096}
    # As it was before operands had layouts: `inputs` refuses it; and before it had K, which `outputs` does.
    assert heard(Workload(operator="matmul", dims=dims, dtypes={"dtype": "bfloat16"})) == heard(product("M=16,N=4096,K=4096"))
    assert heard(Workload(operator="matmul", dims={"M": 16, "N": 4096}, dtypes={"dtype": "bfloat16"})) is None


def test_an_operator_whose_result_is_a_single_number_has_an_estimate_too():
    needs = Resources(shared_memory_bytes=98304, registers=64, num_warps=4, programs=132)
    found = general_us(flops=1e9, bytes_moved=1e6, outputs=(), target=H200, dtype="bfloat16", resources=needs, programs=132)
    assert found is not None
    assert found > 4.0  # a launch


def test_weights_stored_by_output_are_along_the_sums():
    def inputs(workload: Workload) -> Mapping[str, TensorSpec]:
        m, n, k = (workload.dims[name] for name in "MNK")
        return {"x": TensorSpec(shape=(m, k), dtype="bfloat16"), "weight": TensorSpec(shape=(n, k), dtype="bfloat16")}

    linear: OperatorSpec = replace(MATMUL, inputs=inputs)
    assert crosswise_operands(linear, product("M=64,N=4096,K=4096")) == 0


def test_narrow_tiles_cost_less_where_operands_lie_along_the_sums():
    narrow: Config = {"BM": 16, "BN": 32, "BK": 256, "stages": 4}
    wide: Config = {"BM": 16, "BN": 256, "BK": 64, "stages": 4}
    across, along = product("M=16,N=4096,K=4096"), product("M=16,N=4096,K=4096", b_layout="col")
    assert estimated(along, narrow) < estimated(across, narrow)
    assert estimated(along, narrow) / estimated(along, wide) < estimated(across, narrow) / estimated(across, wide)


def test_registers_that_hold_something_else_are_no_padding_where_the_tile_is_named():
    workload = product("M=16,N=4096,K=4096", b_layout="col")
    named: Config = {"BM": 16, "BN": 32, "BK": 256, "stages": 4}
    few, many = (estimated(workload, named, registers=registers) for registers in (32, 96))
    assert many == few
    # Rows past the result's are work all the same.
    assert estimated(workload, {**named, "BM": 128}, registers=96) > 1.2 * many


@pytest.mark.parametrize(("deeper", "shallower"), [({"BK": 64, "stages": 4}, {"BK": 128, "stages": 2}), ({"BK": 64, "stages": 3}, {"BK": 32, "stages": 3})])
def test_what_is_on_its_way_hides_latency_and_what_is_worked_on_does_not(deeper: Config, shallower: Config):
    workload = product("M=1024,N=1024,K=16384")
    tile: Config = {"BM": 128, "BN": 256}
    of_both = {"registers": 200, "shared": 196608, "warps": 8}
    assert estimated(workload, {**tile, **deeper}, **of_both) < estimated(workload, {**tile, **shallower}, **of_both)
    # Without names nothing but shared memory says what is on its way.
    unnamed = [estimated(workload, {f"knob_{name}": value for name, value in {**tile, **config}.items()}, **of_both) for config in (deeper, shallower)]
    assert unnamed[0] == unnamed[1]


def test_candidates_bound_by_memory_are_told_apart_by_the_rest():
    def time_us(shared: int) -> float:
        held = Resources(shared_memory_bytes=shared, registers=128, num_warps=4, programs=224)
        found = general_us(
            flops=2.0 * 128 * 28672 * 4096, bytes_moved=2.0 * 28672 * 4096, outputs=(128, 28672), target=H200, dtype="bfloat16", resources=held, programs=224
        )
        assert found is not None
        return found

    assert time_us(98304) < time_us(16384) < 1.5 * time_us(98304)
