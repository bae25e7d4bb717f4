"""Real compiles for devices that are not there. Kernels are small: the compiler is not what is tested."""

import json
import shutil
from dataclasses import replace

import pytest

from tilewright.builder import BuildRequest, CompileBuilder
from tilewright.canonical import sha256_text
from tilewright.legality import exceeded
from tilewright.operator import ScalarSpec, TensorSpec
from tilewright.record import Status
from tilewright.target import NAMED_TARGETS, named_target
from tilewright.template import Source

pytest.importorskip("triton")

HEAD = """\
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


"""

RMS_NORM = (
    HEAD
    + """\
@triton.jit
def rms_norm(x_ptr, w_ptr, y_ptr, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, 0) / N + eps) * w
    tl.store(y_ptr + row * N + cols, y.to(y_ptr.dtype.element_ty), mask=cols < N)


def workspace(x, w, eps, y):
    return [((x.shape[0], 4), "float32"), ((3,), torch.float16)]


def launch(x, w, eps, y, partial, rest):
    rms_norm[(x.shape[0],)](x, w, y, x.shape[1], eps, BLOCK=1024, num_warps=4, enable_fp_fusion=True)
"""
)

GEMM = (
    HEAD
    + """\
@triton.jit
def gemm(a_ptr, b_ptr, c_ptr, K, sa, sb, sc, B: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)
    n = tl.program_id(1) * B + tl.arange(0, B)
    k = tl.arange(0, BK)
    acc = tl.zeros((B, B), tl.float32)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + m[:, None] * sa + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * sb + n[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m[:, None] * sc + n[None, :], acc.to(tl.float16))


def launch(a, b, c):
    grid = lambda meta: (a.shape[0] // meta["B"], b.shape[1] // meta["B"])
    gemm[grid](a, b, c, a.shape[1], a.stride(0), b.stride(0), c.stride(0), B=64, BK=64, num_warps=4, num_stages=3, enable_fp_fusion=True)
"""
)

DESCRIPTORS = (
    HEAD
    + """\
@triton.jit
def copy(a, c_ptr, M, N, B: tl.constexpr):
    c = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[B, B])
    c.store([tl.program_id(0) * B, 0], a.load([tl.program_id(0) * B, 0]))


def launch(a, c):
    copy[(a.shape[0] // 64,)](TensorDescriptor.from_tensor(a, [64, 64]), c, a.shape[0], a.shape[1], B=64, num_warps=4, enable_fp_fusion=True)
"""
)


# Two kernels: a sum over columns in stripes of rows, whose parts a kernel of wider and more blocks adds up. Each fits a block's registers; the most
# registers times the most warps would not.
STRIPES = (
    HEAD
    + """\
@triton.jit
def stripes(x_ptr, part_ptr, M, N, ROWS: tl.constexpr, B: tl.constexpr):
    rows = tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, B)[None, :]
    total = tl.zeros((ROWS, B), tl.float32)
    for start in range(0, M, ROWS):
        total += tl.load(x_ptr + (start + rows) * N + tl.program_id(0) * B + cols).to(tl.float32)
    tl.store(part_ptr + rows * N + tl.program_id(0) * B + cols, total)


@triton.jit
def gather(part_ptr, y_ptr, N, ROWS: tl.constexpr, B: tl.constexpr):
    cols = tl.program_id(0) * B + tl.arange(0, B)
    part = tl.load(part_ptr + tl.arange(0, ROWS)[:, None] * N + cols[None, :])
    tl.store(y_ptr + cols, tl.sum(part, 0).to(tl.float16))


def workspace(x, y):
    return [((WIDE, x.shape[1]), "float32")]


def launch(x, y, part):
    flat = x.view(-1)
    stripes[(x.shape[1] // 128,)](flat, part, x.shape[0], x.shape[1], ROWS=WIDE, B=128, num_warps=2, enable_fp_fusion=True)
    gather[(x.shape[1] // 16,)](part, y, x.shape[1], ROWS=WIDE, B=16, num_warps=32, enable_fp_fusion=True)
"""
).replace("WIDE", "64")


def half(*shape):
    return TensorSpec(shape=shape, dtype="float16")


