"""An emitted package against torch.matmul on the GPU here: every shape of its table checked, and timed by graph replay.

    python benchmarks/emitted_matmul.py LOG... [--out DIR] [--seconds 120]
    python benchmarks/emitted_matmul.py best.jsonl [--out DIR]

Makes the best file of the logs, or takes one (as of `tilewright best LOG... --cover M`), and emits it twice, without and with vendors' kernels among the
choices, imports both, and for each matmul of the table: checks the
result against the operator's reference, captures the package's call and torch.matmul into CUDA graphs over rotating operands (cold in L2),
and replays the two in two ways. In turns of 3 ms: the ratio is the median over rounds of torch's time over the package's. Alone: each for 80 ms, of which
the last 40 count; three times, medians: under steady load, where large products are held down by power (torch's 4096 x 28672 x 4096 took 1,227 µs in
turns and 1,477 alone; H200, 2026-11). Some 1 s a shape and package on an
H200, some 150 s for 72 shapes and both packages. A shape that fails is named, and the others go on.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from tilewright.best import BestFile, parse_best_file
from tilewright.cli import main as tilewright
from tilewright.commands.best import is_best_file
from tilewright.emit import Mode, emit_package
from tilewright.library import find_operators

ROUNDS = 9
MOST_SETS = 16  # copies of the operands
ROUND_US = 3_000.0  # about how long one side of a round replays
ALONE_US = 40_000.0  # settles as long, then is timed as long; a power cap sets in within some ms
ALONE_ROUNDS = 3
DEVICE = "cuda"
BARS = {"schedules_alone": (1.0, 0.93), "with_vendors": (1.015, 0.0)}  # geometric mean and least ratio, at least


def graph_of(calls: list[Callable[[], Any]]) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def replay_us(graph: torch.cuda.CUDAGraph, calls: int, times: int) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(times):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1000 / (calls * times)


def measure(function: Callable[..., Any], reference: Any, spec: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    """One shape: whether it is right, and both times."""
    workload = spec.workload(parameters)
    specs = spec.inputs(workload)
    generator = torch.Generator(DEVICE).manual_seed(0)
    inputs = reference.make_inputs(workload, specs, generator, DEVICE)
    (expected,) = reference.reference(workload, inputs).values()
    out = function(inputs["a"], inputs["b"])
    error = out.double() - expected.double()
    tolerance = spec.tolerance(workload)
    rel_norm = float(error.norm() / expected.double().norm())
    worst = float(error.abs().max() / expected.double().square().mean().sqrt())
    right = rel_norm <= tolerance.rel_norm and worst <= tolerance.max_error
    del expected, error
    one = sum(tensor.numel() * tensor.element_size() for tensor in (inputs["a"], inputs["b"], out))
    count = max(1, min(MOST_SETS, math.ceil(2 * torch.cuda.get_device_properties(0).L2_cache_size / one)))
    sets = [inputs, *(reference.make_inputs(workload, specs, generator, DEVICE) for _ in range(count - 1))]
    # Without `out`: a vendor's kernel allocates its result, and would be followed by a copy. Under capture, allocating costs nothing.
    ours = graph_of([lambda s=s: function(s["a"], s["b"]) for s in sets])
    theirs = graph_of([lambda s=s: torch.matmul(s["a"], s["b"]) for s in sets])
    times = max(1, int(ROUND_US / (count * max(1.0, replay_us(theirs, count, 3)))))
    pairs = []
    for turn in range(ROUNDS):
        order = (ours, theirs) if turn % 2 else (theirs, ours)
        timed = {id(graph): replay_us(graph, count, times) for graph in order}
        pairs.append((timed[id(ours)], timed[id(theirs)]))
    steps = max(1, int(ALONE_US / ROUND_US * times))
    alone: dict[int, list[float]] = {id(ours): [], id(theirs): []}
    for _ in range(ALONE_ROUNDS):
        for graph in (ours, theirs):
            replay_us(graph, count, steps)
            alone[id(graph)].append(replay_us(graph, count, steps))
    alone_us, torch_alone_us = median(alone[id(ours)]), median(alone[id(theirs)])
    return {
        "right": right,
        "rel_norm": rel_norm,
        "us": median(pair[0] for pair in pairs),
        "torch_us": median(pair[1] for pair in pairs),
        "ratio": median(theirs_us / ours_us for ours_us, theirs_us in pairs),
        "alone_us": alone_us,
        "torch_alone_us": torch_alone_us,
        "ratio_alone": torch_alone_us / alone_us,
    }


def attack(package: str, seconds: float) -> list[dict[str, Any]]:
    """All shapes of a package's table."""
    began = time.perf_counter()
    module = importlib.import_module(package)
    spec = importlib.import_module(f"{package}._spec_matmul").SPEC
    reference = importlib.import_module(f"{package}._reference_matmul")
    entries = importlib.import_module(f"{package}._table").TABLES["matmul"]["entries"]
    rows = []
    for entry in entries:
        row = {**entry["workload"], "choice": entry["vendor"] or entry["schedule"]}
        if time.perf_counter() - began > seconds:
            row["failed"] = "not reached in the time given"
        else:
            try:
                with torch.no_grad():
                    row |= measure(module.matmul, reference, spec, dict(entry["workload"]))
            except Exception as error:
                traceback.print_exc()
                row["failed"] = f"{type(error).__name__}: {error}"
            torch.cuda.empty_cache()
        rows.append(row)
    return rows


