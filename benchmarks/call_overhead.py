"""What a call costs on the host: the dispatcher next to Triton's own ways of launching the same kernels, on the GPU at hand.

    python benchmarks/call_overhead.py --out DIR

Prints a table of host µs a call (median over batches, the ways taking turns; the device is let to finish between batches, and is never waited
for within one), the dispatcher's next to the others' (median over turns), what happens after `warm()`, and the first call of a fresh process with
precompiled kernels. Writes call_overhead.json. Takes some 60 s.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton

from tilewright.dispatch import source_module
from tilewright.library import find_operator
from tilewright.runtime import Dispatcher
from tilewright.runtime.kernels import Recorder
from tilewright.runtime.precompiled import precompile
from tilewright.target import named_target

OURS, DIRECT, GRID, TUNED = "dispatcher, out given", "compiled.run(...) direct", "kernel[grid](...)", "triton.autotune"
CALLS, BATCHES = 200, 60  # a launch queue holds some 1,000 launches: a batch never waits for the device
TILES = {"tile_m": [1, 16], "tile_n": [64, 64], "num_warps": 4}
GEMM = {"M": 16, "N": 4096, "K": 4096, "dtype": "bfloat16"}
RMS = {"rows": 64, "cols": 1024, "dtype": "bfloat16"}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "rms_norm 64x1024": ("rms_norm", RMS, {"schedule": "one_pass", "tile_cols": [1, 1024], "tile_rows": [64, 1], "num_warps": 2}),
    "GEMM 16x4096x4096": ("matmul", GEMM, {"schedule": "pointers", **TILES, "tile_k": [32, 128], "num_stages": 5, "split_k": 1}),
    "GEMM split-K 2": ("matmul", GEMM, {"schedule": "pointers", **TILES, "tile_k": [32, 128], "num_stages": 5, "split_k": 2, "reduce_n": 256}),
    "GEMM TMA": ("matmul", GEMM, {"schedule": "tma", **TILES, "tile_k": [32, 128], "num_stages": 4, "split_k": 1}),
}
PRECOMPILE = precompile
SHIMMED = ("gcc", "cc", "g++", "c++", "clang", "clang++", "ptxas", "nvcc", "as", "ld")


def parts(operator: str, parameters: Mapping[str, Any], config: Mapping[str, Any], upto: int = 0) -> tuple[Any, dict[str, Any], Any]:
    """What a dispatcher is made of that knows one schedule, for one shape or a range of the first dim: spec, table, the schedule's module."""
    found = find_operator(operator)
    workload = found.spec.workload(parameters)
    module = source_module(found.render(workload, named_target("sm_90"), dict(config)))
    dim = found.spec.dims[0]
    fixed = {name: value for name, value in workload.parameters.items() if name != dim}
    table = {
        "entries": [] if upto else [{"target": 0, "workload": workload.parameters, "schedule": "it"}],
        "ranges": [{"target": 0, "dim": dim, "fixed": fixed, "ranges": [[1, upto, "it"]], "default": ""}] if upto else [],
    }
    return found.spec, table, module


def dispatcher(spec: Any, table: Any, module: Any, precompiled: Path | None = None) -> Dispatcher:
    return Dispatcher(spec, table, targets=[{"backend": "cuda"}], schedules=lambda _: module, package="call_overhead", precompiled=precompiled)


def tensors(operator: str, parameters: Mapping[str, Any]) -> tuple[tuple[Any, ...], Any]:
    dtype = getattr(torch, parameters["dtype"])
    make = lambda *shape: torch.randn(*shape, device="cuda", dtype=dtype)  # noqa: E731
    if operator == "rms_norm":
        rows, cols = parameters["rows"], parameters["cols"]
        return (make(rows, cols), make(cols)), make(rows, cols)
    m, n, k = parameters["M"], parameters["N"], parameters["K"]
    return (make(m, k), make(k, n)), make(m, n)


def right(operator: str, inputs: tuple[Any, ...], result: Any) -> None:
    if operator == "rms_norm":
        expected = torch.nn.functional.rms_norm(inputs[0].float(), (inputs[0].shape[1],), inputs[1].float(), 1e-6)
    else:
        expected = inputs[0].float() @ inputs[1].float()
    error = float((result.float() - expected).norm() / expected.norm())
    assert error < 1e-2, f"{operator}: relative error {error}"


