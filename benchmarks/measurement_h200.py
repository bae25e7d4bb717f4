"""Whether measurements may be believed, on the GPU at hand: four bars.

    python benchmarks/measurement_h200.py --out DIR [--device cuda:0] [--only stability,cost,planted,twice]

stability  one schedule in 8 fresh processes, among different neighbours, idle and with every core busy: coefficient of variation of the
           anchored time, at most 1.5%                                                        (some 90 s)
cost       milliseconds a candidate at 4096 x 4096 x 4096 bf16, at most 25 in the median, and the share of the time in which a kernel ran on
           the GPU (NVML's utilisation: percent of its sample period, sampled from the third of a second on), at least 60%: candidates asked for one
           after another, the same with the next one told ahead, and in a whole session whose builds are cached (some 35 s)
planted    wrong schedules that are the fastest of their space, 20 seeds: none may win        (some 25 s)
twice      two tunes with different seeds over 10 workloads, winners raced side by side: within 2% on 9, never over 4% (some 120 s)

Writes measurement.json, measurement.txt and logs below DIR and prints a short table last. A part that fails is told and does not stop the others.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from faults import Watch, run_session
from gpu_share import watching_gpu

from tilewright.builder import BuildRequest, CompileBuilder
from tilewright.carrying import carries
from tilewright.finalists import ratio_interval
from tilewright.job import RaceJob
from tilewright.library import Operator, find_operator
from tilewright.neighbours import Neighbours
from tilewright.record import Status, config_key
from tilewright.runner import DeviceRunner, MeasureJob, MeasureOutcome
from tilewright.template import Source
from tilewright.tuner import tune
from tilewright.workload import Workload

JOBS = max(1, len(os.sched_getaffinity(0)) - 1)
SESSIONS = 8
NEIGHBOURS = 4  # other schedules measured around the one looked at
STABILITY = (
    ("rms_norm", "rows=64,cols=16384,dtype=bfloat16"),  # some 5 µs
    ("matmul", "M=16,N=6144,K=4096,dtype=bfloat16"),  # 20 µs
    ("matmul", "M=4096,N=4096,K=4096,dtype=bfloat16"),  # 180 µs
    ("matmul", "M=8192,N=8192,K=7168,dtype=bfloat16"),  # 1,300 µs
)
COST = "M=4096,N=4096,K=4096,dtype=bfloat16"
TWICE = {
    "matmul": ("M=4096,N=4096,K=4096", "M=16,N=6144,K=4096", "M=512,N=8192,K=3584", "M=64,N=4096,K=14336,b_layout=col", "M=2048,N=4096,K=4096"),
    "rms_norm": ("rows=64,cols=16384", "rows=2048,cols=4096", "rows=4096,cols=8192"),
    "softmax": ("rows=2048,cols=4096", "rows=2048,cols=16384"),
}
SECONDS = {"matmul": 28.0, "rms_norm": 8.0, "softmax": 7.0}
SEEDS = 20
ROUNDS = 6  # over the candidates of `cost`, some 3 s: NVML samples some times a second
TRIALS = 96


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--only", default="stability,cost,planted,twice")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {}
    table: list[str] = []
    parts = {"stability": stability, "cost": cost, "planted": planted, "twice": twice}
    for name in options.only.split(","):
        began = time.monotonic()
        try:
            found[name], lines = parts[name](options)
            table += lines
        except Exception:
            traceback.print_exc()
            found[name] = {"error": traceback.format_exc()}
            table.append(f"{name}: FAILED, see above")
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
        (options.out / "measurement.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (options.out / "measurement.txt").write_text("\n".join(table) + "\n", encoding="utf-8")
    print("\n" + "\n".join(table))
    return 0


def cache(options: argparse.Namespace) -> Path:
    folder: Path = options.out / "cache"
    return folder


def sources(builder: CompileBuilder, operator: Operator, workload: Workload, target: Any, count: int) -> list[tuple[dict[str, Any], Source]]:
    """Schedules that compile: the author's first, then random ones."""
    space = operator.space(workload, target)
    configs = {config_key(config): config for config in [*space.suggestions()[:2], *space.sample(3 * count, random.Random(0))]}
    inputs = operator.spec.inputs(workload)
    arguments = (*(inputs[name] for name in operator.spec.arguments), *operator.spec.outputs(workload).values())
    rendered = [(dict(config), operator.render(workload, target, config)) for config in list(configs.values())[: count + count // 3]]
    built = [(config, source, builder.submit(BuildRequest(source=source, arguments=arguments, target=target))) for config, source in rendered]
    return [(config, source) for config, source, future in built if future.result().status is Status.OK][:count]


def stability(options: argparse.Namespace) -> tuple[Any, list[str]]:
    found: dict[str, Any] = {}
    lines = [f"{'anchored time in ' + str(SESSIONS) + ' sessions':62s} {'µs':>9s} {'raw cv':>8s} {'cv':>7s}"]
    with DeviceRunner(options.device, cache_dir=cache(options)) as runner:
        with CompileBuilder(JOBS, cache(options)) as builder:
            pools = []
            for name, text in STABILITY:
                operator = find_operator(name)
                workload = operator.spec.workload(text)
                pools.append((operator, workload, sources(builder, operator, workload, runner.target, 8)))
        for load in ("idle", "busy"):
            times: dict[str, list[tuple[float, float]]] = {}
            for session in range(SESSIONS):
                # A process of its own, with its own context; the spare has done its imports meanwhile.
                runner._retire_if_told({"retire": True})
                draw = random.Random(session)
                with burning() if load == "busy" else quiet():
                    for operator, workload, pool in pools:
                        (_, target), *others = pool
                        order = [target, *(source for _, source in draw.sample(others, min(NEIGHBOURS, len(others))))]
                        draw.shuffle(order)
                        for source in order:
                            outcome = measure(runner, operator, workload, source)
                            if source is target and outcome.status is Status.OK and outcome.measurement is not None:
                                times.setdefault(workload.key, []).append((outcome.measurement.median_us, outcome.measurement.ranked_us))
            for key, pairs in times.items():
                raw, anchored = ([pair[place] for pair in pairs] for place in (0, 1))
                found[f"{load} {key}"] = {"raw_us": raw, "anchored_us": anchored}
                lines.append(f"{load + ' ' + key[:56]:62s} {statistics.median(raw):9.2f} {100 * cv(raw):7.2f}% {100 * cv(anchored):6.2f}%")
    return found, lines


def measure(runner: DeviceRunner, operator: Operator, workload: Workload, source: Source, neighbours: tuple[Workload, ...] = ()) -> MeasureOutcome:
    return runner.measure(MeasureJob(operator=operator.name, folder=operator.folder, workload=workload, source=source, neighbours=neighbours))


def cv(values: list[float]) -> float:
    return statistics.stdev(values) / statistics.fmean(values) if len(values) > 1 else float("nan")


@contextmanager
def quiet() -> Iterator[None]:
    yield


@contextmanager
def burning() -> Iterator[None]:
    """Every core busy."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: sum(range(10**5))"]) for _ in range(len(os.sched_getaffinity(0)))]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def cost(options: argparse.Namespace) -> tuple[Any, list[str]]:
    operator = find_operator("matmul")
    workload = operator.spec.workload(COST)
    found: dict[str, Any] = {}
    lines: list[str] = []
    with DeviceRunner(options.device, cache_dir=cache(options)) as runner:
        target = runner.target
        with CompileBuilder(JOBS, cache(options)) as builder:
            pool = sources(builder, operator, workload, target, 24)
        find = Neighbours(lambda other, config, source: carries(operator.templates[source.schedule], other, target, config, source.hash))
        jobs = [MeasureJob(operator=operator.name, folder=operator.folder, workload=workload, source=source) for _, source in pool]
        for job in jobs:  # compiles launchers, and brings the GPU to its heat
            runner.measure(job)
        for told in (False, True):
            walls: list[float] = []
            phases: dict[str, list[float]] = {}
            checked = 0
            best: float | None = None
            with watching_gpu() as usage:
                for _ in range(ROUNDS):
                    for place, (config, source) in enumerate(pool):
                        began = time.perf_counter()
                        job = replace(
                            jobs[place],
                            cut_above_us=best,
                            neighbours=find.of(workload, config, source),
                            ahead=pool[(place + 1) % len(pool)][1] if told else None,
                        )
                        outcome = runner.measure(job)
                        find.learn(workload, source, outcome.check.ragged if outcome.check is not None else "")
                        walls.append((time.perf_counter() - began) * 1000)
                        checked += bool(outcome.check is not None and outcome.check.ragged)
                        for phase, ms in outcome.phases_ms.items():
                            phases.setdefault(phase, []).append(ms)
                        if outcome.status is Status.OK and outcome.measurement is not None:
                            best = min(best or outcome.measurement.median_us, outcome.measurement.median_us)
            name = "the next one told ahead" if told else "one after another"
            medians = {phase: round(statistics.median(ms), 2) for phase, ms in phases.items()}
            found[name] = {"wall_ms": walls, "phases_ms": medians, "gpu_percent": usage, "ragged": checked}
            lines.append(f"{name}: {costs(walls)}; GPU busy {mean(usage):.0f}%; {checked} of {len(walls)} checked at a ragged neighbour")
            lines.append(f"  by phase: {medians}")
        found["stages"] = [asdict(stage) for stage in runner.stages]
    found["session"], line = session(options)
    return found, [*lines, line]


def session(options: argparse.Namespace) -> tuple[Any, str]:
    """The same search twice: the second finds its builds in the cache, and is watched from its tenth record to its last."""
    for name in ("cost-build", "cost-session"):
        log = options.out / f"{name}.jsonl"
        log.unlink(missing_ok=True)
        watch = Watch()
        with watching_gpu(lambda watch=watch: len(watch.came) >= 10 and len(watch.came) < TRIALS) as usage:  # type: ignore[misc]
            tune("matmul", [COST], trials=TRIALS, search="random", seed=5, log=log, device=options.device, observer=watch)
    moments = [moment for moment, _ in watch.came[9:]]
    walls = [(after - before) * 1000 for before, after in zip(moments, moments[1:], strict=False)]
    text = f"a session of {TRIALS} random trials, builds cached: {costs(walls)}; GPU busy {mean(usage):.0f}%"
    return {"wall_ms": walls, "gpu_percent": usage}, text


def costs(walls: list[float]) -> str:
    return f"{statistics.median(walls):.1f} ms a candidate in the median, {sorted(walls)[int(0.9 * len(walls))]:.1f} in nine of ten"


def mean(values: list[int]) -> float:
    return statistics.fmean(values) if values else float("nan")


def planted(options: argparse.Namespace) -> tuple[Any, list[str]]:
    winners: list[Any] = []
    caught: dict[str, int] = {}
    with DeviceRunner(options.device, cache_dir=cache(options)) as runner, CompileBuilder(JOBS, cache(options)) as builder:
        for seed in range(SEEDS):
            log = options.out / f"planted-{seed}.jsonl"
            log.unlink(missing_ok=True)
            # 3 MB: too small for a roofline's floor, since it stays in L2.
            result, watch = run_session(runner, builder, log, faults="planted", n=262144, seed=seed, search="random")
            best = result.results[0].best
            winners.append(dict(best.config) if best is not None else None)
            for _, record in watch.came:
                place = f"{record.config['fault']}: {record.status}"
                caught[place] = caught.get(place, 0) + 1
    wrong = sum(winner is None or winner["fault"] != "none" for winner in winners)
    return {"winners": winners, "statuses": caught}, [f"planted wrong schedules won in {wrong} of {SEEDS} seeds; records: {caught}"]


def twice(options: argparse.Namespace) -> tuple[Any, list[str]]:
    found: dict[str, Any] = {}
    lines = [f"{'winners of two seeds, raced':56s} {'ratio':>7s}  interval"]
    apart: list[float] = []
    for name, workloads in TWICE.items():
        operator = find_operator(name)
        texts = [f"{text},dtype=bfloat16" for text in workloads]
        results = []
        for seed in (1, 2):
            log = options.out / f"twice-{name}-{seed}.jsonl"
            log.unlink(missing_ok=True)
            results.append(tune(name, texts, time_s=SECONDS[name], seed=seed, log=log, device=options.device))
        with DeviceRunner(options.device, cache_dir=None, spare=False) as runner:
            for first, second in zip(results[0].results, results[1].results, strict=True):
                if first.best is None or second.best is None:
                    found[first.workload.key] = "no winner"
                    continue
                pair = [operator.render(first.workload, runner.target, answer.best.config) for answer in (first, second) if answer.best is not None]
                same = pair[0].hash == pair[1].hash
                job = RaceJob(operator=name, folder=operator.folder, workload=first.workload, sources=(pair[0],) if same else tuple(pair))
                outcome = runner.race(job)
                ran = [entrant.times_us for entrant in outcome.schedules]
                if not all(ran):
                    found[first.workload.key] = [entrant.message for entrant in outcome.schedules]
                    continue
                ratio, low, high = (1.0, 1.0, 1.0) if same else ratio_interval(ran[1], ran[0])
                apart.append(abs(ratio - 1))
                found[first.workload.key] = {"ratio": ratio, "low": low, "high": high, "same": same, "gains": [first.gain_over_vendor, second.gain_over_vendor]}
                lines.append(f"{first.workload.key[:56]:56s} {ratio:7.4f}  {low:.4f} to {high:.4f}{' (the same)' if same else ''}")
    within = sum(one <= 0.02 for one in apart)
    lines.append(f"within 2% on {within} of {len(apart)}, at most {100 * max(apart, default=float('nan')):.1f}% apart")
    return found, lines


if __name__ == "__main__":
    sys.exit(main())
