"""A tuning session: the only loop, and the only writer of its log."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil
from typing import Final

from tilewright import __version__
from tilewright.crossing import crossings
from tilewright.device import Device
from tilewright.hopes import HOPELESS, Hopes
from tilewright.interchange.suggested_space import suggested_configs
from tilewright.interrupt import Interrupts
from tilewright.journal import Journal
from tilewright.log import TuningLog
from tilewright.loop import Loop
from tilewright.observer import Budget, Observer
from tilewright.prediction import try_predict
from tilewright.protocols import settings_of
from tilewright.recall import races_that_hold, records_that_hold, refuse_other_recordings
from tilewright.record import Config, SessionEnd, SessionStart, Status, config_key
from tilewright.reopening import NEW_TRIALS, TEMPLATES_OPTION, Reopened, reopened, templates_id
from tilewright.result import TuneResult, Utilisation, WorkloadResult
from tilewright.state import LogState
from tilewright.trials import Search
from tilewright.workload import Workload

# Reasons that end a search in order, so that its answer may be given again without a new one.
FINISHED: Final = frozenset({"budget", "exhausted", "early_stop"})

# guess: more of a short budget for races than this, and there is little to race.
MOST_RACING: Final = 0.25

# Of the budget of a session of many workloads, at most, for measuring their best schedules on one another, and how many are many.
# guess: 20 workloads with some 15 different winners make 300 measurements of 8 ms, which are 2.4 of 60 s; 72 with 30 make 2,200, 17 of 180 s.
MOST_CROSSING: Final = 0.1
MANY: Final = 20

# guess: seconds that children take to end, a CUDA context's teardown among them.
CLOSING_S: Final = 1.0

# A candidate that was on the device when a session died is tried once more, then called a crash.
MAX_ATTEMPTS: Final = 2


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

    def __post_init__(self) -> None:
        self.id = uuid.uuid4().hex[:16]
        self.journal = Journal(self.log, self.id, self.device, self.observer)
        self.device_busy_s = 0.0
        self.builders: float | None = None
        self._crossing = False
        self._room = 0  # trials that templates' changes give back, and for untried suggestions, beyond the budget of a log that has as many
        self._untried: dict[Workload, list[Config]] = {}  # configs of a file of suggestions without a record that holds
        self._named: set[Workload] = set()  # whose searches were finished, and try such configs alone
        self._searching: Sequence[Search] = ()
        contents = self.log.read() if self.log.exists() else None
        if contents is not None and contents.damage:
            self.observer.note(f"{self.log.path}: skipped {len(contents.damage)} damaged line(s); `tilewright log lint {self.log.path}` says which")
        self.state = LogState.of(contents.lines if contents is not None else ())
        refuse_other_recordings(self.state, self.device, self.workloads, self.log.path)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the caller asked."""
        return self.device.timeline.elapsed_s

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
        if searches:  # of one, as each costs as much as a few trials; what fails for another is told when it is asked
            try_predict(self.device.spec, searches[0].workload, self.device.compile_target, searches[0].space)
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
            utilisation=self._utilisation() if searches else None,
        )
        self.observer.end(result)
        return result

    def _utilisation(self) -> Utilisation | None:
        """How busy builders and device were, from the first candidate on the device to the end of the search."""
        at = {mark.name: mark.at_s for mark in self.device.timeline.marks}
        if not self.device.overlaps or "first trial begins" not in at or "search over" not in at:
            return None
        return Utilisation(
            builders=self.builders,
            device=self.device_busy_s / max(0.001, at.get("finalists measured on all workloads", at["search over"]) - at["first trial begins"]),
            start_s=at["first trial begins"],
        )

    def _search(self, workload: Workload) -> Search:
        records = [] if self.force else records_that_hold(self.state, self.device, workload, self.observer.note)
        search = Search(
            device=self.device,
            workload=workload,
            weight=self.workloads[workload],
            budget=self.budget,
            default_only=self.default_only,
            searcher=self.search,
            seed=self.seed,
            records=records,
            # Vendors of an earlier session beside candidates of this one would mix two states of the device in one gain.
            vendors=() if self.force else self.state.vendors(workload, self.device.target),
            races=() if self.force else races_that_hold(self.state.races(workload, self.device.target), records),
        )
        tried = {config_key(record.config) for record in records}
        self._untried[workload] = [config for config in suggested_configs(search.space) if config_key(config) not in tried]
        return search

    def _answers(self, search: Search) -> bool:
        """Whether the log has the answer: a search of this workload that ended in order, by today's templates, with a correct schedule."""
        if self.force:
            return False
        progress = search.progress
        if progress.best is not None and self.default_only and not search.lacks_default:
            return True
        share = self.budget.trials and self.budget.trials / len(self.workloads)
        changed = reopened(self.state, self.device, search.workload, FINISHED)
        finished = bool(self.state.finishing(search.workload, self.device.target, FINISHED))
        why = changed.why if changed is not None else ""
        if progress.best is not None and not why:  # `best` stands for records: without one there is no answer
            if not finished:
                why = "its search did not end"
            elif search.lacks_default:
                why = "its default schedule has no time, against which gains are reckoned"
        if why:
            self.observer.note(f"{search.workload.key}: {why}; going on from {progress.done} record(s) (--force starts over)")
        if why or progress.best is None:
            if share is not None and progress.done:
                self._give_back(search, share, changed, finished=finished)
            return False
        more = share is not None and progress.done < share
        if self.resume and more:
            return False
        if not self.default_only and self._tries_suggested(search, share or 0.0):
            return False
        if more:
            self.observer.note(f"{search.workload.key}: answered from {progress.done} records of a finished search; --resume goes on up to --trials")
        return True

    def _tries_suggested(self, search: Search, share: float) -> bool:
        """Have a finished search try what a file suggests and the log does not have, and no more; False where there is no such config."""
        untried, given = self._untried[search.workload], len(suggested_configs(search.space))
        if untried:
            for config in untried:
                search.pipeline.retry(config)
            search.most = search.progress.asked + len(untried)
            self._named.add(search.workload)
            self._room += max(0, ceil(search.most - share))
            search.progress.budget = replace(search.progress.budget, early_stop=None)  # they were asked for by name
            what = f"the {len(untried)} of {given} suggested config(s) that the log does not have"
            self.observer.note(f"{search.workload.key}: its search was finished; trying {what}")
        elif given:
            self.observer.note(f"{search.workload.key}: the log has all {given} suggested config(s); --force measures them again")
        return bool(untried)

    def _give_back(self, search: Search, share: float, changed: Reopened | None, *, finished: bool) -> None:
        """Trials for what no longer counts, also where the rest is as many as are asked for; and the default is measured in any case.

        A search that was finished gets no more than these: the trials of workloads that are answered are not its own.
        """
        back = min(share, changed.records or NEW_TRIALS) if changed is not None else float(search.lacks_default)
        if not back:
            return
        most = ceil(search.progress.done + back)
        self._room += max(0, ceil(most - share))
        if finished and search.progress.best is not None:
            search.most = max(most, ceil(share)) if self.resume else most

    def _run(self, searches: list[Search]) -> str:
        reason = "crash"
        try:
            with Interrupts() as interrupts, self._loop(searches, interrupts) as loop:
                self._begin(searches, loop)
                try:
                    reason = self._search_all(searches, loop, interrupts)
                except KeyboardInterrupt:
                    reason = "interrupted"
                except Exception as error:
                    reason = f"{type(error).__name__}: {error}"
                    raise
                finally:
                    self._end(searches, reason)
                    self.device_busy_s = loop.busy_s
        except KeyboardInterrupt:
            reason = "interrupted"  # before there was a line of it
        return reason

    def _loop(self, searches: list[Search], interrupts: Interrupts) -> Loop:
        if self.device.overlaps:
            for search in searches:
                # Builders must not wait for measurements; together, the workloads keep them as busy as one alone.
                search.pipeline.ahead = max(self.device.width, self.device.lookahead // len(searches))
        return Loop(
            device=self.device,
            searches=searches,
            journal=self.journal,
            interrupts=interrupts,
            time_is_up=self._time_is_up,
            is_spent=lambda: self._is_spent(searches),
            hopes=Hopes(self._has_run),
        )

    def _has_run(self) -> bool:
        """Whether the log or the history has a candidate of this operator that ran."""
        operator, history = self.device.operator, self.device.history
        return self.state.has_run(operator) or (history is not None and history.has_run(operator))

    def _begin(self, searches: list[Search], loop: Loop) -> None:
        """Have the first candidates built while the device opens; then write that the session began, and what an earlier one left open."""
        self._searching = searches
        self.device.start(searches[0].job if searches and searches[0].wants_vendors else None)
        unfinished = [] if self.force else [(search, *left) for search in searches for left in self.state.unfinished(search.workload, self.device.target)]
        for search, config, attempts in unfinished:
            if attempts < MAX_ATTEMPTS:
                search.pipeline.retry(config)
        loop.open()
        start = SessionStart(
            session=self.id,
            started_at=_now(),
            tilewright=__version__,
            operator=self.device.operator,
            workloads=[search.workload for search in searches],
            target=self.device.target,
            toolchain=self.device.toolchain,
            settings=settings_of(self.device.runner.protocol),
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
                **self.device.timeouts.options,
                **({TEMPLATES_OPTION: templates} if (templates := templates_id(self.device)) else {}),
                **({"recording": self.device.recording} if self.device.recording else {}),
            },
        )
        self.journal.line(start)
        self.observer.session(start, self.device.name, self.log.path)
        for search, config, attempts in unfinished:
            if attempts >= MAX_ATTEMPTS:
                candidate = search.pipeline.candidate(config, build=False)
                self.journal.record(
                    search, search.record(candidate, Status.CRASH, f"the session died {attempts} times while this candidate was being measured")
                )
                if search.workload in self._named and config not in self._untried[search.workload]:
                    search.most += 1  # its record is no trial of what was suggested
                    self._room += 1
        for search in searches:
            search.progress.sharing = len(searches)
        for search in searches:
            self.observer.progress(search.progress, None, self.elapsed_s)

    def _search_all(self, searches: list[Search], loop: Loop, interrupts: Interrupts) -> str:
        loop.run()
        self.device.timeline.mark("search over")
        if not interrupts.requested:
            self._cross(searches, loop)
        loop.leave()
        self.builders = self.device.done_building()
        if not interrupts.requested:
            for search in searches:
                search.ended = search.ended or "budget"
        self._race(searches)
        self.device.timeline.mark("races over")
        if interrupts.requested:
            return "interrupted"
        if self.default_only:
            return "default"
        reasons = {search.ended for search in searches}
        return reasons.pop() if len(reasons) == 1 else "budget"

    def _cross(self, searches: list[Search], loop: Loop) -> None:
        """Measure the best schedules of each workload on all others, as long as there is budget."""
        if self.default_only:
            return
        self._crossing = True
        for batch in crossings([search for search in searches if search.workload not in self._named]):
            if self._is_spent(searches):
                break
            for search, record in batch:
                if search.ended != HOPELESS and not self._is_spent(searches):
                    search.pipeline.give(record.config)
                    search.sync()
            loop.run(feeding=False)
        self.device.timeline.mark("finalists measured on all workloads")

    def _end(self, searches: list[Search], reason: str) -> None:
        rejected: Counter[str] = Counter()
        for search in searches:
            rejected.update(search.rejected)
        self.journal.line(
            SessionEnd(
                session=self.id,
                ended_at=_now(),
                reason=reason,
                # A default is an answer for now, not that of a search.
                finished=[] if self.default_only else [search.workload.key for search in searches if search.ended in FINISHED and search.progress.done],
                trials=self.journal.trial,
                rejected=dict(rejected),
                wall_s=round(self.elapsed_s, 3),
            )
        )

    def _is_spent(self, searches: Sequence[Search]) -> bool:
        """Whether nothing more may be asked: the time is up, or the trials are, those of a resumed session included."""
        trials = self.budget.trials
        if trials is not None:
            trials += self._room - (0 if self._crossing else int(trials * self._crossing_share))
        return self._time_is_up() or (trials is not None and sum(search.progress.asked for search in searches) >= trials)

    def _time_is_up(self) -> bool:
        if self.budget.time_s is None:
            return False
        kept_s = self._reserve_s + (0.0 if self._crossing else self._crossing_share * self.budget.time_s)
        return self.elapsed_s >= self.budget.time_s - kept_s

    @property
    def _crossing_share(self) -> float:
        """The share of the budget that is kept for measuring the best schedules of each workload on all others."""
        count = sum(search.workload not in self._named for search in self._searching)
        return 0.0 if self.default_only or count < 2 else MOST_CROSSING * min(1.0, (count - 1) / MANY)

    @property
    def _reserve_s(self) -> float:
        """What is left of the time for the races at the end, and for ending the children."""
        if self.budget.time_s is None or self.default_only:
            return 0.0
        races_s = min(len(self.workloads) * self.device.runner.race_s, MOST_RACING * self.budget.time_s)
        return races_s + self._closing_s

    @property
    def _closing_s(self) -> float:
        """What ending the children takes of the time."""
        return min(CLOSING_S, 0.1 * (self.budget.time_s or 0.0)) if self.device.overlaps else 0.0

    def _race(self, searches: Sequence[Search]) -> None:
        """Let each workload's finalists race, beside its default and its vendors; also once Ctrl-C was pressed."""
        if self.default_only or not self.device.runner.race_s:
            return
        for place, search in enumerate(searches):
            if self.budget.time_s is not None and self.elapsed_s >= self.budget.time_s - self._closing_s:
                self.observer.note(f"no time left to race the finalists of {len(searches) - place} workload(s): their single times decide")
                return
            chosen = search.finalists()
            if not chosen:
                continue
            began = time.monotonic()
            outcome = search.race(chosen)
            if outcome is not None:
                self.journal.race(search, search.raced(chosen, outcome, time.monotonic() - began))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
