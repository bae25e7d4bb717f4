"""A tuning session: the only loop, and the only writer of its log."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import msgspec

from tilewright import __version__
from tilewright.allocation import choose
from tilewright.device import Device
from tilewright.interrupt import Interrupts
from tilewright.log import TuningLog
from tilewright.observer import Budget, Observer
from tilewright.pipeline import Candidate
from tilewright.recall import records_that_hold
from tilewright.record import Record, SessionEnd, SessionStart, Status, TrialStart, VendorRecord
from tilewright.result import TuneResult, WorkloadResult
from tilewright.state import LogState
from tilewright.transfer import distance
from tilewright.trials import Search
from tilewright.workload import Workload

# Reasons that end a search in order, so that its answer may be given again without a new one.
FINISHED: Final = frozenset({"budget", "exhausted", "early_stop"})

# guess: more of a short budget for races than this, and there is little to race.
MOST_RACING: Final = 0.25

# A candidate that was on the device when a session died is tried once more, then called a crash.
MAX_ATTEMPTS: Final = 2

# Seconds between looks at the clock and for signals while nothing is built. guess: a second Ctrl-C feels immediate.
POLL_S: Final = 0.2

# Workloads that hear of another's new best. guess: with more, 20 workloads would spend most trials on each other's news.
NEIGHBOURS: Final = 3


@dataclass(kw_only=True)
class Session:
    """One run of `tune`: answers what the log knows, searches the rest, and writes every line of the log.

    Attributes:
        device: builds and measures.
        workloads: what is asked for, each with its weight.
        budget: of the whole session.
        search, seed: the searcher's name, and what it draws from.
        log: read at first, then appended to.
        resume: go on with finished searches too, up to the budget.
        force: use nothing of the log.
        default_only: measure the default schedules alone.
        observer: told of progress.
        began: when the caller asked, by the monotonic clock.
    """

    device: Device
    workloads: Mapping[Workload, float]
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
        records = [] if self.force else records_that_hold(self.state, self.device, workload, self.observer.note)
        return Search(
            device=self.device,
            workload=workload,
            weight=self.workloads[workload],
            budget=self.budget,
            default_only=self.default_only,
            searcher=self.search,
            seed=self.seed,
            records=records,
            vendors=self.state.vendors(workload, self.device.target),
            races=() if self.force else self.state.races(workload, self.device.target),
        )

    def _answers(self, search: Search) -> bool:
        """Whether the log has the answer: a search of this workload that ended in order, with a correct schedule."""
        if self.force or search.progress.best is None:  # `best` stands for records: without one there is no answer
            return False
        if self.default_only:
            return True
        if search.workload.key not in self.state.finished(self.device.target, FINISHED):
            done = search.progress.done
            self.observer.note(f"{search.workload.key}: going on from {done} records of a search that did not end (--force starts over)")
            return False
        share = self.budget.trials and self.budget.trials / len(self.workloads)
        more = share is not None and search.progress.done < share
        if more and not self.resume:
            self.observer.note(f"{search.workload.key}: answered from {search.progress.done} records of a finished search; --resume goes on up to --trials")
        return not (self.resume and more)

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
                self._race(searches)
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
                finished=[] if self.default_only else [search.workload.key for search in searches if search.ended in FINISHED and search.progress.done],
                trials=self.trial,
                rejected=dict(rejected),
                wall_s=round(self.elapsed_s, 3),
            )
        )

    def _loop(self, searches: list[Search], interrupts: Interrupts) -> str:
        """Keep the builder fed, and measure what is built, until the budget is spent or nobody has a candidate left."""
        for search in searches:
            self._begin(search)
            if interrupts.requested:
                return "interrupted"
        while not interrupts.requested and not self._time_is_up():
            self._feed(searches)
            more = not self._is_spent(searches)
            chosen = choose([(search, search.standing) for search in searches if search.pipeline.ready(more=more)], built=True)
            if chosen is not None:
                if candidate := chosen.take():
                    self._record(chosen, self._try(chosen, candidate))
                    self._pass_on(chosen, searches)
            elif pending := [build for search in searches for build in search.pipeline.pending(more=more)]:
                wait(pending, timeout=POLL_S, return_when=FIRST_COMPLETED)
            elif self._is_spent(searches) or all(search.ended for search in searches):
                break
        self._leave(searches)
        if interrupts.requested:
            return "interrupted"
        for search in searches:
            search.ended = search.ended or "budget"
        if self.default_only:
            return "default"
        reasons = {search.ended for search in searches}
        return reasons.pop() if len(reasons) == 1 else "budget"

    def _feed(self, searches: Sequence[Search]) -> None:
        """Hand candidates to the builder, as many as the device looks ahead, of the searches that promise most."""
        hungry = [search for search in searches if not search.ended]
        in_flight = sum(search.pipeline.in_flight for search in searches)
        while hungry and in_flight < self.device.lookahead and not self._is_spent(searches):
            chosen = choose([(search, search.standing) for search in hungry]) or hungry[0]
            if chosen.feed():
                in_flight = sum(search.pipeline.in_flight for search in searches)
            else:
                hungry.remove(chosen)

    def _leave(self, searches: Sequence[Search]) -> None:
        """Write down what was built, or was about to be, and is not measured any more: a trial ends in one record."""
        rest: list[Record] = []
        for search in searches:
            for candidate in search.leave():
                built = candidate.is_built and candidate.built()
                failed = built and built.status is not Status.OK
                message = built.message if built and failed else f"the search ended before it was {'measured' if built else 'built'}"
                record = search.record(candidate, built.status if built and failed else Status.CUT, message)
                rest.append(search.numbered(record, session=self.id, trial=self.trial))
                self.trial += 1
        self.log.extend(rest)

    def _is_spent(self, searches: Sequence[Search]) -> bool:
        """Whether nothing more may be asked: the time is up, or the trials are, those of a resumed session included."""
        trials = self.budget.trials
        return self._time_is_up() or (trials is not None and sum(search.progress.asked for search in searches) >= trials)

    def _pass_on(self, search: Search, searches: Sequence[Search]) -> None:
        """Let the most alike workloads try a new best."""
        news = search.news()
        if news is not None and not self.default_only:
            others = [other for other in searches if other is not search and not other.ended]
            for other in sorted(others, key=lambda other: distance(search.workload, other.workload))[:NEIGHBOURS]:
                other.pipeline.hint(news)

    def _time_is_up(self) -> bool:
        return self.budget.time_s is not None and self.elapsed_s >= self.budget.time_s - self._reserve_s

    @property
    def _reserve_s(self) -> float:
        """What is left of the time for the races at the end."""
        if self.budget.time_s is None or self.default_only:
            return 0.0
        return min(len(self.workloads) * self.device.runner.race_s, MOST_RACING * self.budget.time_s)

    def _race(self, searches: Sequence[Search]) -> None:
        """Let each workload's finalists race, beside its default and its vendors; also once Ctrl-C was pressed."""
        if self.default_only or not self.device.runner.race_s:
            return
        for place, search in enumerate(searches):
            if self.budget.time_s is not None and self.elapsed_s >= self.budget.time_s:
                self.observer.note(f"no time left to race the finalists of {len(searches) - place} workload(s): their single times decide")
                return
            chosen = search.finalists()
            if not chosen:
                continue
            began = time.monotonic()
            outcome = search.race(chosen)
            if outcome is not None:
                race = search.raced(chosen, outcome, time.monotonic() - began)
                self.log.append(msgspec.structs.replace(race, session=self.id))
                self.observer.progress(search.progress, None, self.elapsed_s)

    def _begin(self, search: Search) -> None:
        """Settle what an earlier session left open, and measure the vendors' kernels."""
        if not self.force:
            for config, attempts in self.state.unfinished(search.workload, self.device.target):
                if attempts < MAX_ATTEMPTS:
                    search.pipeline.retry(config)
                else:
                    candidate = search.pipeline.candidate(config, build=False)
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
        outcome = search.measure(candidate)
        return search.record(candidate, outcome.status, outcome.message, outcome.measurement, outcome.check)

    def _record(self, search: Search, record: Record) -> None:
        numbered = search.numbered(record, session=self.id, trial=self.trial)
        self.log.append(numbered)
        self.trial += 1
        search.tell(numbered)
        self.observer.progress(search.progress, numbered, self.elapsed_s)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
