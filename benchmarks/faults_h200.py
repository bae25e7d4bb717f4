"""Every fault of a candidate on the GPU at hand: its status, what it costs, and that the winner is that of a session without faults.

    python benchmarks/faults_h200.py --out DIR [--device cuda:0]

Then SIGKILL of a session on the GPU: its children must be gone within 2 s, and resuming must find every record. Takes about 80 s: time-outs
of 3 s for candidates and 8 s for compiling, and some seconds for each child. Writes faults.json and faults.md below DIR.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faults import EXPECTED, OPERATORS, costs_s, run_session, stages_of

from tilewright.builder import CompileBuilder
from tilewright.log import TuningLog
from tilewright.nursery import nursery_of_session
from tilewright.record import Record, config_key
from tilewright.runner import DeviceRunner

RUN_TIMEOUT_S = 3.0
BUILD_TIMEOUT_S = 8.0
ALLOWED_S = 1.5  # beyond the time-out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda:0")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {}
    for name, part in (("faults", matrix), ("sigkill", killed)):
        began = time.monotonic()
        try:
            found[name] = part(options)
        except Exception:
            traceback.print_exc()
            found[name] = {"error": traceback.format_exc()}
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
    (options.out / "faults.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    table = markdown(found)
    (options.out / "faults.md").write_text(table, encoding="utf-8")
    print(table)
    return 0


def matrix(options: argparse.Namespace) -> dict[str, Any]:
    log = options.out / "faults.jsonl"
    nursery = nursery_of_session()  # as a session has one: without it, the first fault may wait for torch to be imported
    with (
        contextlib.closing(nursery) if nursery is not None else contextlib.nullcontext(),
        DeviceRunner(options.device, timeout_s=RUN_TIMEOUT_S, cache_dir=options.out / "cache", nursery=nursery) as runner,
        CompileBuilder(8, options.out / "cache", BUILD_TIMEOUT_S, nursery=nursery) as builder,
    ):
        builder.start()  # as a session does: a build child that starts is no part of a fault
        alone, _ = run_session(runner, builder, options.out / "alone.jsonl", faults="none")
        began = time.monotonic()
        result, watch = run_session(runner, builder, log, faults="all")
        stages = stages_of(watch, [stage for stage in runner.stages if stage.began_s >= began])
    records = [line for line in TuningLog(log).read().lines if isinstance(line, Record)]
    costs = costs_s(watch, began)
    rows = []
    for fault, (statuses, said) in EXPECTED.items():
        mine = [record for record in records if record.config["fault"] == fault]
        if fault == "none" or not mine:
            continue
        limit = {"run_timeout": RUN_TIMEOUT_S, "compile_timeout": BUILD_TIMEOUT_S}.get(str(mine[0].status), 0.0)
        good = len(mine) == 1 and mine[0].status in statuses and re.search(said, mine[0].message) is not None
        cost = costs[fault]
        rows.append(
            {
                "fault": fault,
                "records": len(mine),
                "status": str(mine[0].status),
                "right": good,
                "cost_s": round(cost, 2),
                "timeout_s": limit,
                "in_time": cost <= limit + ALLOWED_S,
                "build_s": mine[0].build_s,
                "stages_ms": stages.get(fault, []),
                "message": mine[0].message[:240],
            }
        )
    best, without = result.results[0].best, alone.results[0].best
    return {
        "rows": rows,
        "winner": _without_turn(best),
        "winner_alone": _without_turn(without),
        "reason": result.reason,
    }


def _without_turn(record: Record | None) -> dict[str, Any] | None:
    return None if record is None else {name: value for name, value in record.config.items() if name != "turn"}


def children() -> set[int]:
    """Processes that are children of a session, ours or not."""
    return {pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if "tilewright.children" in _command(pid)}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def killed(options: argparse.Namespace) -> dict[str, Any]:
    """SIGKILL a session once it has some records; then go on with it."""
    log = options.out / "killed.jsonl"
    before = children()
    tune = [sys.executable, "-m", "tilewright", "tune", "faulty", "-w", "N=65536,faults=none", "--templates", str(OPERATORS), "--device", options.device]
    tune += ["--log", str(log), "--trials", "3"]

    def count() -> int:
        return sum(isinstance(line, Record) for line in TuningLog(log).read().lines) if log.exists() else 0

    child = subprocess.Popen(tune, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _wait(lambda: count() >= 1 or child.poll() is not None, 60)
    kept = count()
    mine = children() - before
    child.send_signal(signal.SIGKILL)
    child.wait()
    began = time.monotonic()
    _wait(lambda: not (children() & mine), 10)
    gone_s = time.monotonic() - began
    resumed = subprocess.run(tune, capture_output=True, text=True, timeout=120, check=False)
    records = [line for line in TuningLog(log).read().lines if isinstance(line, Record)]
    return {
        "children": len(mine),
        "gone_s": round(gone_s, 2),
        "kept": kept,
        "resumed": resumed.returncode,
        "records": len(records),
        "repeated": len(records) - len({config_key(record.config) for record in records}),
    }


def _wait(done: Callable[[], bool], seconds: float) -> None:
    limit = time.monotonic() + seconds
    while not done() and time.monotonic() < limit:
        time.sleep(0.02)


def markdown(found: dict[str, Any]) -> str:
    lines = []
    matrix = found["faults"]
    if "rows" in matrix:
        lines += ["| fault | status | right | cost, s | time-out, s | in time |", "|---|---|---|---|---|---|"]
        for row in matrix["rows"]:
            marks = ["yes" if row[name] else "NO" for name in ("right", "in_time")]
            lines.append(f"| {row['fault'].replace('_', ' ')} | `{row['status']}` | {marks[0]} | {row['cost_s']:.2f} | {row['timeout_s']:g} | {marks[1]} |")
        lines += ["", "Replacing children, ms by stage (and within the child, by part):", ""]
        lines += [f"- {row['fault'].replace('_', ' ')}: {'; '.join(row['stages_ms'])}" for row in matrix["rows"] if row["stages_ms"]]
        same = "the same" if matrix["winner"] == matrix["winner_alone"] else "ANOTHER"
        lines += ["", f"The winner is {same} as without faults: {matrix['winner']}."]
    if "gone_s" in found["sigkill"]:
        kill = found["sigkill"]
        lines += ["", f"SIGKILL of a session: {kill['children']} children gone in {kill['gone_s']:.2f} s; {kill['kept']} records kept,"]
        lines += [f"{kill['records']} after resuming, {kill['repeated']} of them measured again."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
