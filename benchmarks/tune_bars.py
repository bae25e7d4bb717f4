"""Tune what the README's table shows, on the GPU at hand, and say how each winner stands against the vendor's kernel.

    python benchmarks/tune_bars.py --out DIR [--seeds 3] [--time 60] [--search NAME]

Writes one log for each operator and seed below DIR, and prints a table: for each workload the vendor's time over the winner's by
seed, and the median. Takes about seeds x (time + 10) + row_seeds x 2 x (time / 3 + 10) seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from pathlib import Path
from statistics import median

from tilewright.tuner import tune

# The three shapes that comparisons of tuners quote; two that are no multiple of a tile; and one whose rows are not even whole
# 128-byte lines, which power-of-two tiles suit badly.
MATMUL = (
    "M=4096,N=4096,K=4096,dtype=bfloat16",
    "M=16,N=6144,K=4096,dtype=bfloat16",
    "M=512,N=8192,K=3584,dtype=bfloat16",
    "M=4000,N=4000,K=4000,dtype=bfloat16",
    "M=1000,N=6144,K=4096,dtype=bfloat16",
    "M=1000,N=3000,K=5000,dtype=bfloat16",
)
ROWS = tuple(f"rows=2048,cols={cols},dtype=bfloat16" for cols in (1024, 4096, 16384, 32768))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--time", type=float, default=60.0, help="seconds for the matmul workloads together; a third of it for each other operator")
    parser.add_argument("--row-seeds", type=int, default=1, help="seeds of the row-wise operators")
    parser.add_argument("--search", default=None, help="searcher; the default one where not given")
    arguments = parser.parse_args()
    gains: dict[str, list[float | None]] = {}
    plan = (("matmul", MATMUL, arguments.time, arguments.seeds), *((name, ROWS, arguments.time / 3, arguments.row_seeds) for name in ("rms_norm", "softmax")))
    for seed in range(arguments.seeds):
        for operator, workloads, seconds, seeds in plan:
            if seed >= seeds:
                continue
            log = arguments.out / f"{operator}-seed{seed}.jsonl"
            options = {"search": arguments.search} if arguments.search else {}
            began = time.monotonic()
            try:
                result = tune(operator, workloads, time_s=seconds, seed=seed, log=log, **options)
            except Exception:
                traceback.print_exc()
                continue
            trials = sum(sum(answer.statuses.values()) for answer in result.results)
            print(f"{operator} seed {seed}: {time.monotonic() - began:.1f} s, {trials} trials", flush=True)
            for answer in result.results:
                gains.setdefault(answer.workload.key, []).append(answer.gain_over_vendor)
    print(f"\n{'vendor time over winner time':70s} {'median':>7s}  by seed")
    for key, found in gains.items():
        known = [gain for gain in found if gain is not None]
        print(f"{key:70s} {median(known) if known else float('nan'):7.3f}  {' '.join('-' if gain is None else f'{gain:.3f}' for gain in found)}")
    (arguments.out / "tune_bars.json").write_text(json.dumps(gains, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
