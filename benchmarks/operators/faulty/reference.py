"""Inputs and trusted result of faulty. Loaded in child processes only: it imports torch."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.workload import Workload


def make_inputs(workload: Workload, specs: Any, generator: Any, device: Any) -> dict[str, Any]:
    return {name: torch.randn(spec.shape, generator=generator, device=device) for name, spec in specs.items()}


def reference(workload: Workload, inputs: Any) -> dict[str, Any]:
    return {"c": inputs["a"].double() + inputs["b"].double()}


VENDORS = {"torch.add": lambda workload, inputs: torch.add(inputs["a"], inputs["b"])}
