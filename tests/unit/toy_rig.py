"""A toy operator of two schedules in a folder, tuned on a device of fakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright.device import Device
from tilewright.history import LogHistory
from tilewright.library import Operator
from tilewright.log import TuningLog
from tilewright.observer import Budget, Observers
from tilewright.record import Measurement, Record, Status
from tilewright.result import TuneResult, WorkloadResult
from tilewright.runner import MeasureJob, MeasureOutcome
from tilewright.session import Session
from tilewright.target import named_target
from tilewright.testing import FakeBuilder, FakeRunner, timed

TARGET = named_target("sm_90")
SPEC = """
from tilewright.operator import OperatorSpec, TensorSpec, Tolerance

SPEC = OperatorSpec(
    name="toy", summary="y = x", dims=("N",), dtypes={}, arguments=("x",),
    inputs=lambda w: {"x": TensorSpec(shape=(w["N"],), dtype="float32")}, outputs=lambda w: {"y": TensorSpec(shape=(w["N"],), dtype="float32")},
    flops=lambda w: w["N"], bytes_moved=lambda w: 8 * w["N"], tolerance=lambda w: Tolerance(rel_norm=1e-3, max_error=1e-2, reason="none"),
    infer=lambda args: {"N": args["x"].shape[0]},
)
"""
TEMPLATE = "{% set tile = cfg.define_knob('tile', [1, 2, 4, 8, 16, 32]) %}\n{% do cfg.suggest(tile=4) %}\n# NAME BROKEN\ndef launch(x, y): pass  # {{ tile }}\n"


class Rig:
    """An operator of two schedules; candidates whose text says BROKEN fail, the others take as many µs as `us` says."""

    def __init__(self, tmp_path: Path, us: Callable[[str], float] = lambda text: 10.0) -> None:
        self.folder, self.log, self.us = tmp_path / "toy", tmp_path / "log.jsonl", us
        self.failure = lambda job: MeasureOutcome(status=Status.LAUNCH_ERROR, message=f"broken at {len(self.jobs)}")
        self.folder.mkdir()
        (self.folder / "spec.py").write_text(SPEC)
        self.write("first", broken=True)
        self.write("second")

    def write(self, name: str, *, broken: bool = False, text: str = TEMPLATE) -> None:
        text = text.replace("NAME", name)
        (self.folder / f"{name}.py.jinja").write_text(text if broken else text.replace("BROKEN", "fine"))

    def answer(self, job: MeasureJob) -> MeasureOutcome:
        self.jobs.append(job)
        if "BROKEN" in job.source.text:
            return self.failure(job)
        us = self.us(job.source.text)
        if job.cut_above_us is not None and us > 3 * job.cut_above_us:
            return cut(us)
        return timed(us)

    def tune(self, trials: int | None = 6, workload: str = "N=64", history: Path | None = None, lookahead: int = 1, **options: Any) -> WorkloadResult:
        """Tune one workload, or several with spaces between them; the first one's result."""
        self.jobs: list[MeasureJob] = []
        self.notes: list[str] = []
        operator, notes = Operator(self.folder), self.notes

        class Listening(Observers):
            def note(self, text: str) -> None:
                notes.append(text)

        device = Device(
            name="fake", label="fake", operator="toy", builder=FakeBuilder(), runner=FakeRunner(self.answer, target=TARGET), target=TARGET,
            compile_target=TARGET, lookahead=lookahead, width=2, spec=operator.spec, folder=operator.folder,
            template_hashes=frozenset(template.hash for template in operator.templates.values()), make_workload=operator.spec.workload,
            make_space=lambda workload: operator.space(workload, TARGET), make_source=lambda workload, config: operator.render(workload, TARGET, config),
            history=LogHistory([history]) if history is not None else None,
        )  # fmt: skip
        settings: dict[str, Any] = {"search": "random", "seed": 0, "resume": False, "force": False, "default_only": False, **options}
        budget = Budget(trials=trials, early_stop=settings.pop("early_stop", None))
        workloads = {operator.spec.workload(one): 1.0 for one in workload.split()}
        session = Session(device=device, workloads=workloads, budget=budget, log=TuningLog(self.log), observer=Listening(), **settings)
        self.result: TuneResult = session.run()
        return self.result.results[0]

    @property
    def measured(self) -> dict[int, int]:
        """Of the last tuning, how many candidates by N."""
        return dict(Counter(job.workload["N"] for job in self.jobs))

    @property
    def records(self) -> list[Record]:
        return [line for line in TuningLog(self.log).read().lines if isinstance(line, Record)]


def cut(us: float) -> MeasureOutcome:
    return MeasureOutcome(status=Status.CUT, measurement=Measurement(protocol="fake/1", median_us=us, min_us=us, max_us=us), message="cut")
