"""How far each searcher comes on recorded spaces, for how many measurements.

    python benchmarks/search_efficiency.py                          every searcher on the recorded GEMM
    python benchmarks/search_efficiency.py --recorded A.jsonl.gz    on other recordings, too
    python benchmarks/search_efficiency.py --kernel-tuner FILE...   on Kernel Tuner cache files, with the community's score

For each searcher and budget: % of the optimum's speed, the median over seeds of the geometric mean over workloads, and the worst
workload's median. A candidate that fails costs a measurement. `cost+predict` and `cost+general` build up to --builds candidates a
measurement and start from an analytic estimate, the operator's own or the general one; all others go by knobs alone.

The community's score (Willemsen and others, 2024) has random search's computed expectation as its zero and the optimum as its one:
score(t) = (S - R) / (optimum - R), averaged over the budget.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.estimate import Tiling, estimate_for, matmul_us
from tilewright.kernel_tuner import import_kernel_tuner
from tilewright.library import find_operator
from tilewright.log import TuningLog
from tilewright.record import Config, Record, Resources, Status, config_key
from tilewright.recorded import Recording
from tilewright.search import SEARCHERS, Proposer, WideProposer, make_proposer
from tilewright.search.model import Estimate
from tilewright.space import SearchSpace
from tilewright.target import Target
from tilewright.workload import Workload

DATA = Path(__file__).parent / "data"
OPERATORS = Path(__file__).parent / "operators"
MARKS = (8, 16, 32, 64, 128)
# Measurements between builds, and the steps in which these are chosen, each knowing what the last one found.
BATCH = 8
STEPS = 4


@dataclass
class Case:
    """One recorded workload, with its records by config."""

    name: str
    space: SearchSpace
    records: dict[str, Record]
    estimates: dict[str, Estimate] = field(default_factory=dict)
    times: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.times = [value for record in self.records.values() if (value := time_of(record)) is not None]

    @property
    def best_us(self) -> float:
        return min(self.times)


def time_of(record: Record) -> float | None:
    return record.measurement.median_us if record.status is Status.OK and record.measurement else None


def gemm_estimate(workload: Workload, target: Target) -> Estimate:
    """The estimate of the recorded GEMM, whose knobs are BM, BN, BK, W (warps) and S (stages)."""
    m, n, k = (workload.dims[dim] for dim in ("M", "N", "K"))

    def estimate(config: Config, resources: Resources | None) -> float | None:
        rows, columns, depth, warps, stages = (int(str(config[knob])) for knob in ("BM", "BN", "BK", "W", "S"))
        tiling = Tiling(rows=rows, columns=columns, depth=depth, warps=warps, stages=stages)
        return matmul_us(m, n, k, tiling, target, dtype=workload.dtypes["dtype"], element_bytes=2, resources=resources)

    return estimate


def estimates_of(workload: Workload, target: Target) -> dict[str, Estimate]:
    general = estimate_for(find_operator("recorded_gemm", [OPERATORS]).spec, workload, target)
    return {"predict": gemm_estimate(workload, target), "general": general} if general else {}


def cases_of(recording: Recording) -> list[Case]:
    return [
        Case(
            name=workload.key,
            space=(space := recording.space(workload)),
            records={config_key(config): recording.record(workload.key, config) for config in space.enumerate()},
            estimates=estimates_of(workload, recording.target) if recording.operator == "recorded_gemm" else {},
        )
        for workload in recording.workloads.values()
    ]


def trajectory(case: Case, searcher: str, *, seed: int, measurements: int, builds: int) -> tuple[list[float | None], float]:
    """Best time after each measurement (None before the first that runs), and milliseconds for each proposal."""
    name, _, physics = searcher.partition("+")
    started = time.perf_counter()
    proposer = make_proposer(name, case.space, seed=seed, estimate=case.estimates[physics] if physics else None)
    best: float | None = None
    found: list[float | None] = []
    while len(found) < measurements:
        if physics and len(found) % BATCH == 0:
            for _ in range(STEPS):
                widen(case, proposer, builds * BATCH // STEPS)
        config = proposer.ask()
        if config is None:
            found += [best] * (measurements - len(found))
            break
        time_us = time_of(case.records[config_key(config)])
        proposer.tell(config, time_us)
        if time_us is not None and (best is None or time_us < best):
            best = time_us
        found.append(best)
    return found, (time.perf_counter() - started) / measurements * 1e3


def widen(case: Case, proposer: Proposer, count: int) -> None:
    assert isinstance(proposer, WideProposer)
    for config in proposer.widen(count):
        record = case.records[config_key(config)]
        failed = record.status in (Status.COMPILE_ERROR, Status.COMPILE_TIMEOUT) or record.resources is None
        proposer.built(config, None if failed else record.resources)


def efficiency(cases: Sequence[Case], searcher: str, *, seeds: int, marks: Sequence[int], builds: int) -> dict[str, object]:
    """% of the optimum's speed by number of measurements."""
    shares: list[list[list[float]]] = []  # by seed, case, mark
    proposal_ms = []
    for seed in range(seeds):
        row = []
        for case in cases:
            found, milliseconds = trajectory(case, searcher, seed=seed, measurements=marks[-1], builds=builds)
            proposal_ms.append(milliseconds)
            # Nothing that runs counts as the slowest there is.
            row.append([case.best_us / (found[mark - 1] or max(case.times)) for mark in marks])
        shares.append(row)
    geometric = [[math.exp(statistics.fmean(math.log(case[m]) for case in row)) for m in range(len(marks))] for row in shares]
    worst = [min(statistics.median(row[c][m] for row in shares) for c in range(len(cases))) for m in range(len(marks))]
    return {
        "searcher": searcher,
        "seeds": seeds,
        "geometric_mean": {mark: round(100 * statistics.median(row[m] for row in geometric), 2) for m, mark in enumerate(marks)},
        "worst": {mark: round(100 * worst[m], 2) for m, mark in enumerate(marks)},
        "proposal_ms": round(statistics.median(proposal_ms), 2),
    }


