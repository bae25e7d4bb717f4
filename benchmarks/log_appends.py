"""Appends under fire: 8 processes at once with 10,000 records each, then 200 writers killed at random moments.

    python benchmarks/log_appends.py [--sync] [--out DIR]

A writer acknowledges a record, by a line of its own written after `append` has returned. Of the first part, all records must be there, whole and once. In the
second, 8 writers at a time append records of up to 64 KB to one log, each is killed with SIGKILL at a random moment after some of its records, and every
record that it acknowledged must be in the log, whole, once and with its own content; of the others at most the one in the making. With --sync the first part
also waits for the disk at each append, as the second does. Some 3 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import hashlib
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
MOST_BEFORE = 40  # records of a writer before it is killed
START_S = 120.0  # for a writer to import and append its first record, on a busy machine

# The message is content that a reader can check, and makes records long enough to be torn: Linux ends a write early for SIGKILL between pages.
WRITER = """
import hashlib, random, sys
from tilewright.log import TuningLog
from tilewright.record import Measurement, Record, Status
from tilewright.target import named_target
from tilewright.workload import Workload
log, session, count, sync, most = TuningLog(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] == "sync", int(sys.argv[5])
workload, target = Workload(operator="m", dims={"M": 16}, dtypes={}), named_target("sm_90")
time = Measurement(protocol="graph/1", median_us=1.0, min_us=1.0, max_us=1.0)
rng = random.Random(session)
for trial in range(count):
    body = "x" * rng.randint(0, most)
    message = hashlib.sha256(f"{session} {trial} {body}".encode()).hexdigest() + body
    log.append(
        Record(session=session, trial=trial, workload=workload, target=target, config={"tile": trial}, status=Status.OK, message=message, measurement=time),
        sync=sync)
    print(trial, flush=True)
"""


def writer(path: Path, session: str, count: int, sync: bool, said: Path, most: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", WRITER, str(path), session, str(count), "sync" if sync else "no", str(most)]
    with said.open("wb") as out:
        return subprocess.Popen(command, stdout=out)


def acknowledged(said: Path) -> list[int]:
    """What a writer has acknowledged; a line cut short is none."""
    return [int(line) for line in said.read_bytes().split(b"\n")[:-1]]


def written(path: Path) -> tuple[dict[str, list[int]], int]:
    """Trials by session, in the order of the log; and damaged lines."""
    contents = TuningLog(path).read()
    trials: dict[str, list[int]] = defaultdict(list)
    for line in contents.lines:
        assert isinstance(line, Record)
        digest, body = line.message[:64], line.message[64:]
        if hashlib.sha256(f"{line.session} {line.trial} {body}".encode()).hexdigest() != digest or line.config != {"tile": line.trial}:
            raise SystemExit(f"record {line.trial} of {line.session} is not what was written")
        trials[line.session].append(line.trial)
    return trials, len(contents.damage)


def together(folder: Path, sync: bool) -> dict[str, object]:
    path = folder / "together.jsonl"
    began = time.perf_counter()
    children = [writer(path, f"w{index}", RECORDS, sync, folder / f"said{index}", 0) for index in range(WRITERS)]
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
    said: dict[str, list[int]] = {}
    for first in range(0, KILLS, WRITERS):
        names = [f"k{index}" for index in range(first, min(first + WRITERS, KILLS))]
        children = {name: writer(path, name, 10**9, True, folder / name, 65_536) for name in names}
        wanted = {name: rng.randint(1, MOST_BEFORE) for name in names}
        began = time.monotonic()
        while children:
            for name, child in list(children.items()):
                if len(acknowledged(folder / name)) < wanted[name]:
                    if child.poll() is not None or time.monotonic() - began > START_S:
                        raise SystemExit(f"writer {name} ended with {child.returncode}, or was too slow: nothing was shown")
                    continue
                time.sleep(rng.uniform(0, 0.01))
                child.send_signal(signal.SIGKILL)
                child.wait()
                said[name] = acknowledged(folder / name)
                del children[name]
            time.sleep(0.001)
    trials, damaged = written(path)
    lost = sum(len(set(numbers) - set(trials[name])) for name, numbers in said.items())
    unsaid = {name: len(trials[name]) - len(numbers) for name, numbers in said.items()}
    once = all(trials[name] == list(range(len(trials[name]))) for name in said)
    return {
        "kills": len(said),
        "acknowledged": sum(map(len, said.values())),
        "lost": lost,
        "once_and_in_order": once and max(unsaid.values()) <= 1,
        "killed_between_write_and_acknowledgement": sum(unsaid.values()),
        "torn_lines": damaged,
    }


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
    good = result["together"]["all_there_once"] and not result["killed"]["lost"] and result["killed"]["once_and_in_order"]
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
