"""The tuning session: the only loop, and the only writer of its log."""

from __future__ import annotations

import time
import uuid
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tilewright import __version__
from tilewright.device import Device, open_device
from tilewright.errors import UsageError
from tilewright.interrupt import Interrupts
from tilewright.log import TuningLog
from tilewright.observer import Budget, Observer, Observers
from tilewright.record import Record, SessionEnd, SessionStart, Status, TrialStart, VendorRecord
from tilewright.result import TuneResult, WorkloadResult
from tilewright.state import LogState
from tilewright.trials import Candidate, Search
from tilewright.workload import Workload

# Trials of a workload where no budget is given.
# On the recorded GEMM space tpe is within 3% of the optimum by then: benchmarks/search_efficiency.py, H200, November 2026.
DEFAULT_TRIALS: Final = 64

# Reasons that end a search in order, so that its answer may be given again without a new one.
FINISHED: Final = frozenset({"budget", "exhausted", "early_stop"})


# A candidate that was on the device when a session died is tried once more, then called a crash.
MAX_ATTEMPTS: Final = 2


def tune(
    operator: str,
    workloads: Sequence[str | Mapping[str, int | str] | Workload] = (),
    *,
    workload_set: str | None = None,
    trials: int | None = None,
    time_s: float | None = None,
    early_stop: int | None = None,
    search: str = "tpe",
    seed: int = 0,
    device: str = "auto",
    target: str | None = None,
    log: Path | None = None,
    resume: bool = False,
    force: bool = False,
    default_only: bool = False,
    jobs: int | None = None,
    templates: Sequence[Path] = (),
    observer: Observer | None = None,
) -> TuneResult:
    """Find the best schedule of an operator for each workload, and log every candidate tried.

    Args:
        operator: the operator's name.
        workloads: parameters such as `"M=4096,N=4096,K=4096,dtype=float16"`, or mappings, or workloads.
        workload_set: a named set of the operator's spec, besides or instead.
        trials: candidates a workload that reach the build; 64 where neither `trials` nor `time_s` is given.
        time_s: seconds for the whole session.
        early_stop: trials without a better time after which a workload ends.
        search: the searcher's name.
        seed: of the searcher and of the input data.
        device: `auto`, `cuda:N`, `interpreter` or `recorded:FILE`.
        target: named target to compile for, without a GPU.
        log: file to append to; by default `tuning_logs/<device>/<operator>.jsonl` below the working folder.
        resume: go on from the log: its records count as this session's, unfinished candidates are tried once more.
        force: search again although the log has an answer.
        default_only: measure only the author's default schedule of a workload that has no answer.
        jobs: builder children; by default all cores but one.
        templates: folders of operators, before those that come with Tilewright.
        observer: told of progress.

    Returns:
        One result for each workload. A workload that a finished session of the log covers is answered from it at once.

    Raises:
        UsageError: what was asked for is not there or makes no sense together.
        HostError: no such device, or the log cannot be written.
        LogError: the log cannot be read.
    """
    if resume and force:
        raise UsageError("--resume goes on from the log's records and --force starts over: give one of them")
    for name, number in (("trials", trials), ("time", time_s), ("early stop", early_stop), ("jobs", jobs)):
        if number is not None and number <= 0:
            raise UsageError(f"{name} must be more than 0, not {number}")
    began = time.monotonic()
    with open_device(device, operator, target=target, templates=templates, jobs=jobs) as opened:
        budget = Budget(trials=DEFAULT_TRIALS if trials is None and time_s is None else trials, time_s=time_s, early_stop=early_stop)
        session = Session(
            device=opened,
            workloads=_workloads(opened, workloads, workload_set),
            budget=budget,
            search=search,
            seed=seed,
            log=TuningLog(log or default_log(opened)),
            resume=resume,
            force=force,
            default_only=default_only,
            observer=observer or Observers(),
            # Opening the device counts: `time_s` is what the caller waits.
            began=began,
        )
        return session.run()


def default_log(device: Device) -> Path:
    """`tuning_logs/<target>/<operator>.jsonl` below the working folder."""
    return Path("tuning_logs") / device.label / f"{device.operator}.jsonl"


