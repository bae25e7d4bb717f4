"""Time and memory of `best` and `log lint|stats|merge` on a log of a million records.

    python benchmarks/log_scale.py [--records 1000000] [--folder DIR] [--out DIR]

The log is made of records as the tuner writes them: many workloads, several to a session, 110 trials to each, a start line before each
record, trials that were cut or failed, races. It is some 2.2 GB, and is kept in the folder for the next run.
Each command runs in a process of its own; its time is the wall
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
from dataclasses import replace
from pathlib import Path

from tilewright.canonical import sha256_text
from tilewright.codec import encode_line
from tilewright.library import find_operator
from tilewright.record import (
    Anchor,
    Check,
    DeviceState,
    Line,
    Measurement,
    Racer,
    RaceRecord,
    Record,
    Resources,
    SessionEnd,
    SessionStart,
    Status,
    TrialStart,
    Value,
    VendorRecord,
    config_key,
)
from tilewright.roofline import floor_us
from tilewright.target import Toolchain, named_target
from tilewright.workload import Workload

# As in tuning_logs/nvidia-h200/matmul-seed*.jsonl.gz: sessions of six workloads, whose trials take turns (in one case of nine, two next to each other are of
# one workload), and shares of ok, cut, and out of resources. All lines make, there, 2,170 to 2,180 bytes a record.
TRIALS = 110
SESSION_WORKLOADS = 6
SHARES = (0.68, 0.30, 0.02)
OUT = "out of resource: shared memory, Required: 262144, Hardware limit: 232448. Reducing block sizes or `num_stages` may help."
# Records that are made one by one; further ones are copies of them in other sessions, with other times.
BASE = 20_000


def make_log(path: Path, records: int, *, seed: int = 0) -> None:
    """Write a log of so many records, each as the tuner would: real configs of matmul's space."""
    rng = random.Random(seed)
    operator = find_operator("matmul")
    target = replace(named_target("sm_90"), name="NVIDIA H200", pci_id="0x2335", power_limit_w=700)
    toolchain = Toolchain(triton="3.6.0", ptxas="12.8/12.9", torch="2.11.0+cu130", driver="580.159.04")
    workloads = [workload for name in ("llama3-8b", "llama3-70b", "qwen2.5-7b", "qwen3-8b") for workload in operator.spec.workload_set(name)][:200]
    spaces = [operator.space(workload, target).sample(min(2 * TRIALS, 256), rng) for workload in workloads]
    floors = [floor_us(operator.spec, workload, target) or 1.0 for workload in workloads]
    hashes = {name: template.hash for name, template in operator.templates.items()}

    # Rendering each config would take minutes, and nothing here reads more of a source than its hash.
    def source_of(workload: Workload, config: dict[str, Value]) -> str:
        return sha256_text(workload.key + config_key(config))

    def measured(us: float, samples: int) -> Measurement:
        times = [round(us * rng.uniform(0.997, 1.003), 3) for _ in range(samples)]
        return Measurement(
            protocol="graph/1", median_us=sorted(times)[samples // 2], min_us=min(times), max_us=max(times), cv=round(rng.uniform(0.001, 0.003), 5),
            samples=samples, times_us=times,
            anchor=Anchor(kind=rng.choice(["compute", "memory"]), median_us=round(rng.uniform(91, 92), 3), nominal_us=99.263, samples=4),
            state=DeviceState(sm_mhz=1980, memory_mhz=3201, power_w=round(rng.uniform(120, 300), 1), temperature_c=rng.randint(39, 60)),
        )  # fmt: skip

    with path.open("wb") as file:
        written = session = 0
        while written < records:
            name = f"{seed:04x}{session:012x}"
            chosen = [(SESSION_WORKLOADS * session + place) % len(workloads) for place in range(SESSION_WORKLOADS)]
            order = [index for index in chosen for _ in range(TRIALS)][: records - written]
            rng.shuffle(order)
            configs = {index: rng.sample(spaces[index], TRIALS) for index in chosen}
            options = {"search": "tpe", "seed": session, "device": "cuda:0 (NVIDIA H200)", "protocol": "graph/1", "trials": TRIALS, "time_s": None}
            lines: list[Line] = [
                SessionStart(session=name, started_at=f"2026-11-29T10:{session // 60 % 60:02d}:{session % 60:02d}+00:00", tilewright="0.1.0", operator="matmul",
                             workloads=[workloads[index] for index in chosen], target=target, toolchain=toolchain, options=options),
            ]  # fmt: skip
            lines += [
                VendorRecord(session=name, name="torch.mm", workload=workloads[index], target=target, status=Status.OK, toolchain=toolchain,
                             measurement=measured(1.2 * floors[index], 6))
                for index in chosen
            ]  # fmt: skip
            ran: dict[int, list[Record]] = {index: [] for index in chosen}
            for trial, index in enumerate(order):
                workload, config = workloads[index], configs[index][len(ran[index])]
                lines.append(TrialStart(session=name, workload=workload, config=config))
                us = round(1.1 * floors[index] + rng.lognormvariate(5, 1.5), 3)
                status = rng.choices([Status.OK, Status.CUT, Status.OUT_OF_RESOURCES], SHARES)[0]
                message = {Status.OK: "", Status.CUT: f"cut after 1 samples: {us:.1f} µs is over 3 times {us / 4:.1f} µs"}.get(status, OUT)
                record = Record(
                    session=name, trial=trial, workload=workload, target=target, config=config, toolchain=toolchain, status=status, message=message,
                    template=hashes[config["schedule"]], source=source_of(workload, config), binary=f"{rng.getrandbits(256):064x}",
                    measurement={Status.OK: measured(us, rng.choice([6, 6, 6, 12, 18])), Status.CUT: measured(us, 1)}.get(status),
                    check=Check(rel_norm=rng.uniform(0.0016, 0.0017), max_error=rng.uniform(0.0150, 0.0158), rel_norm_allowed=0.0048980712890625,
                                max_error_allowed=0.03284263610839844, ragged=workload.key)
                    if status is Status.OK else None,
                    resources=Resources(shared_memory_bytes=98304, registers=168, spill_bytes=0, stack_bytes=0, num_warps=8),
                    build_s=round(rng.uniform(0.3, 1.2), 4), default=not ran[index],
                )  # fmt: skip
                lines.append(record)
                ran[index].append(record)
            for index, tried in ran.items():
                fastest = sorted((record for record in tried if record.status is Status.OK), key=ranked)[:8]
                if not fastest:
                    continue
                racers = [Racer(config=record.config, source=record.source, median_us=ranked(record), ratio=1.0, low=0.99, high=1.01) for record in fastest]
                racers.append(Racer(vendor="torch.mm", median_us=1.2 * floors[index], ratio=1.0, low=0.99, high=1.01))
                lines.append(RaceRecord(session=name, workload=workloads[index], target=target, protocol="graph/1", racers=racers, winner=0,
                                        reason="the fastest", rounds=12, toolchain=toolchain, wall_s=0.9))  # fmt: skip
            end = f"2026-11-29T11:{session // 60 % 60:02d}:{session % 60:02d}+00:00"
            lines.append(SessionEnd(session=name, ended_at=end, reason="budget", trials=len(order), finished=[workloads[index].key for index in chosen],
                                    wall_s=40.0))  # fmt: skip
            file.write(b"".join(map(encode_line, lines)))
            written += len(order)
            session += 1


def ranked(record: Record) -> float:
    """The time by which a record is ranked."""
    return 0.0 if record.measurement is None else record.measurement.ranked_us


def copied(lines: bytes, copy: int) -> bytes:
    """The same lines in other sessions, with times that differ by some parts in 100,000: two trials hardly ever take the same time."""

    def slower(found: re.Match[bytes]) -> bytes:
        return b'"median_us":%.3f,"min_us":%.3f,"max_us":%.3f' % tuple(float(us) * (1 + 1e-5 * copy) for us in found.groups())

    other = lines.replace(b'"session":"0000', b'"session":"%04x' % copy)
    return re.sub(rb'"median_us":([0-9.]+),"min_us":([0-9.]+),"max_us":([0-9.]+)', slower, other)


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
    log = args.folder / f"races_{args.records}.jsonl"
    halves = [args.folder / f"races_{args.records}_half_{index}.jsonl" for index in (0, 1)]
    if not log.exists():
        base = args.folder / "races_base.jsonl"
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
