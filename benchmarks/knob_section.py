"""Evaluations of a knob section per CPU second, on one core, on the recorded GEMM's template of 2,304 points.

    python benchmarks/knob_section.py [--seconds S]

The bar is 20,000 a second. One evaluation is one pass over the template's compiled knob section: all declarations, with
choices looked up and requires checked, no rendering of the kernel.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from pathlib import Path

from tilewright.library import find_operator
from tilewright.space import Space
from tilewright.target import named_target

OPERATORS = Path(__file__).resolve().parent / "operators"
BAR = 20_000


def main(argv: list[str] | None = None) -> int:
    """Print the rates; 1 where the slower of the two is below the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="time of each of the two measurements")
    seconds = parser.parse_args(argv).seconds
    operator = find_operator("recorded_gemm", [OPERATORS])
    workload = operator.spec.workload("M=4096,N=4096,K=4096")
    target = named_target("sm_90")
    space = operator.space(workload, target)
    print(f"{space.size_bound()} points, {space.count().legal} legal, rejected: {dict(space.count().rejected)}")

    # Both requires stand behind the last knob, so each of the points is one pass.
    passes, began = 0, time.process_time()
    while time.process_time() - began < seconds:
        fresh = Space({name: template.program(workload, target) for name, template in operator.templates.items()})
        passes += fresh.count().points or 0
    enumerated = passes / (time.process_time() - began)

    rng = random.Random(0)
    points = [{knob.name: rng.choice(knob.values) for knob in space.knobs} for _ in range(4096)]
    done, began = 0, time.process_time()
    for point in itertools.cycle(points):
        space.evaluate(lambda knob, point=point: point[knob.name])  # type: ignore[misc]
        done += 1
        if time.process_time() - began >= seconds:
            break
    evaluated = done / (time.process_time() - began)

    print(f"enumerate: {enumerated:10,.0f} evaluations/s (a failed require cuts the pass)")
    print(f"evaluate:  {evaluated:10,.0f} evaluations/s (to the end, chosen by value)")
    print(f"bar:       {BAR:10,} evaluations/s: {'met' if min(enumerated, evaluated) >= BAR else 'MISSED'}")
    return 0 if min(enumerated, evaluated) >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
