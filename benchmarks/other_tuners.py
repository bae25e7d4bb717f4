"""triton.autotune and torch.compile on bf16 GEMMs, and Tilewright's winners, timed side by side by graph replay; for search_h200.py.

The kernel and the eight configs of `triton.autotune` are those of Triton's matrix multiplication tutorial (03-matrix-multiplication.py).
"""

from __future__ import annotations

import importlib.util
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton
import triton.language as tl

from tilewright.library import find_operator
from tilewright.record import Config
from tilewright.target import Target

ROUNDS = 15
ROUND_US = 3_000.0  # about how long one side of a round replays
MOST_SETS = 16

# (BM, BN, BK, GROUP_M, stages, warps) of the tutorial's get_cuda_autotune_config, its fp16 half.
TUTORIAL = (
    (128, 256, 64, 8, 3, 8), (64, 256, 32, 8, 4, 4), (128, 128, 32, 8, 4, 4), (128, 64, 32, 8, 4, 4),
    (64, 128, 32, 8, 4, 4), (128, 32, 32, 8, 4, 4), (64, 32, 32, 8, 5, 2), (32, 64, 32, 8, 5, 2),
)  # fmt: skip


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": g}, num_stages=stages, num_warps=warps) for m, n, k, g, stages, warps in TUTORIAL
    ],
    key=["M", "N", "K"],
)
@triton.jit
def tutorial_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    num_m = tl.cdiv(M, BLOCK_M)
    num_n = tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP_M * num_n)
    first = group * GROUP_M
    size = min(num_m - first, GROUP_M)
    pid_m = first + ((pid % (GROUP_M * num_n)) % size)
    pid_n = (pid % (GROUP_M * num_n)) // size
    offs_am = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_bn = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * offs_m[:, None] + stride_cn * offs_n[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


Product = Callable[[Any, Any, Any], Any]


def autotuned(a: Any, b: Any, c: Any) -> Any:
    m, k = a.shape
    n = b.shape[1]
    tutorial_kernel[lambda meta: (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)](a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride())
    return c


def schedule(operator: str, parameters: str, config: Config, folder: Path) -> Product:
    """A schedule's own launch, on this device."""
    from tilewright.children.device import describe

    target = Target(**describe("cuda:0")["target"])
    found = find_operator(operator, ())
    source = found.instantiate(found.workload(parameters), target, config)
    path = folder / f"schedule_{source.hash[:12]}.py"
    path.write_text(source.text, encoding="utf-8")
    description = importlib.util.spec_from_file_location(path.stem, path)
    assert description is not None and description.loader is not None
    module = importlib.util.module_from_spec(description)
    sys.modules[path.stem] = module
    description.loader.exec_module(module)
    scratch: dict[tuple[Any, ...], list[Any]] = {}

    def product(a: Any, b: Any, c: Any) -> Any:
        key = (a.data_ptr(), c.data_ptr())
        if key not in scratch:
            wanted = module.workspace(a, b, c) if hasattr(module, "workspace") else []
            scratch[key] = [torch.empty(shape, dtype=getattr(torch, dtype), device=a.device) for shape, dtype in wanted]
        module.launch(a, b, c, *scratch[key])
        return c

    return product


def graph_of(product: Product, sets: list[tuple[Any, Any, Any]]) -> Any:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for operands in sets:
            product(*operands)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for operands in sets:
            product(*operands)
    return graph


def replay_us(graph: Any, calls: int, times: int) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(times):
        graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1000 / (calls * times)


def compare(shapes: Mapping[str, str], ours: Mapping[str, Mapping[str, Any]], operator: str, *, limit_s: float) -> list[dict[str, Any]]:
    """Tune each shape with each tuner, then time all in turns."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
    torch.zeros(1, device="cuda")
    warm = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16)
    torch.mm(warm, warm)
    began = time.monotonic()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, parameters in shapes.items():
            if time.monotonic() - began > limit_s:
                print(f"{name}: not reached")
                break
            m, n, k = (int(extent) for extent in name.split("x"))
            one = 2 * (m * k + k * n + m * n)
            count = max(1, min(MOST_SETS, math.ceil(2 * torch.cuda.get_device_properties(0).L2_cache_size / one)))

            def operands(m: int = m, n: int = n, k: int = k) -> tuple[Any, Any, Any]:
                a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
                b = torch.randn(k, n, device="cuda", dtype=torch.bfloat16) * k**-0.5
                return a, b, torch.empty(m, n, device="cuda", dtype=torch.bfloat16)

            sets = [operands() for _ in range(count)]
            compiled = torch.compile(lambda a, b: torch.mm(a, b), mode="max-autotune-no-cudagraphs", dynamic=False)
            tuners: dict[str, tuple[Product, float | None]] = {"cuBLAS (torch.mm)": (lambda a, b, c: torch.mm(a, b, out=c), None)}
            tuners["triton.autotune, tutorial"] = (autotuned, None)
            tuners["torch.compile max-autotune"] = (lambda a, b, c, compiled=compiled: compiled(a, b), None)
            if name in ours:
                tuners["tilewright, cold"] = (schedule(operator, parameters, ours[name]["config"], Path(folder)), ours[name]["seconds"])
            graphs: dict[str, Any] = {}
            expected = torch.mm(sets[0][0].float(), sets[0][1].float())
            mine: dict[str, dict[str, Any]] = {}
            for tuner, (product, seconds) in tuners.items():
                row: dict[str, Any] = {"shape": name, "tuner": tuner, "seconds": seconds, "us": None, "over_ours": None}
                mine[tuner] = row
                try:
                    torch.cuda.synchronize()
                    start = time.monotonic()
                    result = product(*sets[0])
                    torch.cuda.synchronize()
                    if seconds is None:
                        row["seconds"] = round(time.monotonic() - start, 2)
                    error = float((result.float() - expected).norm() / expected.norm())
                    row["rel_norm"] = error
                    graphs[tuner] = graph_of(product, sets)
                except Exception as error:
                    row["failed"] = f"{type(error).__name__}: {str(error)[:200]}"
            times: dict[str, list[float]] = {tuner: [] for tuner in graphs}
            reference = next(iter(graphs))
            repeats = max(1, int(ROUND_US / (count * max(1.0, replay_us(graphs[reference], count, 3)))))
            for turn in range(ROUNDS):
                order = list(graphs) if turn % 2 else list(graphs)[::-1]
                for tuner in order:
                    times[tuner].append(replay_us(graphs[tuner], count, repeats))
            base = times.get("tilewright, cold")
            for tuner, us in times.items():
                mine[tuner]["us"] = round(median(us), 3)
                mine[tuner]["over_ours"] = round(median(t / o for t, o in zip(us, base, strict=True)), 4) if base else None
            rows += mine.values()
            graphs.clear()
            del sets
            torch.cuda.empty_cache()
    return rows