RMS_ARGUMENTS = (half(64, 1024), half(1024), ScalarSpec(value=1e-6), half(64, 1024))
SQUARE = (half(512, 512), half(512, 512), half(512, 512))


def make_request(text, arguments, target="sm_90", outputs=0):
    chosen = named_target(target) if isinstance(target, str) else target
    source = Source(text=text, hash=sha256_text(text), schedule="s", template_hash="")
    return BuildRequest(source=source, arguments=arguments, target=chosen, outputs=outputs)


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def builder(cache_dir):
    with CompileBuilder(2, cache_dir) as made:
        yield made


def build(builder, *request):
    return builder.submit(make_request(*request)).result(120)


def test_compiles_for_every_named_target(builder):
    futures = {name: builder.submit(make_request(RMS_NORM, RMS_ARGUMENTS, name)) for name in NAMED_TARGETS}
    outcomes = {name: future.result(120) for name, future in futures.items()}
    assert {name: outcome.status for name, outcome in outcomes.items()} == dict.fromkeys(NAMED_TARGETS, Status.OK)
    for outcome in outcomes.values():
        assert 8 <= outcome.resources.registers <= 128 and outcome.resources.spill_bytes == outcome.resources.stack_bytes == 0
        assert outcome.resources.num_warps == 4 and outcome.resources.scratch_bytes == 64 * 4 * 4 + 3 * 2
        assert 0 < outcome.resources.shared_memory_bytes <= 1024 and outcome.build_s > 0
    assert len({outcome.binary for outcome in outcomes.values()}) == len(NAMED_TARGETS)
    assert builder.toolchain.triton.startswith("3.") and builder.toolchain.ptxas.startswith("1") and builder.toolchain.torch.startswith("2.")


def test_gemm_reports_its_shared_memory_and_a_smaller_device_refuses_it(builder):
    outcome = build(builder, GEMM, SQUARE)
    # Three stages of two 64x64 tiles of 2 bytes; on sm_90 a pipelined wgmma keeps all of them.
    assert outcome.status is Status.OK and outcome.resources.shared_memory_bytes == 3 * 2 * 64 * 64 * 2
    small = build(builder, GEMM, SQUARE, replace(named_target("sm_90"), shared_memory_bytes=16384))
    assert small.status is Status.OUT_OF_RESOURCES and small.resources == outcome.resources and small.binary == outcome.binary
    assert "49152" in small.message and "16384" in small.message


def test_programs_are_of_the_workload_that_is_built_for_though_one_binary_serves_many(builder):
    square = build(builder, GEMM, SQUARE)
    wide = build(builder, GEMM, (half(512, 512), half(512, 1024), half(512, 1024)))
    assert wide.binary == square.binary
    assert square.resources.programs == 8 * 8 and wide.resources.programs == 8 * 16
    again = build(builder, GEMM, SQUARE)
    assert again.cached and again.resources == square.resources


