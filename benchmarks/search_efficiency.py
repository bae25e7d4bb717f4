"""How far each searcher comes on recorded spaces, for how many measurements.

    python benchmarks/search_efficiency.py                             every searcher on all of benchmarks/data
    python benchmarks/search_efficiency.py --recorded FILE...          on any recording: a log, a Kernel Tuner cache file, or T4
    python benchmarks/search_efficiency.py --history                   also with the recording's other workloads as history
    python benchmarks/search_efficiency.py --held-out DIR              what is learned of all operators, trained without the recording's (pretrain.py)
    python benchmarks/search_efficiency.py --json F.json --plot F.svg  figures, and a plot (needs matplotlib)

For each searcher: % of the optimum's speed after so many measurements, the median over seeds of the geometric mean over workloads, and
the worst workload's median; and the community's score (Willemsen and others, 2024), whose zero is random search's computed expectation and
whose one is the optimum: score(t) = (S - R) / (optimum - R), averaged over the budget, then over workloads. A candidate that fails costs a
measurement.

`auto`, the default, and `cost` have what `tilewright tune --device recorded:FILE` gives them: the operator's own estimate where its folder
is at hand (--templates; benchmarks/operators is), else the general one, else none; and at most --builds builds a measurement. `NAME+predict`,
`NAME+general` and `NAME+knobs` set what they get; `NAME+history` adds the other workloads' records. All others go by knobs alone.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path

from tilewright.errors import TilewrightError, UsageError
from tilewright.estimate import estimate_for
from tilewright.history import Kinship
from tilewright.importers import IMPORTERS, import_log
from tilewright.log import TuningLog
from tilewright.operator import OperatorSpec
from tilewright.record import Record, Resources, Status, config_key
from tilewright.recorded import Recording, build_of
from tilewright.recorded_operator import operator_of
from tilewright.result import learned_us
from tilewright.search import SEARCHERS, WideProposer, check_searcher, make_proposer, pretrained
from tilewright.search.past_result import PastResult
from tilewright.space import SearchSpace
from tilewright.workload import Workload

DATA = Path(__file__).parent / "data"
OPERATORS = Path(__file__).parent / "operators"
MARKS = (8, 16, 32, 64, 128)
# Operators that are so alike that one would tell what is to be told of the other, by the beginnings of recordings' names.
FAMILIES = {"matmul": ("recorded_gemm", "coarse_matmul", "matmul_llama", "matmul_4096"), "rows": ("softmax", "rms_norm")}
# Searchers that start from an estimate where there is one.
INFORMED = ("auto", "cost")
# Builds are handed out in so many steps for each batch of measurements, each knowing what the last one found.
BATCH = 8
STEPS = 4
# Of each workload that is history, as a search takes it: its best and others at even steps.
PAST = 120


@dataclass
class Case:
    """One recorded workload, with its records by config."""

    name: str
    workload: Workload
    recording: Recording
    spec: OperatorSpec | None
    space: SearchSpace = field(init=False)
    records: dict[str, Record] = field(init=False)
    times: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.space = self.recording.space(self.workload)
        self.records = {config_key(config): self.recording.record(self.workload.key, config) for config in self.space.enumerate()}
        self.times = [value for record in self.records.values() if (value := time_of(record)) is not None]

    @property
    def best_us(self) -> float:
        return min(self.times)


@dataclass(frozen=True)
class Entrant:
    """A searcher, and what it is given: `auto+general+history`."""

    text: str

    @property
    def name(self) -> str:
        return self.text.split("+")[0]

    @property
    def given(self) -> tuple[str, ...]:
        return tuple(self.text.split("+")[1:])

    def spec(self, spec: OperatorSpec | None) -> OperatorSpec | None:
        """The operator as this entrant sees it."""
        if spec is None or "knobs" in self.given or self.name not in INFORMED:
            return None
        return replace(spec, predict=None) if "general" in self.given else spec

    def may_run(self, spec: OperatorSpec | None, workloads: int) -> bool:
        if "predict" in self.given and (spec is None or spec.predict is None):
            return False
        return not ("general" in self.given and spec is None) and not ("history" in self.given and workloads < 2)


def time_of(record: Record) -> float | None:
    return record.measurement.median_us if record.status is Status.OK and record.measurement else None


def read(path: Path) -> Recording:
    """A recording in any form that Tilewright reads."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    failures = []
    try:
        return Recording.read(TuningLog(path))
    except TilewrightError as error:
        failures.append(f"as a log: {error}")
    for form in IMPORTERS:
        try:
            return Recording(import_log(path, form), str(path))
        except TilewrightError as error:
            failures.append(f"as {form}: {error}")
    raise UsageError(f"{path} is no recording that can be read; {'; '.join(failures)}")


