"""What a run in Triton's interpreter takes, by programs and the steps of their loops: how small "small enough" is.

    python benchmarks/interpreter_steps.py

No GPU. Matrix products by the schedule `pointers`, checked and not timed; a step loads a tile of A and one of B, and multiplies them.
"""

from __future__ import annotations

import random
import statistics
from typing import Final

from tilewright.job import MeasureJob
from tilewright.library import find_operator
from tilewright.runner import InterpreterRunner
from tilewright.target import named_target

SHAPES: Final = ((64, 64, 64), (256, 256, 256), (64, 64, 1024), (64, 64, 4096))
CONFIGS: Final = 6  # of each


def main() -> None:
    """Print a line for each config, and the milliseconds of a program and of a step that fit them best."""
    target, operator = named_target("sm_90"), find_operator("matmul")
    found: list[tuple[float, int]] = []  # milliseconds of a program, and its steps
    with InterpreterRunner(target) as runner:
        for shape in SHAPES:
            workload = operator.workload("M={},N={},K={},dtype=float16".format(*shape))
            space = operator.space(workload, target)
            plain = [config for config in space.enumerate() if config["schedule"] == "pointers" and config["split_k"] == 1]
            tiles = {str([config["tile_m"], config["tile_n"], config["tile_k"]]): config for config in random.Random(0).sample(plain, len(plain))}
            for config in list(tiles.values())[:CONFIGS]:
                source = operator.render(workload, target, config)
                job = MeasureJob(operator=operator.name, folder=operator.folder, workload=workload, source=source, timed=False)
                runner.measure(job)  # a fresh child, and the inputs of a workload, are not to be paid for
                outcome = runner.measure(job)
                run_ms = outcome.phases_ms["check"] / 2
                (rows, m), (columns, n), (steps, k) = config["tile_m"], config["tile_n"], config["tile_k"]  # type: ignore[misc]
                programs = rows * columns
                found.append((run_ms / programs, steps))
                shown = " x ".join(map(str, shape)), " x ".join(map(str, (m, n, k)))
                print(f"{shown[0]:16} in {shown[1]:14} {programs:4} programs of {steps:3} steps {run_ms:8.1f} ms {run_ms / programs:7.2f} ms a program")
    slope, start = statistics.linear_regression([steps for _, steps in found], [each for each, _ in found])
    print(f"a program takes {start:.1f} ms, and {slope:.2f} ms a step")


if __name__ == "__main__":
    main()
