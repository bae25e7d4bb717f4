"""Runs rendered schedules in Triton's interpreter, and prints their errors: the child of test_operators_interpreted.py.

Reads cases from standard input, each [templates folder or null, operator, workload, config]; prints one JSON object a case.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tilewright.library import find_operator
from tilewright.target import named_target

# Few multiprocessors, so that a persistent schedule has more tiles than programs at a small shape.
TARGET = replace(named_target("sm_90"), sm_count=4)


def load(path: Path, name: str) -> ModuleType:
    description = importlib.util.spec_from_file_location(name, path)
    assert description is not None and description.loader is not None
    module = importlib.util.module_from_spec(description)
    description.loader.exec_module(module)
    return module


def run(root: str | None, name: str, text: str, config: dict[str, Any], folder: Path) -> dict[str, Any]:
    operator = find_operator(name, [Path(root)] if root else [])
    workload = operator.spec.workload(text)
    source = operator.render(workload, TARGET, config)
    path = folder / f"schedule_{source.hash[:16]}.py"
    path.write_text(source.text)
    schedule = load(path, path.stem)
    reference = load(operator.reference, f"reference_{name}")
    inputs = reference.make_inputs(workload, operator.spec.inputs(workload), torch.Generator().manual_seed(7), "cpu")
    before = {key: value.clone() for key, value in inputs.items() if isinstance(value, torch.Tensor)}
    outputs = {key: torch.full(spec.shape, float("nan"), dtype=getattr(torch, spec.dtype)) for key, spec in operator.spec.outputs(workload).items()}
    arguments = [*(inputs[key] for key in operator.spec.arguments), *outputs.values()]
    scratch = [torch.full(shape, float("nan"), dtype=getattr(torch, dtype)) for shape, dtype in getattr(schedule, "workspace", lambda *_: [])(*arguments)]
    schedule.launch(*arguments, *scratch)
    tolerance = operator.spec.tolerance(workload)
    verdicts = []
    for key, expected in reference.reference(workload, inputs).items():
        error = outputs[key].double() - expected.double()
        rms = expected.double().square().mean().sqrt()
        verdicts.append({"rel_norm": float(error.norm() / expected.double().norm()), "max_error": float(error.abs().max() / rms)})
    vendors = {key: vendor(workload, inputs) for key, vendor in reference.VENDORS.items()}
    return {
        "verdicts": verdicts,
        "allowed": {"rel_norm": tolerance.rel_norm, "max_error": tolerance.max_error},
        "inputs_kept": all(torch.equal(inputs[key], value) for key, value in before.items()),
        "strides": {key: list(value.stride()) for key, value in before.items()},
        "zeros": sum(int((value == 0).sum()) for value in before.values()) / sum(value.numel() for value in before.values()),
        "vendors": {key: float((result.double() - expected.double()).norm() / expected.double().norm()) for key, result in vendors.items()},
        "scratch": len(scratch),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for case in json.load(sys.stdin):
            print(json.dumps(run(*case, Path(folder))), flush=True)


if __name__ == "__main__":
    main()
