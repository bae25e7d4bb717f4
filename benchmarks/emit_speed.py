"""Emitting 100 workloads from a log of 10,000 records: time after start-up, and the same bytes from two runs and two orders.

python benchmarks/emit_speed.py [--out DIR]
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

from tilewright.cli import main as tilewright
from tilewright.codec import encode_lines
from tilewright.library import find_operator
from tilewright.record import Measurement, Record, Status
from tilewright.target import Toolchain, named_target

WORKLOADS, RECORDS = 100, 10_000


def records() -> list[Record]:
    """As many for each workload, of real configs."""
    rng = random.Random(0)
    operator, target = find_operator("matmul"), named_target("sm_90")
    made: list[Record] = []
    for workload in list(operator.spec.workload_set("llama3-8b"))[:72] + list(operator.spec.workload_set("qwen2.5-7b"))[: WORKLOADS - 72]:
        configs = operator.space(workload, target).sample(12, rng)
        sources = [operator.instantiate(workload, target, config) for config in configs]
        for _ in range(RECORDS // WORKLOADS):
            index = rng.randrange(len(configs))
            us = round(rng.uniform(10, 1000), 3)
            made.append(
                Record(
                    session="s", trial=len(made), workload=workload, target=target, config=configs[index], status=Status.OK,
                    template=sources[index].template_hash, source=sources[index].hash, toolchain=Toolchain(triton="3.6.0", driver="580"),
                    measurement=Measurement(protocol="graph/1", median_us=us, min_us=us, max_us=us),
                )
            )  # fmt: skip
    return made


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    lines = records()
    packages, seconds = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for run in range(4):
            log = folder / f"{run}.jsonl"
            log.write_bytes(encode_lines(lines if run < 2 else random.Random(run).sample(lines, len(lines))))
            began, cpu = time.perf_counter(), time.process_time()
            # Operators are found again, so that their templates are read and compiled in the time.
            code = tilewright(["emit", str(log), "-o", str(folder / f"out{run}"), "--name", "kernels", "--strict", "--triton", "3.6"])
            assert not code
            seconds.append((round(time.perf_counter() - began, 3), round(time.process_time() - cpu, 3)))
            packages.append(contents(folder / f"out{run}" / "kernels"))
    same = all(package == packages[0] for package in packages)
    entries = len({line.workload.key for line in lines})
    print(f"{entries} workloads from {len(lines):,} records, {len(packages[0])} files: wall and CPU seconds {seconds}; identical bytes: {same}")
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "emit_speed.json").write_text(json.dumps({"seconds": seconds, "identical": same, "workloads": entries}))


if __name__ == "__main__":
    main()
