"""The first call of a precompiled package in a fresh process: seconds by stage, and every process that it starts.

    python benchmarks/precompiled_first_call.py [--repeat 3] [--out DIR]

Emits a package of three schedules (matmul by pointers, matmul by TMA, rms_norm) for the GPU here, compiles it ahead in a child that sees no GPU, and
calls each function in fresh processes whose Triton cache is an empty folder. Compilers and assemblers on their PATH, and the ptxas that Triton would take,
are shims that write down that they ran and fail; Python's audit hook notes all other processes. What counts is `package` and `first call`, beyond importing
torch and triton and making the CUDA context: at most 0.3 s. Some 60 s on an H200 machine.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from tilewright.best import BestEntry, BestFile, Pins
from tilewright.emit import Mode, emit_package
from tilewright.emit.precompile import precompile_package
from tilewright.library import find_operators
from tilewright.target import Target

NAME = "first_call_kernels"
TILES: dict[str, Any] = {"tile_m": [3, 16], "tile_n": [8, 64], "tile_k": [16, 64], "num_warps": 4, "num_stages": 3, "group_m": 8}
# Two shapes of matmul, so that each schedule serves one.
SCHEDULES: dict[str, tuple[str, dict[str, int | str], dict[str, Any]]] = {
    "matmul, pointers": ("matmul", {"M": 48, "N": 512, "K": 1024, "dtype": "float16"}, {"schedule": "pointers", **TILES, "split_k": 1}),
    "matmul, TMA": ("matmul", {"M": 48, "N": 512, "K": 2048, "dtype": "float16"}, {"schedule": "tma", **TILES, "tile_k": [32, 64], "split_k": 1}),
    "rms_norm": (
        "rms_norm",
        {"rows": 33, "cols": 1000, "dtype": "float16"},
        {"schedule": "one_pass", "tile_cols": [1, 1024], "tile_rows": [33, 1], "num_warps": 2},
    ),
}
SHIMS = ("gcc", "cc", "g++", "c++", "clang", "clang++", "x86_64-linux-gnu-gcc", "nvcc", "ptxas", "ptxas-blackwell", "as", "ld", "cuobjdump", "nvdisasm")
BAR_S = 0.3

CHILD = """
import json, sys, time
spawned = []
def hook(event, arguments):
    if event in ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.system", "os.spawn"):
        spawned.append([event, str(arguments[1] if event == "subprocess.Popen" else arguments[0])[:200]])
sys.addaudithook(hook)
seconds, began = {}, time.perf_counter()
def lap(name):
    global began
    now = time.perf_counter()
    seconds[name] = round(now - began, 4)
    began = time.perf_counter()
import torch
lap("import torch")
import triton, triton.language
lap("import triton")
DEVICE = "cuda"
torch.zeros(1, device=DEVICE)
torch.cuda.synchronize()
lap("CUDA context")
operator, parameters = sys.argv[1], json.loads(sys.argv[2])
generator = torch.Generator(DEVICE).manual_seed(0)
if operator == "rms_norm":
    inputs = [torch.randn(parameters["rows"], parameters["cols"], device=DEVICE, generator=generator).half() for _ in range(2)]
    inputs[1] = inputs[1][0].contiguous()
else:
    inputs = [torch.randn(parameters[a], parameters[b], device=DEVICE, generator=generator).half() for a, b in (("M", "K"), ("K", "N"))]
torch.cuda.synchronize()
lap("inputs")
before = len(spawned)
import PACKAGE as package
lap("package")
result = getattr(package, operator)(*inputs)
torch.cuda.synchronize()
lap("first call")
getattr(package, operator)(*inputs)
torch.cuda.synchronize()
lap("second call")
counted = package.DISPATCHERS[operator].counters()
if operator == "rms_norm":
    expected = torch.nn.functional.rms_norm(inputs[0].float(), (inputs[0].shape[1],), inputs[1].float(), 1e-6)
else:
    expected = inputs[0].float() @ inputs[1].float()
error = float((result.float() - expected).norm() / expected.norm())
names = ("compiles", "compile_s", "precompiled", "not_precompiled", "unplanned")
print(json.dumps({"seconds": seconds, "spawned": spawned[before:], "error": error, **{name: counted.get(name) for name in names}}))
"""


def target_here() -> Target:
    """The GPU's, asked in a child: this process stays without torch."""
    text = "import json; from tilewright.children.device import describe; print(json.dumps(describe('cuda:0')))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    described = json.loads(done.stdout)
    if "target" not in described:
        raise SystemExit(f"no GPU: {described['absent']}")
    return msgspec.convert(described["target"], Target)