def _workloads(device: Device, given: Sequence[str | Mapping[str, int | str] | Workload], set_name: str | None) -> list[Workload]:
    found = []
    for item in given:
        parameters = item.parameters if isinstance(item, Workload) else item
        text = parameters if isinstance(parameters, str) else ",".join(f"{name}={value}" for name, value in parameters.items())
        found.append(device.make_workload(text))
    if set_name is not None:
        if device.spec is None:
            raise UsageError(f"workload set {set_name!r}: operator {device.operator} has no spec here; name its folder with --templates")
        found.extend(device.make_workload(",".join(f"{n}={v}" for n, v in w.parameters.items())) for w in device.spec.workload_set(set_name))
    if not found:
        raise UsageError(f"nothing to tune: give a workload with -w, or a named set with --workloads (operator {device.operator})")
    return list(dict.fromkeys(found))


@dataclass(kw_only=True)
class Session:
    """One run of `tune`: answers what the log knows, searches the rest, and writes every line of the log."""

    device: Device
    workloads: list[Workload]
    budget: Budget
    search: str
    seed: int
    log: TuningLog
    resume: bool
    force: bool
    default_only: bool
    observer: Observer
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.id = uuid.uuid4().hex[:16]
        self.trial = 0
        self.state = LogState.of(self.log.read().lines) if self.log.path.exists() else LogState.of(())

    @property
    def elapsed_s(self) -> float:
        """Seconds since the caller asked."""
        return time.monotonic() - self.began

    def run(self) -> TuneResult:
        """Answer every workload.

        Raises:
            HostError: the log cannot be written, or the device is gone. What was recorded until then stays.
        """
        answers: dict[Workload, WorkloadResult] = {}
        searches: list[Search] = []
        for workload in self.workloads:
            search = self._search(workload)
            if self._answers(search):
                answers[workload] = search.result("log", "log")
            else:
                searches.append(search)
        reason = self._run(searches) if searches else "log"
        for search in searches:
            answers[search.workload] = search.result("default" if self.default_only else "search", search.ended or reason)
        for workload in self.workloads:
            self.observer.answered(answers[workload])
        result = TuneResult(
            results=tuple(answers[workload] for workload in self.workloads),
            log=str(self.log.path),
            protocol=self.device.runner.protocol,
            device=self.device.name,
            reason=reason,
            wall_s=self.elapsed_s,
        )
        self.observer.end(result)
        return result

    def _search(self, workload: Workload) -> Search:
        records = [
            record
            for record in self.state.records(workload, self.device.target)
            if record.template in self.device.template_hashes and (record.measurement is None or record.measurement.protocol == self.device.runner.protocol)
        ]
        return Search(
            device=self.device,
            workload=workload,
            budget=Budget(trials=1) if self.default_only else self.budget,
            searcher=self.search,
            seed=self.seed,
            records=[] if self.force else records,
            vendors=self.state.vendors(workload, self.device.target),
        )

    def _answers(self, search: Search) -> bool:
        """Whether the log has the answer: a search of this workload that ended in order, with a correct schedule."""
        if self.force or search.progress.best is None:  # `best` stands for records: without one there is no answer
            return False
        if self.default_only:
            return True
        ended = search.workload.key in self.state.finished(self.device.target, FINISHED)
        wants_more = self.resume and self.budget.trials is not None and search.progress.done < self.budget.trials
        if not ended and not self.resume:
            self.observer.note(f"{search.workload.key}: the log has {search.progress.done} records of a search that did not end; --resume goes on from them")
        return ended and not wants_more

    def _run(self, searches: list[Search]) -> str:
        start = SessionStart(
            session=self.id,
            started_at=_now(),
            tilewright=__version__,
            operator=self.device.operator,
            workloads=[search.workload for search in searches],
            target=self.device.target,
            toolchain=self.device.toolchain,
            options={
                "search": self.search,
                "seed": self.seed,
                "device": self.device.name,
                "protocol": self.device.runner.protocol,
                "trials": self.budget.trials,
                "time_s": self.budget.time_s,
                "early_stop": self.budget.early_stop,
                "resume": self.resume,
                "default_only": self.default_only,
            },
        )
        self.log.append(start)
        self.observer.session(start, self.device.name, self.log.path)
        reason = "crash"
        try:
            with Interrupts() as interrupts:
                reason = self._loop(searches, interrupts)
        except KeyboardInterrupt:
            reason = "interrupted"
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._end(searches, reason)
        return reason

    def _end(self, searches: list[Search], reason: str) -> None:
        rejected: Counter[str] = Counter()
        for search in searches:
            rejected.update(search.rejected)
        self.log.append(
            SessionEnd(
                session=self.id,
                ended_at=_now(),
                reason=reason,
                # A default is an answer for now, not that of a search.
                finished=[] if self.default_only else [search.workload.key for search in searches if search.ended in FINISHED],
                trials=self.trial,
                rejected=dict(rejected),
                wall_s=round(self.elapsed_s, 3),
            )
        )

    def _loop(self, searches: list[Search], interrupts: Interrupts) -> str:
        """Ask, build, measure, tell; results are told in the order in which they were asked for."""
        queue: deque[tuple[Search, Candidate]] = deque()
        for search in searches:
            self._begin(search)
            if interrupts.requested:
                return "interrupted"
        while True:
            while len(queue) < self.device.lookahead and not self._time_is_up() and (asking := _next(searches)):
                if asked := asking.ask():
                    queue.append((asking, asked))
            if not queue:
                break
            search, candidate = queue.popleft()
            if self._time_is_up() and candidate.cancel():
                search.forget(candidate)
                continue
            self._record(search, self._try(search, candidate))
            if interrupts.requested:
                return "interrupted"
        if self.default_only:
            return "default"
        if self._time_is_up():
            for search in searches:
                search.ended = search.ended or "budget"
        reasons = {search.ended for search in searches}
        return reasons.pop() if len(reasons) == 1 else "budget"

    def _time_is_up(self) -> bool:
        return self.budget.time_s is not None and self.elapsed_s >= self.budget.time_s

    def _begin(self, search: Search) -> None:
        """Settle what an earlier session left open, and measure the vendors' kernels."""
        if self.resume:
            for config, attempts in self.state.unfinished(search.workload, self.device.target):
                if attempts < MAX_ATTEMPTS:
                    search.retry(config)
                else:
                    candidate = search.candidate(config, build=False)
                    message = f"the session died {attempts} times while this candidate was being measured"
                    self._record(search, search.record(candidate, Status.CRASH, message))
        # Under the interpreter a vendor's kernel runs natively: its time would be of another kind.
        if not search.progress.vendors and self.device.target.backend != "interpreter":
            for name, outcome in self.device.runner.vendors(search.job):
                vendor = VendorRecord(
                    session=self.id,
                    name=name,
                    workload=search.workload,
                    target=self.device.target,
                    status=outcome.status,
                    message=outcome.message,
                    toolchain=self.device.toolchain,
                    measurement=outcome.measurement,
                )
                self.log.append(vendor)
                search.progress.vendors += (vendor,)
        self.observer.progress(search.progress, None, self.elapsed_s)

    def _try(self, search: Search, candidate: Candidate) -> Record:
        """Build (it may be done already), then check and measure."""
        built = candidate.built()
        if built.status is not Status.OK:
            return search.record(candidate, built.status, built.message)
        if twin := search.twin(candidate):
            return twin
        # Not synced: it must outlive this process, not the machine.
        self.log.append(TrialStart(session=self.id, workload=search.workload, config=candidate.config), sync=False)
        outcome = self.device.runner.measure(search.measure_job(candidate))
        return search.record(candidate, outcome.status, outcome.message, outcome.measurement, outcome.check)

    def _record(self, search: Search, record: Record) -> None:
        numbered = search.numbered(record, session=self.id, trial=self.trial)
        self.log.append(numbered)
        self.trial += 1
        search.tell(numbered)
        self.observer.progress(search.progress, numbered, self.elapsed_s)


def _next(searches: Sequence[Search]) -> Search | None:
    """The search that may still ask and has asked least, so that workloads share a session evenly."""
    return min((search for search in searches if not search.ended), key=lambda search: search.progress.asked, default=None)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
