"""Time and memory of `best` and `log lint|stats|merge` on a log of a million records.

    python benchmarks/log_scale.py [--records 1000000] [--folder DIR] [--out DIR]

The log is made of records as the tuner writes them: many workloads, 64 trials to a session and workload, a start line before each
record, some failures. It is some 1.8 GB, and is kept in the folder for the next run. Each command runs in a process of its own; its time is the wall
clock's and the CPU's of all its processes, its memory the largest sum of resident sets of its processes, less what they share.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

from tilewright.codec import encode_line
from tilewright.library import find_operator
from tilewright.record import Check, Measurement, Record, Resources, SessionEnd, SessionStart, Status, TrialStart, Value, VendorRecord, config_key
from tilewright.roofline import floor_us
from tilewright.target import Toolchain, named_target
from tilewright.workload import Workload

TRIALS = 64
# Records that are made one by one; further ones are copies of them in other sessions, with other times.
BASE = 20_000


def make_log(path: Path, records: int, *, seed: int = 0) -> None:
    """Write a log of so many records, each as the tuner would: real configs of matmul's space."""
    rng = random.Random(seed)
    operator = find_operator("matmul")
    target = named_target("sm_90")
    toolchain = Toolchain(triton="3.6.0", ptxas="12.8/12.9", torch="2.11.0+cu130", driver="580.159.04")
    workloads = [workload for name in ("llama3-8b", "llama3-70b", "qwen2.5-7b", "qwen3-8b") for workload in operator.spec.workload_set(name)][:200]
    spaces = [operator.space(workload, target).sample(min(2 * TRIALS, 256), rng) for workload in workloads]
    floors = [floor_us(operator.spec, workload, target) or 1.0 for workload in workloads]
    hashes = {name: template.hash for name, template in operator.templates.items()}
    known: dict[tuple[str, str], str] = {}

    def source_of(workload: Workload, config: dict[str, Value]) -> str:
        key = (workload.key, config_key(config))
        if key not in known:
            known[key] = operator.instantiate(workload, target, config).hash
        return known[key]

    with path.open("wb") as file:
        written = session = 0
        while written < records:
            index = session % len(workloads)
            workload, name = workloads[index], f"{seed:04x}{session:012x}"
            count = min(TRIALS, records - written)
            vendor_us = round(1.2 * floors[index], 3)
            options = {"search": "tpe", "seed": session, "device": "cuda:0", "protocol": "graph/1", "trials": TRIALS, "time_s": None}
            lines = [
                SessionStart(session=name, started_at=f"2026-11-29T10:{session // 60 % 60:02d}:{session % 60:02d}+00:00", tilewright="0.1.0", operator="matmul",
                             workloads=[workload], target=target, toolchain=toolchain, options=options),
                VendorRecord(session=name, name="torch.mm", workload=workload, target=target, status=Status.OK, toolchain=toolchain,
                             measurement=Measurement(protocol="graph/1", median_us=vendor_us, min_us=0.99 * vendor_us,
                                                     max_us=1.01 * vendor_us, cv=0.01, samples=5)),
            ]  # fmt: skip
            for trial, config in enumerate(rng.sample(spaces[index], count)):
                lines.append(TrialStart(session=name, workload=workload, config=config))
                us = round(1.1 * floors[index] + rng.lognormvariate(5, 1.5), 3)
                times = sorted(round(us * rng.uniform(0.99, 1.01), 3) for _ in range(9))
                failed = rng.random() < 0.06
                lines.append(
                    Record(
                        session=name, trial=trial, workload=workload, target=target, config=config, toolchain=toolchain,
                        status=Status.COMPILE_ERROR if failed else Status.OK, message="PassManager::run failed" if failed else "",
                        template=hashes[config["schedule"]], source=source_of(workload, config), binary=f"{rng.getrandbits(256):064x}",
                        measurement=None if failed else Measurement(protocol="graph/1", median_us=times[4], min_us=times[0], max_us=times[-1],
                                                                    cv=0.004, samples=9, times_us=times),
                        check=None if failed else Check(rel_norm=0.0016, max_error=0.0156, rel_norm_allowed=0.0049, max_error_allowed=0.0328),
                        resources=Resources(shared_memory_bytes=98304, registers=168, spill_bytes=0, stack_bytes=0, num_warps=8),
                        build_s=round(rng.uniform(0.3, 1.2), 4), default=trial == 0,
                    )
                )  # fmt: skip
            end = f"2026-11-29T11:{session // 60 % 60:02d}:{session % 60:02d}+00:00"
            lines.append(SessionEnd(session=name, ended_at=end, reason="budget", trials=count, finished=[workload.key], wall_s=40.0))
            file.write(b"".join(map(encode_line, lines)))
            written += count
            session += 1


