"""Appends under fire: 8 processes at once with 10,000 records each, then 200 writers killed at random moments.

    python benchmarks/log_appends.py [--sync] [--out DIR]

Every line that was acknowledged must be in the log, whole and once. With --sync the first part also waits for the disk at each append.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from tilewright.log import TuningLog
from tilewright.record import Record

WRITERS, RECORDS, KILLS = 8, 10_000, 200

WRITER = """
import sys
from tilewright.log import TuningLog
from tilewright.record import Measurement, Record, Status
from tilewright.target import named_target
from tilewright.workload import Workload
log, session, count, sync = TuningLog(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] == "sync"
workload, target = Workload(operator="m", dims={"M": 16}, dtypes={}), named_target("sm_90")
time = Measurement(protocol="graph/1", median_us=1.0, min_us=1.0, max_us=1.0)
for trial in range(count):
    log.append(Record(session=session, trial=trial, workload=workload, target=target, config={"tile": trial}, status=Status.OK, measurement=time), sync=sync)
    print(trial, flush=True)
"""


def writer(path: Path, session: str, count: int, sync: bool, said: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", WRITER, str(path), session, str(count), "sync" if sync else "no"]
    with said.open("wb") as out:
        return subprocess.Popen(command, stdout=out)


def written(path: Path) -> tuple[dict[str, list[int]], int]:
    """Trials by session, in the order of the log; and damaged lines."""
    contents = TuningLog(path).read()
    trials: dict[str, list[int]] = defaultdict(list)
    for line in contents.lines:
        assert isinstance(line, Record)
        trials[line.session].append(line.trial)
    return trials, len(contents.damage)


def together(folder: Path, sync: bool) -> dict[str, object]:
    path = folder / "together.jsonl"
    began = time.perf_counter()
    children = [writer(path, f"w{index}", RECORDS, sync, folder / f"said{index}") for index in range(WRITERS)]
    codes = [child.wait() for child in children]
    seconds = time.perf_counter() - began
    trials, damaged = written(path)
    right = all(trials[f"w{index}"] == list(range(RECORDS)) for index in range(WRITERS))
    return {
        "writers": WRITERS,
        "records": sum(map(len, trials.values())),
        "all_there_once": right,
        "damaged": damaged,
        "codes": codes,
        "seconds": round(seconds, 1),
    }


def killed(folder: Path) -> dict[str, object]:
    rng = random.Random(0)
    path = folder / "killed.jsonl"
    lost = acknowledged = 0
    said: dict[str, list[int]] = {}
    for first in range(0, KILLS, WRITERS):
        names = [f"k{index}" for index in range(first, min(first + WRITERS, KILLS))]
        children = {name: writer(path, name, 10**9, True, folder / name) for name in names}
        time.sleep(1.2)  # until they have started
        for name in rng.sample(names, len(names)):
            time.sleep(rng.uniform(0, 0.05))
            children[name].send_signal(signal.SIGKILL)
            children[name].wait()
            lines = (folder / name).read_bytes().split(b"\n")
            said[name] = [int(line) for line in lines[:-1]]
    trials, damaged = written(path)
    for name, numbers in said.items():
        acknowledged += len(numbers)
        lost += len(set(numbers) - set(trials[name]))
        assert trials[name] == list(range(len(trials[name])))
    return {"kills": KILLS, "acknowledged": acknowledged, "lost": lost, "torn_lines": damaged}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        result = {"together": together(Path(name), args.sync), "killed": killed(Path(name))}
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "log_appends.json").write_text(json.dumps(result, indent=1))
    return 0 if result["together"]["all_there_once"] and not result["killed"]["lost"] else 1


if __name__ == "__main__":
    sys.exit(main())
