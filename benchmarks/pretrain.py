"""Train what corrects the general estimate, on recorded spaces of many operators.

    python benchmarks/pretrain.py                          src/tilewright/search/pretrained.json, from all of benchmarks/data but three
    python benchmarks/pretrain.py --held-out DIR           for each family of operators DIR/FAMILY.json, trained without it, to see what it is worth for others

What is learned is log(time / estimate), up to a constant of each workload: all operators count alike, and of them all workloads; points by a power of their
closeness to the workload's best. `recorded_gemm`, `bmm_gelu` and `depthwise_conv1d` take no part, so that there are spaces that nothing was trained on.
Eight networks are averaged, each of which went without three tenths of the families; they take some 20 s together. The same recordings and PyTorch give the
same weights.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import torch
from search_efficiency import DATA, cases_of, family_of, read, time_of

from tilewright.descriptors import NAMES
from tilewright.estimate import GeneralEstimate
from tilewright.result import learned_us
from tilewright.search.pretrained import Weights

SHIPPED = Path(__file__).parents[1] / "src/tilewright/search/pretrained.json"
LEFT_OUT = ("recorded_gemm", "bmm_gelu", "depthwise_conv1d")
DEVICE = "NVIDIA H200"
HIDDEN = 16
NETWORKS = 8
STEPS = 2_000
# Share of the families that a network is not shown.
WITHOUT = 0.3
# In a step: workloads, and points of each.
WORKLOADS, POINTS = 8, 128
CLOSENESS = 1.5
RATE, DECAY = 3e-3, 1e-2
# Standard deviation of what is added to descriptors while learning, in theirs.
NOISE = 0.1
# What was cut short is taken for so much slower than the best, at least.
CUT = 3.0
DIGITS = 4


@dataclass
class Sample:
    """One workload's points."""

    family: str
    operator: str
    described: np.ndarray
    missed: np.ndarray
    weights: np.ndarray


def samples_of(path: Path) -> list[Sample]:
    """Points of a recording that were built and timed."""
    found = []
    for case in cases_of(read(path), []):
        assert case.spec is not None, f"{path} has no operator at hand"
        estimate = GeneralEstimate(replace(case.spec, predict=None), case.workload, case.recording.target)
        rows, missed, times = [], [], []
        for record in case.records.values():
            told = learned_us(record)
            estimated = estimate(record.config, record.resources) if record.resources is not None and told else None
            if not told or not estimated:
                continue
            time_us = time_of(record) or max(told, CUT * case.best_us)
            rows.append(estimate.describe(record.config, record.resources, estimated))
            missed.append(math.log(time_us / estimated))
            times.append(time_us)
        if not times:
            continue
        closeness = (min(times) / np.array(times)) ** CLOSENESS
        found.append(Sample(family_of(path), path.name, np.array(rows), np.array(missed), closeness))
    return found


def train(samples: Sequence[Sample], mean: np.ndarray, deviation: np.ndarray) -> list[list[tuple[list[list[float]], list[float]]]]:
    """The layers of all networks, which are trained side by side, each on draws of its own."""
    torch.manual_seed(0)
    widths = (len(mean), HIDDEN, HIDDEN, 1)
    layers = []
    for inputs, outputs in zip(widths, widths[1:], strict=False):
        bound = 1 / math.sqrt(inputs)
        layers += [((2 * torch.rand(NETWORKS, rows, outputs) - 1) * bound).requires_grad_() for rows in (inputs, 1)]
    optimizer = torch.optim.AdamW(layers, lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    described = torch.tensor(np.concatenate([(sample.described - mean) / deviation for sample in samples]), dtype=torch.float32)
    missed, weights = (torch.tensor(np.concatenate(parts), dtype=torch.float32) for parts in zip(*((s.missed, s.weights) for s in samples), strict=True))
    counts = torch.tensor([len(sample.missed) for sample in samples])
    begins = counts.cumsum(0) - counts
    workloads = Counter(sample.operator for sample in samples)
    operators = Counter(family for family, _ in {(sample.family, sample.operator) for sample in samples})
    chances = torch.tensor([1 / workloads[sample.operator] / operators[sample.family] for sample in samples])
    # Each network goes without some families, so that they agree on what holds for all.
    families = sorted(operators)
    held = torch.rand(NETWORKS, len(families)).argsort(1) >= round(WITHOUT * len(families))
    chances = chances * held[:, [families.index(sample.family) for sample in samples]]
    for _ in range(STEPS):
        chosen = torch.multinomial(chances, WORKLOADS, replacement=True).reshape(-1, 1)
        points = begins[chosen] + (torch.rand(len(chosen), POINTS) * counts[chosen]).long()
        found = described[points].reshape(NETWORKS, WORKLOADS * POINTS, -1)
        found = found + NOISE * torch.randn_like(found)
        for place in range(0, len(layers), 2):
            found = (torch.nn.functional.silu(found) if place else found) @ layers[place] + layers[place + 1]
        left, weight = missed[points] - found.reshape(points.shape), weights[points]
        centre = (weight * left).sum(1, keepdim=True) / weight.sum(1, keepdim=True)
        losses = (weight * (left - centre) ** 2).sum(1) / weight.sum(1)
        optimizer.zero_grad()
        losses.reshape(NETWORKS, WORKLOADS).mean(1).sum().backward()
        optimizer.step()
        schedule.step()
    kept = [layer.detach().double().round(decimals=DIGITS) for layer in layers]
    return [
        [(weight[network].T.tolist(), bias[network, 0].tolist()) for weight, bias in zip(kept[::2], kept[1::2], strict=True)] for network in range(NETWORKS)
    ]


def write(samples: Sequence[Sample], path: Path) -> None:
    """Train on some samples, and write the weights."""
    described = np.concatenate([sample.described for sample in samples])
    # What never differs is as far from its mean as it is.
    mean, deviation = described.mean(axis=0).round(DIGITS), described.std(axis=0).round(DIGITS)
    deviation[deviation == 0] = 1.0
    weights = Weights(
        names=list(NAMES),
        mean=mean.tolist(),
        deviation=deviation.tolist(),
        layers=train(samples, mean, deviation),
        trained_on=sorted({sample.operator for sample in samples}),
        device=DEVICE,
    )
    assert all(np.isfinite(value).all() for network in weights.layers for layer in network for value in layer), "the training diverged"
    path.write_bytes(msgspec.json.encode(weights) + b"\n")
    print(f"{path}: {len(samples)} workloads of {len(weights.trained_on)} recordings, {path.stat().st_size:,} bytes", flush=True)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--recorded", type=Path, nargs="+", default=sorted(DATA.glob("*.jsonl.gz")), metavar="FILE")
    parser.add_argument("--held-out", type=Path, metavar="DIR", help="a network for each family, trained without it, into this folder")
    parser.add_argument("--families", nargs="+", metavar="FAMILY", help="of --held-out, only these")
    parser.add_argument("-o", "--out", type=Path, help="default: what is shipped")
    args = parser.parse_args(argv)
    if args.out is None and args.held_out is None and args.recorded != sorted(DATA.glob("*.jsonl.gz")):
        parser.error("--recorded without -o would replace what is shipped by what some recordings say")
    torch.set_num_threads(1)
    samples = [sample for path in args.recorded if not path.name.startswith(LEFT_OUT) for sample in samples_of(path)]
    if args.held_out is None:
        write(samples, args.out or SHIPPED)
        return 0
    args.held_out.mkdir(parents=True, exist_ok=True)
    for family in args.families or sorted({family_of(path) for path in args.recorded}):
        write([sample for sample in samples if sample.family != family], args.held_out / f"{family}.json")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
