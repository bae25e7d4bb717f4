"""Times of a few schedules, each measured twice on a GPU, and what measuring a candidate costs, by phase.

    python benchmarks/measure_smoke.py [--device cuda:0] [--operator matmul] [-w M=4096,N=4096,K=4096,dtype=bfloat16]... [--configs N]

The schedules are the author's suggestions first, then random ones. All are built before the first is measured, so that what is
printed is measuring alone. The bar: 25 ms a candidate in the median at 4096 x 4096 x 4096 bf16, check included.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections import Counter

from tilewright.builder import BuildRequest, CompileBuilder
from tilewright.library import Operator, find_operator
from tilewright.record import Status, config_key
from tilewright.roofline import roofline
from tilewright.runner import DeviceRunner, Job, MeasureJob, MeasureOutcome
from tilewright.template import Source
from tilewright.workload import Workload

WORKLOADS = ("M=4096,N=4096,K=4096,dtype=bfloat16", "M=16,N=6144,K=4096,dtype=bfloat16", "M=512,N=8192,K=3584,dtype=bfloat16")
PHASES = ("prepare", "load", "check", "ragged", "capture", "time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--operator", default="matmul")
    parser.add_argument("-w", "--workload", action="append", help="workload parameters; may be given again")
    parser.add_argument("--configs", type=int, default=12)
    parser.add_argument("--jobs", type=int, default=max(1, len(os.sched_getaffinity(0)) - 1))
    options = parser.parse_args()
    operator = find_operator(options.operator)
    began = time.perf_counter()
    with DeviceRunner(options.device) as runner:
        target = runner.target
        print(f"{target.name}: {target.to_json()}\n{runner.toolchain}\nchild ready and warm in {time.perf_counter() - began:.1f} s")
        with CompileBuilder(options.jobs) as builder:
            for text in options.workload or WORKLOADS:
                workload = operator.spec.workload(text)
                candidates = build(builder, operator, workload, runner, options.configs)
                measure(runner, operator, workload, candidates)


def build(builder: CompileBuilder, operator: Operator, workload: Workload, runner: DeviceRunner, count: int) -> list[tuple[str, Source]]:
    """Sources of distinct configs that compile."""
    space = operator.space(workload, runner.target)
    configs = {config_key(config): config for config in [*space.suggestions(), *space.sample(2 * count, random.Random(0))]}
    spec = operator.spec
    inputs = spec.inputs(workload)
    arguments = (*(inputs[name] for name in spec.arguments), *spec.outputs(workload).values())
    sources = [(key, operator.render(workload, runner.target, config)) for key, config in list(configs.items())[:count]]
    built = [(key, source, builder.submit(BuildRequest(source=source, arguments=arguments, target=runner.target))) for key, source in sources]
    ended = Counter(future.result().status for _, _, future in built)
    print(f"\n{workload.key}: built {dict(ended)}")
    return [(key, source) for key, source, future in built if future.result().status is Status.OK]


def measure(runner: DeviceRunner, operator: Operator, workload: Workload, candidates: list[tuple[str, Source]]) -> None:
    """Measure the vendors and each candidate twice, and print."""
    line = roofline(operator.spec, workload, runner.target)
    for name, outcome in runner.vendors(Job(operator=operator.name, folder=operator.folder, workload=workload)):
        print(f"  {name:<24} {describe(outcome)}")
    rounds: list[list[MeasureOutcome]] = []
    walls: list[float] = []
    for _ in range(2):
        outcomes = []
        for _, source in candidates:
            job = MeasureJob(operator=operator.name, folder=operator.folder, workload=workload, source=source)
            began = time.perf_counter()
            outcomes.append(runner.measure(job))
            walls.append((time.perf_counter() - began) * 1000)
        rounds.append(outcomes)
    for number, ((key, _), *outcomes) in enumerate(zip(candidates, *rounds, strict=True)):
        print(f"  {number:>2} {'  |  '.join(map(describe, outcomes))}  {key}")
    done = [outcome for outcomes in rounds for outcome in outcomes if outcome.measurement and outcome.status is Status.OK]
    if not done:
        return
    best = min(outcome.measurement.median_us for outcome in done if outcome.measurement)
    again = [abs(b.measurement.median_us / a.measurement.median_us - 1) for a, b in zip(*rounds, strict=True) if a.measurement and b.measurement]
    print(f"  best {best:.2f} µs: {line.tflops(best):.0f} TFLOP/s, {line.gb_s(best):.0f} GB/s, {100 * (line.fraction(best) or 0):.0f}% of the roofline")
    print(f"  the second time differs by {100 * statistics.median(again):.2f}% in the median, {100 * max(again):.2f}% at most")
    phases = {phase: statistics.median(outcome.phases_ms.get(phase, 0.0) for outcome in done) for phase in PHASES}
    print(f"  ms a candidate (median): {statistics.median(walls):.1f} in all; {', '.join(f'{phase} {ms:.1f}' for phase, ms in phases.items())}")


def describe(outcome: MeasureOutcome) -> str:
    found = outcome.measurement
    if found is None or outcome.status is not Status.OK:
        return f"{outcome.status}: {outcome.message[:120]!r}"
    return f"{found.median_us:9.2f} µs cv {100 * found.cv:4.1f}% n {found.samples:>2} {found.protocol}"


if __name__ == "__main__":
    main()
