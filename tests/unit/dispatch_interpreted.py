"""Calls of `tilewright.load` in Triton's interpreter: the child of test_dispatch.py. Prints one JSON object of what each case gave."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import tilewright
from tilewright import dispatch, on_miss
from tilewright.bestfile import BestEntry, BestFile, BestRange, Pins, Step, best_text, entry_text
from tilewright.library import find_operator
from tilewright.record import Measurement, Record, Status
from tilewright.result import TuneResult, WorkloadResult
from tilewright.target import named_target
from tilewright.workload import Workload

OPERATOR = find_operator("rms_norm")
TARGET = named_target("sm_90")


def workload(rows: int, cols: int) -> Workload:
    return OPERATOR.spec.workload({"rows": rows, "cols": cols, "dtype": "float32"})


def best(rows: int, cols: int, **pins: str) -> BestEntry:
    asked = workload(rows, cols)
    config = OPERATOR.space(asked, TARGET).default()
    source = OPERATOR.render(asked, TARGET, config)
    pinned = Pins(protocol="interpreter/1", **{"source": source.hash, "template": source.template_hash, **pins})
    return BestEntry(workload=asked, target=TARGET.interpreted(), config=config, median_us=1.0, pins=pinned)


def spread(cols: int, low: int, high: int) -> BestRange:
    entry = best(high, cols)
    rest = replace(entry.workload, dims={"cols": cols})
    step = Step(low=low, high=high, at=high, config=entry.config, pins=entry.pins)
    return BestRange(workload=rest, target=entry.target, dim="rows", steps=[step], tuned=[high])


def inputs(rows: int, cols: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, cols, generator=generator), torch.randn(cols, generator=generator)


def error(tuned: Any, rows: int, cols: int) -> float:
    x, w = inputs(rows, cols)
    expected = torch.nn.functional.rms_norm(x, (cols,), w, 1e-6)
    return float((tuned(x, w) - expected).abs().max())


def raised(call: Callable[[], Any]) -> list[str]:
    try:
        return ["", str(call())]
    except Exception as caught:
        return [type(caught).__name__, str(caught)]


def tuned_at_first_encounter(folder: Path) -> dict[str, Any]:
    """With the session replaced by one that takes the default: how often it is asked, and what calls give."""
    asked: list[str] = []
    inside = threading.Lock()

    def tune(operator: str, workloads: list[Workload], **options: Any) -> TuneResult:
        assert inside.acquire(blocking=False), "two tuners of one key at once"
        asked.append(f"{workloads[0].key} on {options['device']} for {options['time_s']} s")
        entry = best(workloads[0].dims["rows"], workloads[0].dims["cols"])
        record = Record(
            session="s", trial=0, workload=workloads[0], target=entry.target, config=entry.config, status=Status.OK,
            measurement=Measurement(protocol="interpreter/1", median_us=1.0, min_us=1.0, max_us=1.0),
        )  # fmt: skip
        threading.Event().wait(0.05)
        inside.release()
        result = WorkloadResult(workload=workloads[0], tier="search", best=record)
        return TuneResult(results=(result,), log="", protocol="interpreter/1", device="", reason="budget", wall_s=0.0)

    on_miss.tune = tune
    helper = tilewright.TuneOnMiss(log=folder / "log.jsonl", time_s=5.0)
    one = tilewright.load("rms_norm", logs=[folder / "best.jsonl"], on_miss=helper)
    two = tilewright.load("rms_norm", logs=[folder / "best.jsonl"], on_miss=helper)
    served: list[str] = []

    def serve(tuned: Any) -> None:
        server, parameters = tuned.dispatcher.server, workload(3, 64).parameters
        served.append(server.serve(parameters, -1, {"backend": "interpreter"}).choice.how)

    threads = [threading.Thread(target=serve, args=(tuned,)) for tuned in (one, one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # One after another: the interpreter replaces functions of Triton's while it runs.
    return {"asked": asked, "served": served, "errors": [error(one, 3, 64), error(two, 3, 64)]}


def main(folder: Path) -> dict[str, Any]:
    file = folder / "best.jsonl"
    file.write_text(best_text([best(4, 256), best(8, 300)]) + entry_text(spread(256, 5, 9)) + "\n")
    stale = folder / "stale.jsonl"
    stale.write_text(best_text([best(4, 256, source="0" * 64)]))
    tuned = tilewright.load("rms_norm", logs=[file])
    x, w = inputs(4, 256)
    out = torch.empty(4, 256)
    answers = {
        "exact": [error(tuned, 4, 256), error(tuned, 8, 300), error(tuned, 4, 256)],
        "range": [error(tuned, rows, 256) for rows in (5, 9)],
        "out": tuned(x, w=w, out=out) is out and torch.equal(out, tuned(x, w, 1e-6)),
        "miss": raised(lambda: tuned(*inputs(7, 300))),
        "stale": raised(lambda: tilewright.load("rms_norm", logs=[stale])(x, w)),
        "stale_explained": tilewright.explain(tilewright.load("rms_norm", logs=[stale]), x, w),
        "stale_nearest": raised(lambda: tilewright.load("rms_norm", logs=[stale], on_miss="nearest")(*inputs(6, 256))),
        "bfloat16": raised(lambda: tilewright.load("rms_norm", logs=[], on_miss="default")(x.bfloat16(), w.bfloat16())),
        "bfloat16_vendor": raised(lambda: tilewright.load("rms_norm", logs=[], on_miss="vendor")(x.bfloat16(), w.bfloat16()).dtype),
        "nothing": raised(lambda: tilewright.load("rms_norm", logs=[], on_miss=lambda missed: None)(x, w)),
        "mode": raised(lambda: tilewright.load("rms_norm", logs=[file], on_miss="nearst")),
        "wrong": raised(lambda: tuned(x, w[:100])),
        "default": error(tilewright.load("rms_norm", logs=[], on_miss="default"), 5, 700),
        "nearest": error(tilewright.load("rms_norm", logs=[file], on_miss="nearest"), 6, 400),
        "illegal": raised(lambda: tilewright.load("rms_norm", logs=[file], on_miss="nearest")(*inputs(6, 1000))),
        "vendor": error(tilewright.load("rms_norm", logs=[], on_miss="vendor"), 5, 700),
        "function": error(tilewright.load("rms_norm", logs=[], on_miss=lambda missed: dispatch.source_module(
            OPERATOR.render(workload(2, 64), TARGET, OPERATOR.space(workload(2, 64), TARGET).default()))), 2, 64),
        "explain": tilewright.explain(tuned, x, w),
        "explain_other": raised(lambda: tilewright.explain(print, x)),
        "counters": tuned.counters(),
        "file": len(dispatch.read_best(file).entries) + len(BestFile(entries=(), ranges=tuned.best.ranges).ranges),
        "tune": tuned_at_first_encounter(folder),
    }  # fmt: skip
    return answers


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps(main(Path(scratch))))
        sys.stdout.flush()
