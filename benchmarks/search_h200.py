"""The bars of searching, on the GPU at hand: cold single tunes, many workloads in one session, the exhaustive optimum, and other tuners.

    python benchmarks/search_h200.py --out DIR --only cold|llama20|llama72|onebyone|exhaustive|others|verdict|summary [--time S]

| part | what | seconds on an H200, 16 cores (guess) |
|---|---|---|
| cold | `tune matmul` from the shell, five shapes one by one, three seeds, nothing cached | 15 x 15 |
| llama20 | 4 Llama-3-8B weights x M = 16, 64, 256, 1024, 4096 in one session of 60 s | 60 |
| llama72 | the same weights x 18 numbers of rows in one session of 180 s | 180 |
| onebyone | five of the 20 alone | 5 x 15 |
| exhaustive | all points of matmul, the least estimated first, until `--time`; `--of cube` (4096^3), `llama` (three of the 20), `large` (two) | 540 each |
| others | triton.autotune with the tutorial's configs, and torch.compile max-autotune, raced with the winners of `cold` | 120 |
| verdict | winners raced with the best of `exhaustive` | 10 a workload |
| summary | the table of all that DIR holds; no GPU | 0 |

Each part stops at `--time` seconds, writes DIR/<part>.json and logs beside it, and prints a table. DIR may be carried from run to run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from tilewright.best import rank
from tilewright.builder import BuildRequest
from tilewright.devices import open_device
from tilewright.errors import LogError
from tilewright.estimate import estimate_for
from tilewright.job import RaceJob
from tilewright.log import TuningLog
from tilewright.record import Config, RaceRecord, Record, SessionEnd, Status, config_key
from tilewright.search import Proposer
from tilewright.search.base import Book, ListProposer
from tilewright.template import Source
from tilewright.timeline import Timeline
from tilewright.trials import Search
from tilewright.tuner import parse_workloads

CUBE = "M=4096,N=4096,K=4096,dtype=bfloat16"
SHAPES = (
    CUBE,
    "M=16,N=6144,K=4096,dtype=bfloat16",
    "M=512,N=8192,K=3584,dtype=bfloat16",
    "M=4000,N=4000,K=4000,dtype=bfloat16",
    "M=1000,N=6144,K=4096,dtype=bfloat16",
)
WEIGHTS_NK = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
LLAMA20 = tuple(f"M={m},N={n},K={k},dtype=bfloat16,b_layout=col" for n, k in WEIGHTS_NK for m in (16, 64, 256, 1024, 4096))
ALONE = (LLAMA20[0], LLAMA20[6], LLAMA20[12], LLAMA20[18], LLAMA20[9])
# `llama`: three whose spaces are small enough to measure whole (3,120, 1,788 and 3,452 points); `large`: two of many rows.
EXHAUSTIVE = {"cube": (CUBE,), "llama": (LLAMA20[0], LLAMA20[10], LLAMA20[5]), "large": (LLAMA20[3], LLAMA20[4])}
OTHERS = SHAPES[:3]


def smoke() -> None:
    global SHAPES, LLAMA20, ALONE, OTHERS
    SHAPES = ("M=32,N=32,K=64,dtype=float16", "M=48,N=32,K=32,dtype=float16")
    LLAMA20 = ("M=16,N=32,K=32,dtype=float16,b_layout=col", "M=32,N=32,K=32,dtype=float16,b_layout=col", "M=16,N=64,K=32,dtype=float16,b_layout=col")
    ALONE, OTHERS = LLAMA20[:1], SHAPES[:1]
    EXHAUSTIVE.update(cube=SHAPES[:1], llama=LLAMA20[:2])


def tune(options: argparse.Namespace, name: str, arguments: list[str], *, limit_s: float) -> dict[str, Any]:
    """`tilewright tune matmul` from the shell, with a log of its own and an empty cache."""
    log = options.out / f"{name}.jsonl"
    log.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tilewright", "tune", options.operator, *arguments, "--log", str(log), "--json", "--debug", "--device", options.device]
    command += ["--search", options.search] if options.search else []
    command += ["--trials", str(options.trials)] if options.trials else []
    command += [] if options.warm else ["--history"]  # no file: nothing is known from before
    with tempfile.TemporaryDirectory() as cache:
        began = time.perf_counter()
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=limit_s, env={**os.environ, "TILEWRIGHT_CACHE": cache, "TRITON_CACHE_DIR": f"{cache}/other"}
            )
        except subprocess.TimeoutExpired as error:
            return {"name": name, "failed": f"not done in {limit_s:.0f} s", "stderr": str(error.stderr)[-2000:]}
        wall_s = time.perf_counter() - began
    found: dict[str, Any] = {"name": name, "wall_s": round(wall_s, 2), "code": done.returncode}
    lines = done.stderr.splitlines()
    found["timeline"] = [line for line in lines if " s  " in line and ("+" in line or "-" in line)]
    (options.out / f"{name}.err").write_text(done.stderr, encoding="utf-8")
    try:
        told = json.loads(done.stdout)
    except ValueError:
        return {**found, "failed": done.stderr[-2000:]}
    found["utilisation"] = told.get("utilisation")
    found["reason"] = told["reason"]
    found["results"] = [
        {
            "workload": one["workload"],
            "trials": sum(one["statuses"].values()),
            "best_us": one["best_us"],
            "vendor_ratio": one["gain_over_vendor"],
            "config": one["best"]["config"] if one["best"] else None,
        }
        for one in told["results"]
    ]
    return found


def named(workload: str) -> str:
    return "x".join(part.partition("=")[2] for part in workload.split(",")[:3])


def show(found: dict[str, Any]) -> None:
    if "failed" in found:
        print(f"{found['name']}: FAILED {found['failed']}", flush=True)
        return
    ratios = [one["vendor_ratio"] for one in found["results"] if one["vendor_ratio"]]
    trials = sum(one["trials"] for one in found["results"])
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else float("nan")
    least = min(ratios, default=float("nan"))
    print(
        f"{found['name']:32s} {found['wall_s']:6.1f} s  {trials:5d} trials  vendor ratio mean {mean:.3f} least {least:.3f}  {found['utilisation']}", flush=True
    )


def one_session(options: argparse.Namespace, part: str, arguments: list[str], seconds: float) -> list[dict[str, Any]]:
    found = tune(options, part, [*arguments, "--time", f"{seconds:g}", "--seed", str(options.seed)], limit_s=seconds + 60)
    show(found)
    print("\n".join(found.get("timeline", ())))
    return [found]


def many(options: argparse.Namespace, runs: Iterator[tuple[str, list[str]]]) -> list[dict[str, Any]]:
    began = time.monotonic()
    rows = []
    for name, arguments in runs:
        left = options.time - (time.monotonic() - began)
        if left < 8:
            print(f"{name}: not reached in {options.time:g} s")
            continue
        rows.append(tune(options, name, arguments, limit_s=left))
        show(rows[-1])
        if len(rows) == 1:
            print("\n".join(rows[0].get("timeline", ())))
    return rows


def cold(options: argparse.Namespace) -> list[dict[str, Any]]:
    runs = ((f"cold-{named(shape)}-{seed}", ["-w", shape, "--seed", str(seed)]) for seed in range(options.seeds) for shape in SHAPES)
    return many(options, runs)


def llama20(options: argparse.Namespace) -> list[dict[str, Any]]:
    arguments = list(itertools.chain.from_iterable(("-w", workload) for workload in LLAMA20))
    return one_session(options, "llama20", arguments, min(options.time, 60.0))


def llama72(options: argparse.Namespace) -> list[dict[str, Any]]:
    return one_session(options, "llama72", ["--workloads", "llama3-8b"], min(options.time, 180.0))


def onebyone(options: argparse.Namespace) -> list[dict[str, Any]]:
    return many(options, ((f"alone-{named(workload)}", ["-w", workload, "--seed", str(options.seed)]) for workload in ALONE))


def by_estimate(search: Search) -> Proposer:
    """Every legal point of a workload, the one of the least estimated time first."""
    estimate = estimate_for(search.device.spec, search.workload, search.device.target) if search.device.spec is not None else None
    points = list(search.space.enumerate())
    if estimate is not None:
        estimated = [estimate(config, None) for config in points]
        order = sorted(range(len(points)), key=lambda place: estimated[place] if estimated[place] is not None else math.inf)
        points = [points[place] for place in order]
    return ListProposer(Book(search.space, seed=0), lambda: iter(points))


def exhaustive(options: argparse.Namespace) -> list[dict[str, Any]]:
    from record_space import record_all

    with open_device(options.device, options.operator, target=None, templates=[], jobs=None, timeline=Timeline()) as device:
        workloads = list(parse_workloads(device, EXHAUSTIVE[options.of], None))
        name = f"exhaustive-{options.of}"
        summary = record_all(device, workloads, options.out, time_s=options.time, order=by_estimate, name=name, note="in the order of the estimate")
        recorded = [line for line in TuningLog(options.out / f"{name}.jsonl.gz").read().lines if isinstance(line, Record)]
        for workload in workloads:
            own = [record for record in recorded if record.workload.key == workload.key]
            right = [place for place, record in enumerate(own) if record.status is Status.OK]
            if right:
                best = min(right, key=lambda place: rank(own[place]))
                summary["best_us"][workload.key]["place_by_estimate"] = f"{best + 1} of {len(own)}"
                summary["best_us"][workload.key]["config"] = own[best].config
    print(json.dumps(summary, indent=1))
    return [summary]


def logs(out: Path) -> dict[str, list[Any]]:
    found = {}
    for path in sorted([*out.glob("cold-*.jsonl"), *out.glob("alone-*.jsonl"), *out.glob("llama*.jsonl"), *out.glob("exhaustive-*.jsonl.gz")]):
        try:
            found[path.name.partition(".jsonl")[0]] = list(TuningLog(path).read().lines)
        except LogError as error:
            print(f"{path}: {error}")
    return found


def best_of(lines: list[Any], key: str) -> list[Record]:
    """A workload's correct records, the best ranked first."""
    return sorted((line for line in lines if isinstance(line, Record) and line.workload.key == key and line.status is Status.OK and line.measurement), key=rank)