def geometric_mean(ratios: list[float]) -> float | None:
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if ratios else None


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    timed = [row for row in rows if "ratio" in row]
    vendor = sum(not row["choice"].startswith("matmul_") for row in rows)
    return {
        "shapes": len(rows),
        "timed": len(timed),
        "right": sum(row["right"] for row in timed),
        "geometric_mean": geometric_mean([row["ratio"] for row in timed]),
        "least": min((row["ratio"] for row in timed), default=None),
        "geometric_mean_alone": geometric_mean([row["ratio_alone"] for row in timed]),
        "least_alone": min((row["ratio_alone"] for row in timed), default=None),
        "vendor_share": vendor / len(rows) if rows else None,
        "schedules": len({row["choice"] for row in rows}),
    }


def best_of(paths: list[Path], folder: Path) -> BestFile:
    """A best file as it is, or what `tilewright best` makes of logs."""
    path = paths[0]
    if not is_best_file(path):
        path = folder / "best.jsonl"
        if tilewright(["best", *map(str, paths), "-o", str(path)]):
            raise SystemExit("no best file")
    return parse_best_file(path.read_text(encoding="utf-8"), str(path))


def verdict(name: str, told: dict[str, Any]) -> str:
    mean, least = BARS[name]
    if told["timed"] < told["shapes"] or told["right"] < told["shapes"]:
        return f"DOES NOT HOLD: {told['shapes'] - told['right']} shapes are wrong or were not measured"
    lines = []
    for way, key in (("in turns", ""), ("alone", "_alone")):
        held = told[f"geometric_mean{key}"] >= mean and told[f"least{key}"] >= least
        figures = f"geometric mean {told[f'geometric_mean{key}']:.4f} (bar {mean}), least {told[f'least{key}']:.3f} (bar {least})"
        lines.append(f"{way}: {'holds' if held else 'DOES NOT HOLD'}: {figures}")
    return "\n".join(lines)


def figures(row: dict[str, Any]) -> str:
    return f"{row['us']:9.2f} {row['torch_us']:9.2f} {row['ratio']:6.3f}   {row['alone_us']:9.2f} {row['torch_alone_us']:9.2f} {row['ratio_alone']:6.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", type=Path, nargs="+", help="logs, or one best file")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=150.0, help="for each of the two packages")
    args = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        best = best_of(args.logs, Path(folder))
        for name, vendors in (("schedules_alone", False), ("with_vendors", True)):
            try:
                emit_package(best, find_operators(), Path(folder), name=name, mode=Mode.DEFAULT, vendors=vendors)
                rows = attack(name, args.seconds)
                results[name] = {"summary": summary(rows), "rows": rows}
            except Exception:
                traceback.print_exc()
                results[name] = {"failed": traceback.format_exc()}
            if args.out:
                args.out.mkdir(parents=True, exist_ok=True)
                (args.out / "emitted_matmul.json").write_text(json.dumps(results, indent=1))
    for name, result in results.items():
        print(f"\n{name}")
        for row in result.get("rows", ()):
            told = row["failed"] if "failed" in row else f"{figures(row)} {'right' if row['right'] else 'WRONG'}"
            print(f"{row['M']:>6} {row['N']:>6} {row['K']:>6}  {row['choice']:24} {told}")
        print(result.get("summary", "failed"))
        print(verdict(name, result["summary"]) if "summary" in result else "DOES NOT HOLD: see above")


if __name__ == "__main__":
    main()