def make_package(folder: Path, target: Target) -> Path:
    """The package with its compiled kernels, in a folder of its own name."""
    operators = find_operators()
    entries = []
    for operator, parameters, config in SCHEDULES.values():
        workload = operators[operator].spec.workload(parameters)
        source = operators[operator].instantiate(workload, target, config)
        pins = Pins(protocol="graph/1", source=source.hash, template=source.template_hash)
        entries.append(BestEntry(workload=workload, target=target, config=dict(config), median_us=1.0, pins=pins))
    emitted = emit_package(BestFile(entries=tuple(entries)), operators, folder, name=NAME, mode=Mode.DEFAULT)
    problems = precompile_package(emitted.folder, emitted.plan.targets, target.arch)
    if problems:
        raise SystemExit("\n".join(problems))
    return emitted.folder


def shims(folder: Path) -> Path:
    """Programs that note that they ran, and fail; the log is beside them."""
    folder.mkdir()
    for name in SHIMS:
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >> "{folder}/ran"\nexit 1\n')
        (folder / name).chmod(0o755)
    return folder


def first_call(folder: Path, operator: str, parameters: dict[str, int | str], child: str = CHILD) -> dict[str, Any]:
    """One fresh process."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        fakes = shims(scratch / "shims")
        environment = {name: value for name, value in os.environ.items() if name not in ("CC", "CXX", "TRITON_INTERPRET")}
        environment |= {
            "PATH": f"{fakes}:{os.environ['PATH']}", "TRITON_CACHE_DIR": str(scratch / "cache"), "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1",
            **{f"TRITON_{tool}_PATH": str(fakes / "ptxas") for tool in ("PTXAS", "PTXAS_BLACKWELL")},
        }  # fmt: skip
        command = [sys.executable, "-c", child.replace("PACKAGE", NAME), operator, json.dumps(parameters)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=scratch)
        ran = (fakes / "ran").read_text().splitlines() if (fakes / "ran").exists() else []
        try:
            answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        except (IndexError, ValueError):
            answer = {"failed": done.stderr[-3000:]}
        return {**answer, "compilers_ran": ran}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    results: dict[str, Any] = {}
    good = True
    with tempfile.TemporaryDirectory() as name:
        package = make_package(Path(name), target_here())
        held = sorted(str(path.relative_to(package)) for path in package.glob("_precompiled/**/*") if path.suffix in (".so", ".cubin"))
        print(f"triton {importlib.metadata.version('triton')}; the package holds {len(held)} binaries: {held}")
        for title, (operator, parameters, _) in SCHEDULES.items():
            runs = [first_call(Path(name), operator, parameters) for _ in range(args.repeat)]
            results[title] = runs
            failed = [run["failed"] for run in runs if "failed" in run]
            if failed:
                good = False
                print(f"\n{title}: failed\n{failed[0]}")
                continue
            stages = {stage: median(run["seconds"][stage] for run in runs) for stage in runs[0]["seconds"]}
            beyond = [run["seconds"]["package"] + run["seconds"]["first call"] for run in runs]
            clean = not any(run["compilers_ran"] or run["compiles"] for run in runs) and all(run["precompiled"] and run["error"] < 0.01 for run in runs)
            good = good and clean and median(beyond) <= BAR_S
            print(f"\n{title}: package and first call {median(beyond):.3f} s ({min(beyond):.3f} to {max(beyond):.3f}; bar {BAR_S})")
            print("  " + ", ".join(f"{stage} {value:.3f}" for stage, value in stages.items()))
            last = runs[-1]
            print(f"  compilers run: {last['compilers_ran'] or 'none'}; other processes: {last['spawned'] or 'none'}")
            print("  " + ", ".join(f"{key} {last[key]}" for key in ("compiles", "compile_s", "precompiled", "not_precompiled", "unplanned", "error")))
    print(f"\n{'holds' if good else 'DOES NOT HOLD'}")
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "precompiled_first_call.json").write_text(json.dumps(results, indent=1))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