def winner(lines: list[Any], key: str) -> Record | None:
    """A log's answer for a workload: its race's winner, or the record ranked best."""
    own = best_of(lines, key)
    races = [line for line in lines if isinstance(line, RaceRecord) and line.workload.key == key and line.winner is not None]
    if races and races[-1].winner is not None:
        config = config_key(races[-1].racers[races[-1].winner].config)
        raced = [record for record in own if config_key(record.config) == config]
        own = raced or own
    return own[0] if own else None


def verdict(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Race what sessions chose against the best of the exhaustive recording, on workloads that have one; else against each other."""
    began = time.monotonic()
    found = logs(options.out)
    rows: list[dict[str, Any]] = []
    sessions = {name: lines for name, lines in found.items() if not name.startswith("exhaustive")}
    keys = {line.workload.key for lines in found.values() for line in lines if isinstance(line, Record)}
    exact = {line.workload.key for name, lines in found.items() if name.startswith("exhaustive") for line in lines if isinstance(line, Record)}
    with open_device(options.device, options.operator, target=None, templates=[], jobs=None, timeline=Timeline()) as device:
        entries = []
        for key in sorted(keys, key=lambda key: (key not in exact, key)):
            workload = device.make_workload(key.partition(":")[2])
            racers: dict[str, list[str]] = {}
            configs: dict[str, tuple[Source, Config]] = {}
            for name, lines in found.items():
                whole = name.startswith("exhaustive")
                for place, record in enumerate(best_of(lines, key)[:5] if whole else [winner(lines, key)]):
                    if record is not None:
                        source = device.make_source(workload, record.config)
                        racers.setdefault(source.hash, []).append(f"{name}#{place}" if whole else name)
                        configs[source.hash] = (source, record.config)
            if not configs:
                continue
            spec = device.spec
            assert spec is not None
            arguments = (*spec.inputs(workload).values(), *spec.outputs(workload).values())
            builds = [device.builder.submit(BuildRequest(source=source, arguments=arguments, target=device.compile_target)) for source, _ in configs.values()]
            entries.append((key, workload, racers, configs, builds))
        for key, workload, racers, configs, builds in entries:
            if time.monotonic() - began > options.time:
                print("not all workloads reached")
                break
            for build in builds:  # so that the race does not compile
                build.result()
            outcome = device.runner.race(
                RaceJob(operator=device.operator, folder=device.folder, workload=workload, sources=tuple(source for source, _ in configs.values()))
            )
            if outcome is None:
                continue
            times = {name: one.times_us for name, one in zip(configs, outcome.schedules, strict=True) if one.times_us}
            times |= {f"vendor {name}": one.times_us for name, one in outcome.vendors.items() if one.times_us}
            ours = {name: us for name, us in times.items() if name in configs}
            if not ours:
                print(f"{key}: no schedule ran: {outcome.message}")
                continue
            fastest = min(ours, key=lambda name: median(ours[name]))
            row: dict[str, Any] = {"workload": key, "exhaustive": key in exact, "best_us": median(ours[fastest]), "best": configs[fastest][1], "share": {}}
            for name, us in times.items():
                share = median(base / one for one, base in zip(us, ours[fastest], strict=True))
                for who in racers.get(name, [name]):
                    row["share"][who] = round(share, 4)
            rows.append(row)
            own_shares = {who: share for who, share in row["share"].items() if who in sessions or who.startswith("vendor")}
            print(f"{key:72s} {'exact' if row['exhaustive'] else 'best of all':11s} {row['best_us']:9.2f} µs  {own_shares}", flush=True)
    print_shares(rows)
    return rows


def print_shares(rows: list[dict[str, Any]]) -> None:
    """Per session: geometric mean and least share of the optimum's speed."""
    by_name: dict[str, list[float]] = {}
    for row in rows:
        for who, share in row["share"].items():
            name = "cold" if who.startswith("cold") else "one by one" if who.startswith("alone") else who.partition("#")[0]
            by_name.setdefault(name, []).append(share)
    print(f"\n{'session':24s} {'raced':>5s} {'geomean':>8s} {'least':>7s}   share of the best schedule's speed")
    for name, shares in sorted(by_name.items()):
        print(f"{name:24s} {len(shares):5d} {math.exp(sum(map(math.log, shares)) / len(shares)):8.4f} {min(shares):7.4f}")


def others(options: argparse.Namespace) -> list[dict[str, Any]]:
    from other_tuners import compare

    found = logs(options.out)
    ours: dict[str, Any] = {}
    for shape in OTHERS:
        for name, lines in found.items():
            if not name.startswith(f"cold-{named(shape)}-"):
                continue
            keys = {line.workload.key for line in lines if isinstance(line, Record)}
            record = winner(lines, next(iter(keys))) if keys else None
            ends = [line for line in lines if isinstance(line, SessionEnd)]
            if record is not None:
                ours.setdefault(named(shape), {"config": record.config, "seconds": ends[-1].wall_s if ends else None, "from": name})
    rows = compare({named(shape): shape for shape in OTHERS}, ours, options.operator, limit_s=options.time)
    print(f"\n{'shape':18s} {'tuner':28s} {'tuning s':>9s} {'µs':>9s} {'over ours':>10s}")
    for row in rows:
        figures = [math.nan if row[name] is None else row[name] for name in ("seconds", "us", "over_ours")]
        print(f"{row['shape']:18s} {row['tuner']:28s} {figures[0]:9.1f} {figures[1]:9.2f} {figures[2]:10.3f}  {row.get('failed', '')}")
    return rows


def summary(options: argparse.Namespace) -> list[dict[str, Any]]:
    """What logs say by themselves: anchored times, the best of all sessions as the optimum where there is no exhaustive one."""
    found = logs(options.out)
    rows = []
    keys = {line.workload.key for lines in found.values() for line in lines if isinstance(line, Record)}
    for key in sorted(keys):
        times = {name: record.measurement.ranked_us for name, lines in found.items() if (record := winner(lines, key)) is not None and record.measurement}
        if times:
            best = min(times.values())
            rows.append({"workload": key, "best_us": best, "share": {name: best / us for name, us in times.items()}})
    print_shares(rows)
    return rows


PARTS = {
    "cold": cold,
    "llama20": llama20,
    "llama72": llama72,
    "onebyone": onebyone,
    "exhaustive": exhaustive,
    "others": others,
    "verdict": verdict,
    "summary": summary,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", choices=sorted(PARTS), action="append", required=True)
    parser.add_argument("--time", type=float, default=540.0, help="seconds for each part")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--search", default="", help="searcher; the default one where not given")
    parser.add_argument("--of", choices=sorted(EXHAUSTIVE), default="cube", help="what `exhaustive` records")
    parser.add_argument("--warm", action="store_true", help="start from the shipped logs, as tune does by default; else cold")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--operator", default="matmul")
    parser.add_argument("--smoke", action="store_true", help="tiny shapes instead of all others, for a dry run: with --device interpreter --trials 4")
    parser.add_argument("--trials", type=int, help="for a dry run: of each session")
    options = parser.parse_args()
    if options.smoke:
        smoke()
    options.out.mkdir(parents=True, exist_ok=True)
    for part in options.only:
        began = time.monotonic()
        rows = PARTS[part](options)
        name = f"{part}-{options.of}" if part == "exhaustive" else part
        (options.out / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        print(f"{part}: {time.monotonic() - began:.1f} s\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
