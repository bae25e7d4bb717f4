"""What is read from the compilers' texts, and what a target refuses."""

from dataclasses import replace

import pytest

from tilewright.children.resources import KernelResources, amdgcn_usage, bad_grid, cubin_usage, loaded_bytes, main_kernel, over_limits, spill_bytes, summary
from tilewright.target import named_target

PTXAS_LOG = """\
ptxas-blackwell info    : 0 bytes gmem
ptxas-blackwell info    : Compiling entry function 'gemm' for 'sm_90a'
ptxas-blackwell info    : Function properties for gemm
    4360 bytes stack frame, 10260 bytes spill stores, 9560 bytes spill loads
ptxas-blackwell info    : Used 255 registers, used 1 barriers, 4360 bytes cumulative stack size
"""
CUBIN = """
Resource usage:
 Common:
  GLOBAL:0
 Function helper:
  REG:40 STACK:16 SHARED:0 LOCAL:0 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function gemm:
  REG:200 STACK:0 SHARED:1024 LOCAL:0 CONSTANT[0]:592 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
AMDGCN = """
    .amdhsa_private_segment_fixed_size 0
  - .agpr_count:     64
    .private_segment_fixed_size: 128
    .sgpr_count:     46
    .sgpr_spill_count: 3
    .vgpr_count:     184
    .vgpr_spill_count: 5
