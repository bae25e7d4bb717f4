"""What a proposal costs on one core: milliseconds of CPU for ask and tell, as trials add up.

    OPENBLAS_NUM_THREADS=1 python benchmarks/proposal_time.py [--search NAME...] [--json FILE]

Two spaces of made-up times: 2,000 points, all listed, and ten million, of which a sample is held. The figures are medians over the 50
proposals before each mark, without an estimate and, for `cost`, with a rough one.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tilewright.record import Config, Resources
from tilewright.search import SEARCHERS, check_searcher, make_proposer
from tilewright.space import Cfg, Space

MARKS = (100, 300, 1000)
LATELY = 50


def small(cfg: Cfg) -> None:
    for name, count in (("a", 5), ("b", 5), ("c", 5), ("d", 4), ("e", 4)):
        cfg.define_knob(name, [2**place for place in range(count)])


def large(cfg: Cfg) -> None:
    for name in "abcdefg":
        cfg.define_knob(name, [2**place for place in range(10)])


def time_us(config: Config) -> float:
    logs = [math.log2(float(str(value))) for value in config.values()]
    return 10.0 + sum((log - 1.5) ** 2 for log in logs) + abs(logs[0] - logs[-1]) + 0.1 * (hash(tuple(logs)) % 7)


def rough_us(config: Config, resources: Resources | None) -> float | None:
    return 10.0 + sum((math.log2(float(str(value))) - 2.5) ** 2 for value in config.values())


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--search", nargs="+", default=[name for name in SEARCHERS if name not in ("auto", "grid")] + ["cost+estimate"], metavar="NAME")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    report: dict[str, dict[str, dict[str, float]]] = {}
    for label, program in (("2,000 points", small), ("10,000,000 points", large)):
        for text in args.search:
            name, _, estimated = text.partition("+")
            check_searcher(name)
            proposer = make_proposer(name, Space({"s": program}), seed=0, estimate=rough_us if estimated else None)
            costs: list[float] = []
            row: dict[str, float] = {}
            for _ in range(MARKS[-1]):
                began = time.process_time()
                config = proposer.ask()
                if config is None:
                    break
                proposer.tell(config, time_us(config))
                costs.append((time.process_time() - began) * 1e3)
                if len(costs) in MARKS:
                    row[str(len(costs))] = round(statistics.median(costs[-LATELY:]), 2)
            report.setdefault(label, {})[text] = row
            print(f"{label:18} {text:14} " + "  ".join(f"{mark}: {value:6.2f} ms" for mark, value in row.items()), flush=True)
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