def budget_of(times: Sequence[float], *, share: float = 0.95, least: int = 20, most: int = 400) -> int:
    """Evaluations after which random search is expected to have come that share of the way from the median to the optimum."""
    ordered = sorted(times)
    goal = ordered[0] + (statistics.median(ordered) - ordered[0]) * (1 - share)
    good = sum(value <= goal for value in ordered)
    # The first of `good` points among N is expected after (N + 1) / (good + 1) draws, one of which is the hit itself.
    return min(max(math.ceil((len(ordered) - good) / (good + 1)), least), most)


def random_expectation(times: Sequence[float], evaluations: int) -> list[float]:
    """Expected best of random search without replacement: of m draws from N, the best is expected at rank (N + 1) / (m + 1)."""
    ordered = sorted(times)
    count = len(ordered)
    return [ordered[max(count - 1 - min(count - 1, round(m * (count + 1) / (m + 1))), 0)] for m in range(1, evaluations + 1)]


def score(case: Case, searcher: str, *, seeds: int) -> dict[str, object]:
    """The community's score of a searcher: 0 is random search, 1 the optimum from the first evaluation on."""
    evaluations = budget_of(case.times)
    runs = [trajectory(case, searcher, seed=seed, measurements=evaluations, builds=0) for seed in range(seeds)]
    slowest = max(case.times)
    mean = [statistics.fmean(found[step] or slowest for found, _ in runs) for step in range(evaluations)]
    base = random_expectation(case.times, evaluations)
    gains = [(mean[i] - base[i]) / (case.best_us - base[i]) for i in range(evaluations) if base[i] - case.best_us > 1e-9 * case.best_us]
    return {
        "searcher": searcher,
        "seeds": seeds,
        "evaluations": evaluations,
        "score": round(statistics.fmean(gains), 3),
        "proposal_ms": round(statistics.median(milliseconds for _, milliseconds in runs), 2),
    }


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--recorded", type=Path, nargs="*", default=[DATA / "recorded_gemm_h200.jsonl.gz"], help="recorded logs")
    parser.add_argument("--kernel-tuner", type=Path, nargs="*", default=[], help="cache files of Kernel Tuner")
    parser.add_argument("--search", nargs="*", default=[name for name in SEARCHERS if name != "grid"] + ["cost+general", "cost+predict"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--most", type=int, default=128, help="measurements")
    parser.add_argument("--builds", type=int, default=8, help="builds for each measurement, where builds are looked at")
    parser.add_argument("--json", type=Path, help="write the figures there")
    args = parser.parse_args(argv)
    marks = [mark for mark in MARKS if mark <= args.most]
    report: dict[str, list[dict[str, object]]] = {}

    def each(name: str, searchers: Sequence[str], measure: Callable[[str], dict[str, object]]) -> None:
        for searcher in searchers:
            row = measure(searcher)
            report.setdefault(name, []).append(row)
            print(name, json.dumps(row), flush=True)

    for path in args.recorded:
        cases = cases_of(Recording.read(TuningLog(path)))
        usable = [name for name in args.search if "+" not in name or all(case.estimates for case in cases)]
        each(path.name, usable, lambda name, cases=cases: efficiency(cases, name, seeds=args.seeds, marks=marks, builds=args.builds))  # type: ignore[misc]
    for path in args.kernel_tuner:
        (case,) = cases_of(Recording(import_kernel_tuner(path), str(path)))
        each(path.name, [name for name in args.search if "+" not in name], lambda name, case=case: score(case, name, seeds=args.seeds))  # type: ignore[misc]
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