"""
KERNEL = KernelResources(name="gemm", shared_memory_bytes=1024, num_warps=4, warp_size=32, grid=(8,), registers=128)
SM_90 = named_target("sm_90").to_json()


def test_spills_are_stores_and_loads_over_all_functions():
    assert spill_bytes(PTXAS_LOG) == 19820
    assert spill_bytes(PTXAS_LOG + "    0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads") == 19832
    assert spill_bytes("ptxas info    : 0 bytes gmem") is None


def test_registers_and_stack_are_the_most_of_a_cubin():
    assert cubin_usage(CUBIN) == (200, 16)
    assert cubin_usage("cuobjdump fatal: no such file") is None


def test_amd_metadata():
    assert amdgcn_usage(AMDGCN) == (184, 128, 20)
    assert amdgcn_usage("s_endpgm") == (None, None, None)


@pytest.mark.parametrize(
    ("change", "figures", "limit"),
    [
        ({"shared_memory_bytes": 327680}, ["327680", "232448", "sm_90"], "shared memory of a block: 327,680 of 232,448 bytes"),
        ({"tensor_memory_columns": 640}, ["640", "512"], "tensor memory of a block: 640 of 512 columns"),
        ({"num_warps": 64, "registers": 16}, ["2048", "1024"], "threads of a block: 2,048 of 1,024"),
        ({"num_warps": 16, "registers": 136}, ["69632", "65536"], "registers of a block: 69,632 of 65,536"),
    ],
)
def test_over_limits_names_both_figures(change, figures, limit):
    (broken,) = over_limits(replace(KERNEL, **change), SM_90)
    assert all(figure in broken.reason for figure in figures) and "gemm" in broken.reason
    assert broken.limit == limit


def test_the_limits_themselves_are_legal():
    most = replace(KERNEL, shared_memory_bytes=232448, num_warps=8, registers=255, tensor_memory_columns=512)
    assert list(over_limits(most, SM_90)) == [] and list(over_limits(replace(most, num_warps=32, registers=64), SM_90)) == []
    # AMD's registers are counted otherwise; its compiler keeps to the limit.
    assert list(over_limits(replace(KERNEL, num_warps=16, warp_size=64, registers=512), named_target("gfx942").to_json())) == []


def test_grid_limits():
    assert bad_grid(replace(KERNEL, grid=(2**31 - 1, 65535, 65535))) == ""
    assert "65536 blocks along y" in bad_grid(replace(KERNEL, grid=(1, 65536)))


def test_summary_is_of_the_main_kernel_and_of_what_limits_hold_the_most():
    gather = replace(KERNEL, name="gather", shared_memory_bytes=2048, registers=200, spill_bytes=12, scratch_bytes=100, num_warps=8, grid=(64, 2))
    main = replace(KERNEL, input_bytes=100)
    told = {"shared_memory_bytes": 2048, "registers": 128, "spill_bytes": 12, "scratch_bytes": 1100, "num_warps": 4, "programs": 8}
    assert summary([main, gather], 1000) == summary([gather, main], 1000) == told
    assert "registers" not in summary([replace(main, registers=None), gather], 0), "not those of another kernel"


@pytest.mark.parametrize(
    ("main", "other"),
    [
        ({"product": True, "input_bytes": 10}, {"input_bytes": 1000, "grid": (4096,)}),  # what rounds an operand before the product
        ({"input_bytes": 10}, {"output_bytes": 1000, "grid": (4096,), "shared_memory_bytes": 99_999}),  # what adds up the parts of a large result
        ({"input_bytes": 10, "output_bytes": 5}, {"input_bytes": 10, "grid": (4096,)}),  # the second pass of two over the same rows
        ({"grid": (8,), "num_warps": 8}, {"grid": (12,)}),
    ],
)
def test_the_main_kernel_is_the_one_that_does_most_of_the_work(main, other):
    one, two = replace(KERNEL, name="main", **main), replace(KERNEL, name="other", **other)
    assert main_kernel([one, two]) is main_kernel([two, one]) is one


@pytest.mark.parametrize(
    ("line", "loaded"),
    [
        ("%x = tt.load %p, %mask, %zero : tensor<4x16x!tt.ptr<f32>> loc(#loc31)", 256),
        ("%x = tt.load %p evictionPolicy = evict_first : tensor<4x!tt.ptr<i64>> loc(#loc39)", 32),
        ('%x = tt.load %p : !tt.ptr<bf16> loc(fused["a : tensor<64x!tt.ptr<f64>>"](#loc3))', 2),
        ("%x = tt.load %p {isVolatile = false} : tensor<8x!tt.ptr<i1>>", 8),
        ("%x = tt.load %p : !tt.ptr<f8E5M2>", 1),
        ("%x = tt.descriptor_load %d[%c0, %c0] : !tt.tensordesc<4x16xf32> -> tensor<4x16xbf16> loc(#loc45)", 128),
        ("%x = tt.descriptor_gather %d[%i, %c] : (!tt.tensordesc<tensor<1x32xbf16>>, tensor<8xi32>, i32) -> tensor<8x32xbf16>", 512),
        ("%x = tt.atomic_rmw add, acq_rel, gpu, %p, %v, %m : (tensor<8x!tt.ptr<i32>>, tensor<8xi32>, tensor<8xi1>) -> tensor<8xi32> loc(#loc9)", 32),
        ("tt.store %p, %x : tensor<64x!tt.ptr<f32>> loc(#loc)", 0),
        ('%x = tt.elementwise_inline_asm "cvt.rn.f16.f32 $0, $1;" {packed_element = 1 : i32, pure = true} %y : tensor<8xf32> -> tensor<8xf16> loc(#loc)', 0),
        ("%x = tt.load %p : tensor<8x!tt.ptr<f32, 3>>", 32),
        ("%x = tt.load %p {tt.divisibility = dense<16> : tensor<1xi32>} : !tt.ptr<i64> loc(#loc14)", 8),
        ("%x = tt.load %p : tensor<8x!tt.ptr<!tt.ptr<f32>>>", None),
        ("%x = tt.load %p {tt.divisibility = dense<16> : tensor<1xi32>} : tensor<8x!tt.ptr<!tt.ptr<f32>>>", None),
    ],
)
def test_bytes_that_a_program_loads(line, loaded):
    assert loaded_bytes(line) == loaded
    other = "%y = tt.load %q : tensor<2x!tt.ptr<i16>>"
    assert loaded_bytes(f"{line}\n    {other}") == (None if loaded is None else loaded + 4)


@pytest.mark.parametrize(
    "repeats",
    [
        "scf.for %i = %c0 to %n step %c1 : i32 {",
        "scf.while : () -> () {",
        "cf.cond_br %more, ^bb1, ^bb2",
        "%y = tt.call @f(%x) : (f32) -> f32",
        '%y = tt.elementwise_inline_asm "ld.global.b32 $0, [$1];" {packed_element = 1 : i32} %q : tensor<8x!tt.ptr<i32>> -> tensor<8xi32> loc(#loc12)',
        '%y = tt.elementwise_inline_asm "ld.global.b32 $0, [$1];" {packed_element = 1 : i32} %q : tensor<8xi64> -> tensor<8xi32> loc(#loc14)',
    ],
)
def test_loads_that_may_be_repeated_or_hidden_are_not_counted(repeats):
    assert loaded_bytes(f"%x = tt.load %p : !tt.ptr<f32>\n{repeats}") is None