def copied(lines: bytes, copy: int) -> bytes:
    """The same lines in other sessions, with medians that differ by some parts in 100,000: two trials hardly ever take the same time."""
    other = lines.replace(b'"session":"0000', b'"session":"%04x' % copy)
    return re.sub(rb'"median_us":([0-9.]+)', lambda found: b'"median_us":%.3f' % (float(found[1]) * (1 + 1e-5 * copy)), other)


def resident(pid: int) -> int:
    """Bytes of a process and its children, pages that they share counted once (proportional set size)."""
    total = 0
    pids = [pid]
    while pids:
        current = pids.pop()
        try:
            rollup = Path(f"/proc/{current}/smaps_rollup").read_text()
            total += next(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
            pids += map(int, Path(f"/proc/{current}/task/{current}/children").read_text().split())
        except (OSError, StopIteration, ProcessLookupError):
            continue
    return total


def loop_s() -> float:
    """CPU-seconds of ten million additions, to compare machines and moments by: 0.35 on the two cores that 0015 speaks of, at a load of 5."""
    began, total = time.process_time(), 0
    for number in range(10_000_000):
        total += number
    return round(time.process_time() - began, 2)


def measure(command: list[str]) -> dict[str, float]:
    """Run a command; wall and CPU seconds, and the most memory seen."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "tilewright", *command], stdout=subprocess.DEVNULL)
    most = 0

    def watch() -> None:
        nonlocal most
        while process.poll() is None:
            most = max(most, resident(process.pid))
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = process.wait()
    wall = time.perf_counter() - began
    watcher.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"code": code, "wall_s": round(wall, 2), "cpu_s": round(cpu, 2), "memory_mb": round(most / 1e6)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/tilewright-log-scale"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    log = args.folder / f"log_{args.records}.jsonl"
    halves = [args.folder / f"half_{args.records}_{index}.jsonl" for index in (0, 1)]
    if not log.exists():
        base = args.folder / "base.jsonl"
        make_log(base, min(BASE, args.records // 2))
        lines = base.read_bytes()
        copies = args.records // BASE or 2
        for index, half in enumerate(halves):
            with half.open("wb") as file:
                for copy in range(index, copies, 2):
                    file.write(copied(lines, copy))
        with log.open("wb") as file:
            for half in halves:
                file.write(half.read_bytes())
    merged = args.folder / "merged.jsonl"
    merged.unlink(missing_ok=True)
    commands = {
        "best": ["best", str(log), "-o", str(args.folder / "best.jsonl")],
        "log lint": ["log", "lint", str(log)],
        "log stats": ["log", "stats", str(log)],
        "log merge": ["log", "merge", *map(str, halves), "-o", str(merged)],
    }
    results = {}
    for name, command in commands.items():
        if args.only and name not in args.only:
            continue
        results[name] = {**measure(command), "loop_s": loop_s()}
        print(f"{name:10} {results[name]}", flush=True)
    merged.unlink(missing_ok=True)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "log_scale.json").write_text(json.dumps({"records": args.records, "bytes": log.stat().st_size, **results}, indent=1))


if __name__ == "__main__":
    main()
