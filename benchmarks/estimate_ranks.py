"""How well the general estimate orders the candidates of recorded spaces, once they are built.

    python benchmarks/estimate_ranks.py [--recorded FILE...] [--without depth layouts floor names] [--predict] [--corrected DIR]

Of each workload 30 random halves of the points that run, ordered by their estimate: the best of the first 8 and 32, in % of the half's optimum,
as geometric mean / worst workload; and the standard deviation of log(measured / estimated), mean over workloads. `--without` leaves out part of what the
estimate knows (decision 0021); `--predict` takes the operator's own estimate instead; `--corrected` corrects it by what is learned of other operators (decision
0031), as `pretrain.py --held-out DIR` trained it without the recording's own. Some 20 s.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from search_efficiency import DATA, Case, cases_of, hold_out, read, time_of

import tilewright.estimate
from tilewright.estimate import GeneralEstimate, estimate_for
from tilewright.recorded import build_of
from tilewright.search import pretrained
from tilewright.search.leads import SHARE

HALVES = 30
FIRST = (8, 32)


def without_depth() -> None:
    namer = tilewright.estimate.tile_namer

    def shallow(*given: Any) -> Callable[[Any], Any]:
        tile = namer(*given)
        return lambda config: (found := tile(config)) and replace(found, depth=None, stages=None)

    tilewright.estimate.tile_namer = shallow


def without_layouts() -> None:
    tilewright.estimate.crosswise_operands = lambda *_: 1


def without_floor() -> None:
    """Memory's time as the least, instead of as one of two streams that overlap."""
    overlapped = tilewright.estimate.overlapped
    tilewright.estimate.overlapped = lambda *streams, sharpness: max(streams) if len(streams) == 2 else overlapped(*streams, sharpness=sharpness)


def without_names() -> None:
    tilewright.estimate.tile_namer = lambda *_: lambda _: None


PARTS = {"depth": without_depth, "layouts": without_layouts, "floor": without_floor, "names": without_names}


def figures(case: Case, *, predict: bool, corrected: bool) -> tuple[list[float], float]:
    """Log of the optimum's share reached by the first few, mean over halves; and the deviation of log(measured / estimated)."""
    assert case.spec is not None
    estimate = estimate_for(case.spec if predict else replace(case.spec, predict=None), case.workload, case.recording.target)
    assert estimate is not None
    ran = [(time, record) for record in case.records.values() if (time := time_of(record)) is not None]
    times = np.log([time for time, _ in ran])
    built = [(record.config, build_of(record).resources) for _, record in ran]
    estimates = np.array([math.log(estimate(config, resources) or math.inf) for config, resources in built])
    if corrected:
        assert isinstance(estimate, GeneralEstimate)
        described = [estimate.describe(config, resources, math.exp(log)) for (config, resources), log in zip(built, estimates, strict=True) if resources]
        estimates += SHARE * pretrained.shipped()(np.array(described))
    draw = np.random.default_rng(0)
    reached: list[list[float]] = [[] for _ in FIRST]
    for _ in range(HALVES):
        half = draw.permutation(len(times))[: len(times) // 2]
        order = half[np.argsort(estimates[half], kind="stable")]
        for place, count in enumerate(FIRST):
            reached[place].append(float(times[half].min() - times[order[:count]].min()))
    return [statistics.fmean(one) for one in reached], float((times - estimates).std())


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ("recorded_gemm", "coarse_matmul", "matmul_llama", "matmul_4096")
    parser.add_argument("--recorded", type=Path, nargs="+", default=[DATA / f"{name}_h200.jsonl.gz" for name in names], metavar="FILE")
    parser.add_argument("--without", nargs="+", choices=PARTS, default=[])
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--corrected", type=Path, metavar="DIR", help="of pretrain.py --held-out")
    options = parser.parse_args(argv)
    for part in options.without:
        PARTS[part]()
    print(f"{'':32s}" + "".join(f"  best of {count:<10d}" for count in FIRST) + "deviation")
    for path in options.recorded:
        hold_out(path, options.corrected)
        found = [figures(case, predict=options.predict, corrected=options.corrected is not None) for case in cases_of(read(path), [])]
        cells = []
        for place in range(len(FIRST)):
            logs = [reached[place] for reached, _ in found]
            cells.append(f"{100 * math.exp(statistics.fmean(logs)):7.1f} / {100 * math.exp(min(logs)):5.1f}   ")
        print(f"{path.name:32s}{''.join(cells)}{statistics.fmean(deviation for _, deviation in found):8.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