def host_us(calls: Mapping[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Host time of a call each way, of each batch: the ways take turns, since a core's clock and its neighbours change within a second."""
    for call in calls.values():
        for _ in range(3 * CALLS):
            call()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = {label: [] for label in calls}
    steps = range(CALLS)
    gc.disable()
    try:
        for turn in range(BATCHES):
            for label, call in list(calls.items())[:: -1 if turn % 2 else 1]:
                started = time.perf_counter()
                for _ in steps:
                    call()
                times[label].append((time.perf_counter() - started) / CALLS * 1e6)
                torch.cuda.synchronize()
    finally:
        gc.enable()
    return times


def ways(name: str) -> dict[str, float]:
    """Host µs of each way of making one call."""
    operator, parameters, config = CASES[name]
    spec, table, module = parts(operator, parameters, config)
    made = dispatcher(spec, table, module)
    inputs, out = tensors(operator, parameters)
    call = made.call
    right(operator, inputs, call(*inputs, out=out))
    right(operator, inputs, call(*inputs))
    assert not made.counters()["unplanned"] and all(plan is not None and plan.direct for _, plan in made.recorded())
    scalars = tuple(made.arguments.scalars.values())
    workspace = getattr(module, "workspace", lambda *_: [])(*inputs, *scalars, out)
    scratch = [torch.empty(shape, dtype=getattr(torch, dtype), device="cuda") for shape, dtype in workspace]
    everything = (*inputs, *scalars, out, *scratch)
    launch = module.launch
    calls: dict[str, Callable[[], Any]] = {}

    def way(label: str, one: Callable[[], Any]) -> None:
        try:
            one()
            calls[label] = one
        except Exception:
            traceback.print_exc()

    first, second = inputs
    way(OURS, (lambda: call(first, second, 1e-6, out)) if scalars else lambda: call(first, second, out))
    way("dispatcher, allocates", lambda: call(first, second))
    launches = Recorder().record(launch, everything)
    for one in launches:
        vars(getattr(module, one.kernel.name)).pop("run")  # what listens for recordings costs the others some 0.1 µs
    way("launch(...) of the module", lambda: launch(*everything))
    stream = torch.cuda.current_stream().cuda_stream
    direct = [(one.kernel.run, (*one.grid, stream, one.kernel.function, one.kernel.packed_metadata, None, None, None, *one.arguments)) for one in launches]
    if len(direct) == 1:
        ((run, arguments),) = direct
        way(DIRECT, lambda: run(*arguments))
        kernel = getattr(module, launches[0].kernel.name)
        options = {"num_warps": config["num_warps"], "num_stages": config.get("num_stages", 3), "enable_fp_fusion": True}
        grid, given = launches[0].grid, launches[0].arguments
        way(GRID, lambda: kernel[grid](*given, **options))
        stages, warps = options.pop("num_stages"), options.pop("num_warps")
        configs = [triton.Config({}, num_warps=warps, num_stages=stages), triton.Config({}, num_warps=2 * warps, num_stages=stages)]
        tuned = triton.autotune(configs, ["rows", "cols"] if operator == "rms_norm" else ["M", "N", "K"])(kernel)
        way(TUNED, lambda: tuned[grid](*given, **options))
    else:
        (run, arguments), (run2, arguments2) = direct
        way(DIRECT, lambda: (run(*arguments), run2(*arguments2)))
    if operator == "rms_norm":
        way("torch", lambda: torch.nn.functional.rms_norm(first, (1024,), second, 1e-6))
    else:
        way("torch", lambda: torch.mm(first, second, out=out))
    times = host_us(calls)
    right(operator, inputs, call(*inputs, out=out))
    found = {label: median(one) for label, one in times.items()}
    ours = times[OURS]
    if len(direct) == 1:
        found["above a direct run"] = median(one - base for one, base in zip(ours, times[DIRECT], strict=True))
    for label in (GRID, TUNED):
        if label in times:
            found[f"share of {label}"] = median(one / base for one, base in zip(ours, times[label], strict=True))
    return found


def after_warm(upto: int = 4096, calls: int = 10_000) -> dict[str, Any]:
    """Compiles while calling random rows within a range, after `warm()`."""
    operator, parameters, config = CASES["rms_norm 64x1024"]
    made = dispatcher(*parts(operator, parameters, config, upto))
    started = time.perf_counter()
    seen = made.warm(device=0)
    warm_s = time.perf_counter() - started
    compiled: list[str] = []
    triton.knobs.runtime.jit_post_compile_hook = lambda **what: compiled.append(what["repr"])
    before = made.counters()["compiles"]
    x, w = torch.randn(upto, parameters["cols"], device="cuda", dtype=torch.bfloat16), torch.randn(parameters["cols"], device="cuda", dtype=torch.bfloat16)
    draw = random.Random(0)
    rows = [draw.randint(1, upto) for _ in range(calls)]
    started = time.perf_counter()
    for count in rows:
        y = made.call(x[:count], w)
    torch.cuda.synchronize()
    calls_s = time.perf_counter() - started
    triton.knobs.runtime.jit_post_compile_hook = None
    right(operator, (x[: rows[-1]], w), y)
    fresh = dispatcher(*parts(operator, parameters, config, upto))
    started = time.perf_counter()
    for count in range(1, 501):
        fresh.call(x[:count], w)
    unseen_us = (time.perf_counter() - started) / 500 * 1e6
    return {
        "shapes": seen, "warm_s": warm_s, "compiles_in_warm": before, "calls": calls, "compiled_after": len(compiled) + made.counters()["compiles"] - before,
        "us_a_call": calls_s / calls * 1e6, "us_for_a_shape_not_seen": unseen_us,
    }  # fmt: skip


FIRST_CALL = """
import sys, time
sys.path.insert(0, {here!r})
import torch, triton
import call_overhead as this
from pathlib import Path
operator, parameters, config = this.CASES[{name!r}]
inputs, out = this.tensors(operator, parameters)
spec, table, module = this.parts(operator, parameters, config)
torch.cuda.synchronize()
began = time.perf_counter()
made = this.dispatcher(spec, table, module, Path({folder!r}))
made.call(*inputs, out=out)
torch.cuda.synchronize()
took = time.perf_counter() - began
this.right(operator, inputs, out)
print(took, made.counters()["compiles"], made.counters()["precompiled"], getattr(made.recorder.compiler, "refused", ""))
"""


def first_call(name: str) -> dict[str, Any]:
    """Seconds of the first call of a fresh process with an empty cache, and the compilers that ran: precompiled, and not."""
    operator, parameters, config = CASES[name]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        shims, ran = root / "bin", root / "ran"
        shims.mkdir()
        for tool in SHIMMED:
            really = next((Path(folder) / tool for folder in os.environ["PATH"].split(os.pathsep) if (Path(folder) / tool).exists()), None)
            if tool == "ptxas":
                really = Path(triton.knobs.nvidia.ptxas.path)
            (shims / tool).write_text(
                f'#!/bin/sh\necho {tool} $1 >> {ran}\nexec {really} "$@"\n' if really else f"#!/bin/sh\necho {tool} $1 >> {ran}\nexit 127\n"
            )
            (shims / tool).chmod(0o755)
        made_in = root / "making"
        script = (
            f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\nimport call_overhead as this\nfrom pathlib import Path\n"
            f"made = this.dispatcher(*this.parts(*this.CASES[{name!r}]))\ninputs, out = this.tensors({operator!r}, {dict(parameters)!r})\n"
            f"made.call(*inputs, out=out)\nprint(this.PRECOMPILE(made, Path({str(root / 'kernels')!r})))\n"
        )
        environment = {**os.environ, "TRITON_CACHE_DIR": str(made_in)}
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
        found["making"] = done.stdout.strip() or done.stderr[-2000:]
        # Sources of rendered modules are kept elsewhere; Triton's own cache starts empty each time.
        for way, folder in (("precompiled", root / "kernels"), ("not precompiled", root / "nothing")):
            ran.unlink(missing_ok=True)
            environment = {
                **os.environ, "TRITON_CACHE_DIR": str(root / f"cache {way}"), "PATH": f"{shims}{os.pathsep}{os.environ['PATH']}",
                "TRITON_PTXAS_PATH": str(shims / "ptxas"), "TRITON_PTXAS_BLACKWELL_PATH": str(shims / "ptxas"), "CC": str(shims / "gcc"),
            }  # fmt: skip
            text = FIRST_CALL.format(here=str(Path(__file__).parent), name=name, folder=str(folder))
            done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=environment, check=False)
            found[way] = {"said": done.stdout.strip() or done.stderr[-2000:], "ran": ran.read_text().splitlines() if ran.exists() else []}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"device": torch.cuda.get_device_name(), "triton": triton.__version__, "torch": torch.__version__}

    def part(name: str, work: Callable[[], Any]) -> None:
        began = time.monotonic()
        try:
            results[name] = work()
        except Exception:
            traceback.print_exc()
            results[name] = {"failed": traceback.format_exc()}
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)

    for name in CASES:
        part(name, lambda name=name: ways(name))
    part("after warm", after_warm)
    part("first call", lambda: first_call("GEMM 16x4096x4096"))
    (arguments.out / "call_overhead.json").write_text(json.dumps(results, indent=1) + "\n")
    rows = [OURS, "dispatcher, allocates", DIRECT, GRID, TUNED, "launch(...) of the module", "torch"]
    print(f"\n{results['device']}, Triton {triton.__version__}, torch {torch.__version__}; host µs a call")
    print(f"{'':28s}" + "".join(f"{name:>20s}" for name in CASES))
    for row in rows:
        print(f"{row:28s}" + "".join(f"{results[name].get(row, float('nan')):20.2f}" for name in CASES))
    for name in ("rms_norm 64x1024", "GEMM 16x4096x4096"):
        found = results[name]
        if "failed" in found:
            continue
        above, of_grid, of_tuned = (found.get(row, float("nan")) for row in ("above a direct run", f"share of {GRID}", f"share of {TUNED}"))
        print(f"{name}: {above:+.2f} µs above a direct run (bar +1.5), {of_grid:.2f} of kernel[grid] (bar 0.5), {of_tuned:.2f} of autotune (bar 0.4)")
    print("after warm:", json.dumps(results["after warm"]))
    print("first call (seconds, compiles, precompiled, refused):", json.dumps(results["first call"], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