def test_of_several_kernels_the_one_that_reads_the_inputs_is_told(builder):
    outcome = build(builder, STRIPES, (half(256, 1024), half(1024)), "sm_90", 1)
    needs = outcome.resources
    assert (outcome.status, outcome.exceeds) == (Status.OK, ()), "each kernel by itself fits a block"
    assert (needs.programs, needs.num_warps) == (1024 // 128, 2)
    assert needs.registers * 32 * 32 > 65536, "with the other kernel's warps it would be too much"
    assert exceeded(needs, named_target("sm_90")) == ()
    assert needs.shared_memory_bytes >= 32 * 4, "the other kernel's: this one needs none"
    small = build(builder, STRIPES, (half(256, 1024), half(1024)), replace(named_target("sm_90"), shared_memory_bytes=64), 1)
    assert small.status is Status.OUT_OF_RESOURCES and "kernel gather needs" in small.message
    assert small.exceeds == (f"shared memory of a block: {needs.shared_memory_bytes:,} of 64 bytes",)


def test_320_kb_of_shared_memory_is_out_of_resources(builder):
    outcome = build(builder, GEMM.replace("num_stages=3", "num_stages=20"), SQUARE)
    assert outcome.status is Status.OUT_OF_RESOURCES and outcome.resources.shared_memory_bytes == 20 * 16384
    assert "327680 bytes" in outcome.message and "232448" in outcome.message
    assert outcome.exceeds == ("shared memory of a block: 327,680 of 232,448 bytes",)


def test_spills_are_known_also_when_triton_has_the_binary_already(builder, cache_dir):
    spilling = RMS_NORM.replace("num_warps=4", "num_warps=1, maxnreg=24")
    first = build(builder, spilling, RMS_ARGUMENTS)
    assert first.status is Status.OK and first.resources.spill_bytes > 0 and first.resources.stack_bytes > 0 and first.resources.registers <= 24
    shutil.rmtree(cache_dir / "builds")
    second = build(builder, spilling, RMS_ARGUMENTS)
    assert not second.cached and second.resources == first.resources
    shutil.rmtree(cache_dir / "builds")
    for side in (cache_dir / "triton").glob("*/tilewright.json"):
        if json.loads(side.read_text())["spill_bytes"]:
            side.unlink()
    assert build(builder, spilling, RMS_ARGUMENTS).resources == first.resources


def test_shapes_of_one_specialisation_share_a_binary(builder):
    one, other = build(builder, GEMM, SQUARE), build(builder, GEMM, (half(1024, 256), half(256, 512), half(1024, 512)))
    assert other.binary == one.binary and not other.cached
    odd = build(builder, GEMM, (half(512, 500), half(500, 512), half(512, 512)))
    assert odd.status is Status.OK and odd.binary != one.binary


def test_an_outcome_is_kept_unless_triton_lost_the_kernel(builder, cache_dir):
    fresh = build(builder, GEMM, (half(256, 256), half(256, 256), half(256, 256)))
    again = build(builder, GEMM, (half(256, 256), half(256, 256), half(256, 256)))
    assert not fresh.cached and again == replace(fresh, cached=True, build_s=0.0)
    for cubin in (cache_dir / "triton").glob("*/gemm.cubin"):
        cubin.unlink()
    repaired = build(builder, GEMM, (half(256, 256), half(256, 256), half(256, 256)))
    assert not repaired.cached and replace(repaired, build_s=0.0) == replace(fresh, build_s=0.0)


def test_descriptors_of_both_kinds(builder):
    arguments = (half(512, 64), half(512, 64))
    outcome = build(builder, DESCRIPTORS, arguments)
    # The device's descriptor is built in global scratch, 128 bytes for each program.
    assert outcome.status is Status.OK and outcome.resources.scratch_bytes == 8 * 128
    ragged = build(builder, DESCRIPTORS, (half(512, 60), half(512, 60)))
    assert ragged.status is Status.LAUNCH_ERROR and "16-byte aligned" in ragged.message


CALLING = GEMM.replace("@triton.jit\n", '@triton.jit\ndef helper(B: tl.constexpr):\n    tl.static_assert(B > 64, "tile too small")\n\n\n@triton.jit\n').replace(
    "    acc = tl.zeros", "    helper(B)\n    acc = tl.zeros"
)
FAILURES = {
    "syntax": ("def launch(:\n", Status.COMPILE_ERROR, "SyntaxError"),
    "no launch": ("x = 1\n", Status.LAUNCH_ERROR, "launch"),
    "no kernel": ("def launch(*arguments):\n    pass\n", Status.LAUNCH_ERROR, "launched no kernel"),
    "launch raises": ("def launch(*arguments):\n    raise ValueError('no good')\n", Status.LAUNCH_ERROR, "ValueError: no good"),
    "launch exits": ("def launch(*arguments):\n    raise SystemExit(4)\n", Status.LAUNCH_ERROR, "SystemExit: 4"),
    "module exits": ("raise SystemExit(4)\n", Status.COMPILE_ERROR, "does not load: SystemExit: 4"),
    # Its own fault, and not this machine's: that would end the session.
    "launch may not": ("def launch(*arguments):\n    raise PermissionError(13, 'Permission denied')\n", Status.LAUNCH_ERROR, "PermissionError"),
    "module may not": ("raise PermissionError(13, 'Permission denied')\n", Status.COMPILE_ERROR, "PermissionError"),
    "warps": (GEMM.replace("num_warps=4", "num_warps=3"), Status.COMPILE_ERROR, "num_warps must be a power of 2"),
    "registers": (GEMM.replace("num_warps=4", "num_warps=4, maxnreg=16"), Status.COMPILE_ERROR, "Insufficient registers"),
    "tile": (GEMM.replace("BK=64", "BK=48"), Status.COMPILE_ERROR, "of `gemm` (`k = tl.arange(0, BK)`): ValueError: arange's range must be a power of 2"),
    "name": (GEMM.replace("acc = tl.dot(a, b, acc)", "acc = tl.dott(a, b, acc)"), Status.COMPILE_ERROR, "dott"),
    "called": (
        CALLING,
        Status.COMPILE_ERROR,
        'at line 2 of `helper` (`tl.static_assert(B > 64, "tile too small")`): CompileTimeAssertionFailure: tile too small',
    ),
    "grid": (GEMM.replace('b.shape[1] // meta["B"])', "70000)"), Status.LAUNCH_ERROR, "70000 blocks along y"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failure_has_a_status_and_a_short_message(builder, name):
    text, status, said = FAILURES[name]
    outcome = build(builder, text, SQUARE)
    assert outcome.status is status and said in outcome.message and len(outcome.message) < 700
    assert build(builder, text, SQUARE) == replace(outcome, cached=True, build_s=0.0)


def test_a_compiler_crash_is_a_compile_error(builder):
    outcome = build(builder, "import ctypes\nctypes.CDLL(None).abort()\n", SQUARE)
    assert outcome.status is Status.COMPILE_ERROR and "SIGABRT" in outcome.message


LEFT_BEHIND = {
    "environment": "os.environ.clear(); os.environ.update(TRITON_CACHE_DIR='/proc/nowhere')",
    "folder": "import tempfile; os.chdir(tempfile.mkdtemp()); os.rmdir(os.getcwd())",
    "fork": "os.fork()",
    "stdout": "__import__('sys').stdout = None",
}


@pytest.mark.parametrize("code", LEFT_BEHIND.values(), ids=LEFT_BEHIND)
def test_what_a_module_leaves_behind_spoils_no_other_build(cache_dir, code):
    """A verdict on another module would be kept, for later sessions too."""
    with CompileBuilder(1, cache_dir) as builder:
        build(builder, f"import os\n\n\ndef launch(*arguments):\n    {code}\n", SQUARE)
        after = build(builder, f"{GEMM}# after {code!r}\n", SQUARE)
        assert after.status is Status.OK and not after.cached, after.message


def test_a_kernel_that_looks_up_a_little_of_an_input_is_not_the_main_one(builder):
    """As the second of two kernels of a loss does, which looks up each row's label in the logits."""
    given = STRIPES.replace("def gather(part_ptr", "def gather(x_ptr, part_ptr").replace("](part, y", "](flat, part, y")
    looking = given.replace("tl.sum(part, 0)", "(tl.sum(part, 0) - tl.load(x_ptr + cols))")
    assert looking.count("x_ptr + cols)") == 1 and looking.count("flat, part, y") == 1
    needs = build(builder, looking, (half(256, 1024), half(1024)), "sm_90", 1).resources
    assert (needs.programs, needs.num_warps) == (1024 // 128, 2)


def test_a_kernel_launched_in_parts_asks_for_what_all_its_launches_ask_for(builder):
    """A sum in 16 launches, each of 64 rows, beside a kernel that reads 128 rows of the input."""
    parts = STRIPES.replace("    for start in range(0, M, ROWS):\n        total +=", "    start = M\n    total +=")
    parts = parts.replace("    stripes[", "    for first in range(0, x.shape[0], 64):\n      stripes[").replace(
        "(flat, part, x.shape[0], ", "(flat, part, first, "
    )
    parts = parts.replace("def gather(part_ptr", "def gather(x_ptr, part_ptr").replace("](part, y", "](flat, part, y")
    looking = parts.replace("tl.sum(part, 0)", "(tl.sum(part, 0) - tl.sum(tl.load(x_ptr + tl.arange(0, 128)[:, None] * N + cols[None, :]), 0))")
    assert looking.count("for first in") == 1 and looking.count("tl.arange(0, 128)[:, None]") == 1 and looking.count("flat, part, first") == 1
    needs = build(builder, looking, (half(1024, 1024), half(1024)), "sm_90", 1).resources
    assert (needs.programs, needs.num_warps) == (1024 // 128, 2)
