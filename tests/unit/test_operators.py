"""Specs and spaces of the shipped operators, without torch."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tilewright.errors import UsageError
from tilewright.library import Operator, find_operator
from tilewright.operator import TensorArg, TensorSpec
from tilewright.target import named_target

SHIPPED = ("matmul", "rms_norm", "softmax")
SM_90 = named_target("sm_90")
# Few multiprocessors: a persistent schedule then has its place at small shapes, whose spaces are quick to list.
SMALL = replace(SM_90, sm_count=2)


def schedules(workload: str) -> set[Any]:
    operator = find_operator("matmul")
    return {config["schedule"] for config in operator.space(operator.spec.workload(workload), SMALL).enumerate()}


@pytest.mark.parametrize("name", SHIPPED)
def test_every_workload_set_is_made_of_valid_workloads(name: str) -> None:
    spec = find_operator(name).spec
    assert "smoke" in spec.workload_sets
    for set_name in spec.workload_sets:
        workloads = spec.workload_set(set_name)
        assert len({workload.key for workload in workloads}) == len(workloads)
        for workload in workloads:
            assert spec.flops(workload) > 0
            assert tuple(spec.inputs(workload)) == spec.arguments


@pytest.mark.parametrize("name", SHIPPED)
def test_infer_reads_back_the_workload_of_its_own_inputs(name: str) -> None:
    spec = find_operator(name).spec
    for workload in [*spec.workload_set("smoke"), *(spec.workload({**dict.fromkeys(spec.dims, 24), **dict(zip(spec.layouts, ("col", "col"), strict=False))}),)]:
        assert spec.workload(spec.infer(tensor_args(spec.inputs(workload)))) == workload


def tensor_args(specs: Any) -> dict[str, TensorArg]:
    def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))

    return {
        name: TensorArg(shape=spec.shape, strides=spec.strides or contiguous(spec.shape), dtype=spec.dtype)
        for name, spec in specs.items()
        if isinstance(spec, TensorSpec)
    }


def infer_matmul(a: tuple[tuple[int, int], tuple[int, int]], b: tuple[tuple[int, int], tuple[int, int]], dtype: str = "float16") -> dict[str, Any]:
    arg = {name: TensorArg(shape=shape, strides=strides, dtype=dtype) for name, (shape, strides) in (("a", a), ("b", b))}
    return dict(find_operator("matmul").spec.infer(arg))


@pytest.mark.parametrize(
    ("shape", "strides", "layout"),
    [
        ((1, 64), (64, 1), "row"),
        ((1, 64), (1, 1), "row"),  # one row: its stride means nothing
        ((1, 64), (1, 7), "col"),  # only the column stride means anything, and it is that of a padded column-major matrix
        ((16, 64), (72, 1), "row"),  # padded
        ((16, 64), (1, 16), "col"),
    ],
)
def test_infer_settles_ambiguous_strides(shape: tuple[int, int], strides: tuple[int, int], layout: str) -> None:
    if strides == (1, 7):
        with pytest.raises(UsageError, match="multiple of 16 bytes"):
            infer_matmul((shape, strides), ((64, 8), (8, 1)))
    else:
        assert infer_matmul((shape, strides), ((64, 8), (8, 1)))["a_layout"] == layout


@pytest.mark.parametrize("cols", [1, 8])
def test_infer_takes_a_single_column(cols: int) -> None:
    found = infer_matmul(((16, 1), (1, 1)), ((1, cols), (cols, 1)))
    assert (found["M"], found["N"], found["K"]) == (16, cols, 1)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (((16, 64), (128, 2)), ((64, 8), (8, 1)), "neither row- nor column-major"),
        (((16, 64), (64, 1)), ((32, 8), (8, 1)), "do not multiply"),
        (((16, 64), (65, 1)), ((64, 8), (8, 1)), "stride of 65 elements"),
    ],
)
def test_infer_refuses_what_no_workload_describes(a: Any, b: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        infer_matmul(a, b)


def test_fp32_tolerance_tells_fp32_from_tf32() -> None:
    spec = find_operator("matmul").spec
    for k in (64, 4096, 28672):
        # tf32 rounds operands to 11 bits, off by some 2**-12.5 in the mean; a sum of random products keeps that relative error.
        assert spec.tolerance(spec.workload({"M": 64, "N": 64, "K": k, "dtype": "float32"})).rel_norm < 2.0**-12.5


def test_matmul_space_is_large_enough_and_can_still_be_listed() -> None:
    operator = find_operator("matmul")
    space = operator.space(operator.spec.workload("M=16,N=6144,K=4096,dtype=bfloat16"), SM_90)
    assert 1_500 <= space.count().legal <= 60_000


def test_every_schedule_has_legal_points() -> None:
    assert schedules("M=64,N=192,K=64") == {"pointers", "tma", "tma_persistent", "tma_thirds"}
    assert "tma_row_thirds" in schedules("M=96,N=6144,K=64")


def test_thirds_stand_where_they_save_a_wave_and_nowhere_else() -> None:
    operator = find_operator("matmul")
    space = operator.space(operator.spec.workload("M=512,N=6144,K=4096,dtype=bfloat16"), SM_90)
    tiles = {(config["tile_m"][-1], config["tile_n"][-1]) for config in space.enumerate() if config["schedule"] == "tma_thirds"}  # type: ignore[index]
    # 4 x 32 tiles of 128 x 192: one wave of 132 multiprocessors, three thirds wide; 192 of 128 columns take two waves of two.
    assert (128, 192) in tiles and (128, 48) not in tiles
    assert "tma_thirds" not in schedules("M=16,N=6144,K=4096,dtype=float32")


def test_a_mix_stands_where_a_last_wave_is_mostly_empty() -> None:
    operator = find_operator("matmul")

    def mixes(text: str) -> set[tuple[int, int, int]]:
        space = operator.space(operator.spec.workload(text), SM_90)
        found = [config for config in space.enumerate() if config["schedule"] == "tma_mixed"]
        return {(config["tile_m"][-1], config["tile_n"][-1], config["rest_n"]) for config in found}  # type: ignore[index, misc]

    # 12 x 112 tiles of 128 x 256: ten waves and 24 tiles, which in 64 columns are 96.
    assert (128, 256, 64) in mixes("M=1536,N=28672,K=4096,dtype=bfloat16")
    # 512 such tiles: three waves and 116 tiles, which fill a fourth.
    assert not mixes("M=4096,N=4096,K=4096,dtype=bfloat16")


def test_row_thirds_stand_where_they_save_a_wave_or_padded_rows() -> None:
    operator = find_operator("matmul")

    def tiles(text: str) -> set[tuple[int, int]]:
        space = operator.space(operator.spec.workload(text), SM_90)
        return {(config["tile_m"][-1], config["tile_n"][-1]) for config in space.enumerate() if config["schedule"] == "tma_row_thirds"}  # type: ignore[index]

    # 8 x 48 tiles of 192 x 128: three waves, three thirds high; 576 of 128 rows take five waves of two.
    assert (192, 128) in tiles("M=1536,N=6144,K=4096,dtype=bfloat16")
    # One tile of 96 rows does three quarters of the work of one of 128.
    assert (96, 64) in tiles("M=96,N=6144,K=4096,dtype=bfloat16") and (96, 64) not in tiles("M=128,N=6144,K=4096,dtype=bfloat16")
    assert not tiles("M=4096,N=4096,K=4096,dtype=bfloat16") and not tiles("M=1536,N=6144,K=4096,dtype=float32")


@pytest.mark.parametrize("arch", ["sm_80", "gfx942"])
def test_tma_is_cut_where_there_is_none_and_says_so(arch: str) -> None:
    operator = find_operator("matmul")
    space = operator.space(operator.spec.workload("M=64,N=64,K=64"), named_target(arch))
    assert {config["schedule"] for config in space.enumerate()} == {"pointers"}
    assert "TMA descriptors need sm_90 or later" in {**space.count().cuts, **space.count().rejected}


def test_tma_is_cut_where_a_stride_does_not_suit_it() -> None:
    assert schedules("M=64,N=50,K=64") == {"pointers"}
    # b column-major has K for its stride; c is stored by pointers.
    assert schedules("M=64,N=50,K=64,b_layout=col") == {"pointers", "tma"}


def test_no_two_legal_configs_render_the_same_kernel() -> None:
    operator = find_operator("matmul")
    workload = operator.spec.workload("M=17,N=40,K=64")
    texts: dict[str, dict[str, Any]] = {}
    for config in operator.space(workload, SMALL).enumerate():
        text = operator.render(workload, SMALL, config).text
        assert text not in texts, f"{config} and {texts.get(text)}"
        texts[text] = config


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "gfx942"])
@pytest.mark.parametrize(
    ("name", "workload"),
    [
        ("matmul", "M=1,N=6144,K=4096,dtype=bfloat16"),
        ("matmul", "M=77,N=5000,K=4104"),
        ("matmul", "M=1,N=1,K=1"),
        ("matmul", "M=4096,N=4096,K=4096,dtype=float32,a_layout=col"),
        ("rms_norm", "rows=2048,cols=32768"),
        ("rms_norm", "rows=1,cols=1"),
        ("softmax", "rows=16,cols=128256"),
    ],
)
def test_the_author_suggests_something_everywhere(name: str, workload: str, arch: str) -> None:
    operator = find_operator(name)
    space = operator.space(operator.spec.workload(workload), named_target(arch))
    assert 1 <= len(space.suggestions()) <= 24
    assert space.default() == space.suggestions()[0]


@pytest.mark.parametrize("name", SHIPPED)
def test_extents_do_not_leak_into_the_text(name: str) -> None:
    operator: Operator = find_operator(name)
    workload = operator.spec.workload(dict.fromkeys(operator.spec.dims, 1024))
    for config in operator.space(workload, SM_90).suggestions():
        leaking = operator.leaking_dims(workload, SM_90, config)
        # The tile of a schedule that holds whole rows is the next power of two of the row, and only that.
        assert leaking == () or config["schedule"] == "one_pass"