def cases_of(recording: Recording, templates: Sequence[Path]) -> list[Case]:
    spec, note = operator_of(recording, [*templates, OPERATORS])
    if note and spec is not None:
        print(note, file=sys.stderr)
    cases = [Case(name=workload.key, workload=workload, recording=recording, spec=spec) for workload in recording.workloads.values()]
    return [case for case in cases if case.times]


def family_of(path: Path) -> str:
    """What a recording is held out with: its family, or itself alone."""
    return next((family for family, names in FAMILIES.items() if path.name.startswith(names)), path.name.partition("_h200")[0])


def hold_out(path: Path, folder: Path | None) -> None:
    """Let searches have what was learned of all operators without a recording's own; what is shipped where no folder is given."""
    if folder is not None:
        weights = folder / f"{family_of(path)}.json"
        try:
            network = pretrained.network_of(weights.read_bytes())
        except (OSError, ValueError) as error:
            raise UsageError(f"{weights}: {error}; pretrain.py --held-out {folder} makes it") from error
        pretrained.shipped = lambda: network


def past_of(case: Case, cases: Sequence[Case], spec: OperatorSpec | None) -> tuple[tuple[PastResult, ...], Kinship]:
    """The other workloads' records, as the searches of a session are given them."""
    kinship = Kinship(workload=case.workload, target=case.recording.target, spec=spec)
    results = []
    for other in cases:
        if other is not case:
            records = sorted(other.records.values(), key=lambda record: learned_us(record) or math.inf)
            best = records[: PAST // 2]
            rest = records[PAST // 2 :: max((len(records) - PAST // 2) // (PAST - PAST // 2), 1)]
            results += [kinship.result(record.workload, record.target, record.config, learned_us(record), record.resources) for record in (*best, *rest)]
    return tuple(results), kinship


def trajectory(case: Case, cases: Sequence[Case], entrant: Entrant, *, seed: int, measurements: int, builds: int) -> tuple[list[float | None], list[float]]:
    """Best time after each measurement (None before the first that runs), and milliseconds of CPU time for each proposal."""
    spec = entrant.spec(case.spec)
    estimate = estimate_for(spec, case.workload, case.recording.target) if spec is not None else None
    past, kinship = past_of(case, cases, spec) if "history" in entrant.given else ((), None)
    features = kinship.features if kinship is not None else ()
    proposer = make_proposer(entrant.name, case.space, seed=seed, estimate=estimate, past=past, features=features)
    best: float | None = None
    found: list[float | None] = []
    costs = []
    while len(found) < measurements:
        began = time.process_time()
        if isinstance(proposer, WideProposer) and (estimate is not None or past) and len(found) % BATCH == 0:
            for _ in range(STEPS):
                widen(case, proposer, builds * BATCH // STEPS)
        config = proposer.ask()
        costs.append((time.process_time() - began) * 1e3)
        if config is None or best == case.best_us:  # nothing is left to ask, or to find
            found += [best] * (measurements - len(found))
            break
        record = case.records[config_key(config)]
        time_us = time_of(record)
        # One that was cut short is no result, but its first samples are told, as in a session.
        proposer.tell(config, learned_us(record))
        if time_us is not None and (best is None or time_us < best):
            best = time_us
        found.append(best)
    return found, costs


def widen(case: Case, proposer: WideProposer, count: int) -> None:
    for config in proposer.widen(count):
        outcome = build_of(case.records[config_key(config)])
        proposer.built(config, (outcome.resources or Resources(shared_memory_bytes=0)) if outcome.status is Status.OK else None)


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


def score(case: Case, runs: Sequence[Sequence[float | None]]) -> float | None:
    """The community's score: 0 is random search, 1 the optimum from the first evaluation on; None where random search is at the optimum at once."""
    evaluations = budget_of(case.times)
    slowest = max(case.times)
    mean = [statistics.fmean(run[step] or slowest for run in runs) for step in range(evaluations)]
    base = random_expectation(case.times, evaluations)
    gains = [(mean[i] - base[i]) / (case.best_us - base[i]) for i in range(evaluations) if base[i] - case.best_us > 1e-9 * case.best_us]
    return statistics.fmean(gains) if gains else None


def spread(values: Sequence[float]) -> float:
    """Standard error of a mean."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


Job = tuple[str, str, int]  # recording, entrant, seed
_CASES: dict[str, list[Case]] = {}


def work(job: tuple[Job, argparse.Namespace]) -> tuple[Job, list[tuple[list[float | None], list[float]]]]:
    """All workloads of a recording, by one entrant from one seed."""
    (path, text, seed), args = job
    if path not in _CASES:
        _CASES.clear()
        _CASES[path] = cases_of(read(Path(path)), args.templates)
        hold_out(Path(path), args.held_out)
    cases = _CASES[path]
    measured = [args.most if args.unscored else max(args.most, budget_of(case.times)) for case in cases]
    return (path, text, seed), [
        trajectory(case, cases, Entrant(text), seed=seed, measurements=count, builds=args.builds) for case, count in zip(cases, measured, strict=True)
    ]


def row_of(
    cases: Sequence[Case], text: str, runs: Sequence[Sequence[tuple[list[float | None], list[float]]]], marks: Sequence[int], *, scored: bool
) -> dict[str, object]:
    """One entrant's figures on one recording; `runs` by seed, then workload."""

    def share(case: Case, found: list[float | None], mark: int) -> float:
        # Nothing that runs counts as the slowest there is.
        return case.best_us / (found[mark - 1] or max(case.times))

    shares = [[[share(case, found, mark) for mark in marks] for case, (found, _) in zip(cases, run, strict=True)] for run in runs]
    geometric = [[math.exp(statistics.fmean(math.log(case[m]) for case in run)) for m in range(len(marks))] for run in shares]
    worst = [min(statistics.median(run[c][m] for run in shares) for c in range(len(cases))) for m in range(len(marks))]
    scores = [score(case, [run[c][0] for run in runs]) for c, case in enumerate(cases)] if scored else []
    known = [value for value in scores if value is not None]
    single = [
        statistics.fmean(values)
        for run in (runs if scored else ())
        if (values := [v for c, case in enumerate(cases) if (v := score(case, [run[c][0]])) is not None])
    ]
    return {
        "searcher": text,
        "seeds": len(runs),
        "geometric_mean": {str(mark): round(100 * statistics.median(run[m] for run in geometric), 2) for m, mark in enumerate(marks)},
        "worst": {str(mark): round(100 * worst[m], 2) for m, mark in enumerate(marks)},
        "score": round(statistics.fmean(known), 3) if known else None,
        "score_error": round(spread(single), 3) if single else None,
        "budget": round(statistics.fmean(budget_of(case.times) for case in cases)),
        "proposal_ms": round(statistics.median(cost for run in runs for _, costs in run for cost in costs), 2),
    }


def plot(report: Mapping[str, Sequence[Mapping[str, object]]], path: Path) -> None:
    """% of the optimum by measurements, a panel for each recording."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError(f"--plot {path}: needs matplotlib, which is not installed; install it by pip install matplotlib, or leave out --plot") from None
    figure = Figure(figsize=(6 * len(report), 4.5), layout="constrained")
    for axes, (name, rows) in zip(figure.subplots(1, len(report), squeeze=False)[0], report.items(), strict=True):
        for row in rows:
            points = {int(mark): value for mark, value in row["geometric_mean"].items()}  # type: ignore[attr-defined]
            axes.plot(list(points), list(points.values()), marker="o", markersize=3, label=str(row["searcher"]))
        axes.set(title=name, xscale="log", xlabel="measurements", ylabel="% of the optimum, geometric mean")
        axes.set_xticks(list(points), [str(mark) for mark in points])
        axes.legend(fontsize=7)
    figure.savefig(path)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--recorded", "--kernel-tuner", type=Path, nargs="+", default=sorted(DATA.glob("*.jsonl.gz")), metavar="FILE", help="recordings")
    parser.add_argument("--search", nargs="+", default=None, metavar="NAME[+WHAT]", help="default: all that the recording allows")
    parser.add_argument("--history", action="store_true", help="also with the other workloads of the recording as history")
    parser.add_argument("--templates", type=Path, action="append", default=[], help="folder of operators, for estimates")
    parser.add_argument("--held-out", type=Path, metavar="DIR", help="of pretrain.py --held-out")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--most", type=int, default=128, help="measurements")
    parser.add_argument("--unscored", action="store_true", help="without the score, which may take 400 measurements")
    parser.add_argument("--builds", type=int, default=8, help="builds for each measurement, where builds are looked at")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--plot", type=Path, help="draw them there, as .svg or .png")
    args = parser.parse_args(argv)
    marks = [mark for mark in MARKS if mark <= args.most]
    try:
        asked = args.search or [name for name in SEARCHERS if name != "grid"] + ["cost+general", "cost+predict"]
        for text in asked:
            check_searcher(Entrant(text).name)
        if args.history:
            asked += [f"{text}+history" for text in asked if Entrant(text).name in INFORMED]
        report: dict[str, list[dict[str, object]]] = {}
        with get_context("spawn").Pool(args.jobs) if args.jobs > 1 else nullcontext() as pool:
            for path in args.recorded:
                cases = cases_of(read(path), args.templates)
                usable = [text for text in asked if Entrant(text).may_run(cases[0].spec, len(cases))]
                sizes = [len(case.records) for case in cases]
                budgets = [budget_of(case.times) for case in cases]
                print(f"\n{path.name}: {len(cases)} workloads of {min(sizes)} to {max(sizes)} configs, budget {budgets}", flush=True)
                for text in usable:
                    jobs = [((str(path), text, seed), args) for seed in range(args.seeds)]
                    row = row_of(cases, text, [runs for _, runs in (pool.imap(work, jobs) if pool else map(work, jobs))], marks, scored=not args.unscored)
                    report.setdefault(path.name, []).append(row)
                    print(line(row), flush=True)
                    if args.json:
                        args.json.write_text(json.dumps(report, indent=2) + "\n")
        if args.plot:
            plot(report, args.plot)
    except TilewrightError as error:
        print(f"search_efficiency: {error}", file=sys.stderr)
        return 2
    return 0


def line(row: Mapping[str, object]) -> str:
    means, worst = row["geometric_mean"], row["worst"]
    figures = " | ".join(f"{mark}: {value:5.1f}/{worst[mark]:5.1f}" for mark, value in means.items())  # type: ignore[attr-defined, index]
    return f"{row['searcher']:24} {figures} | score {row['score']} +-{row['score_error']} | {row['proposal_ms']} ms"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
