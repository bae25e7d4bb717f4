"""The loop of a session: candidates are proposed, rendered and built while the device measures the one before."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Self

from tilewright.allocation import choose
from tilewright.device import Device
from tilewright.hopes import HOPELESS, Hopes
from tilewright.interrupt import Interrupts
from tilewright.job import MeasureJob, MeasureOutcome
from tilewright.journal import Journal
from tilewright.pipeline import Candidate
from tilewright.record import Record, Status
from tilewright.transfer import distance
from tilewright.trials import Search

# Seconds between looks at the clock and for signals while nothing else happens. guess: a second Ctrl-C feels immediate.
POLL_S: Final = 0.2

# Workloads that hear of another's new best. guess: with more, 20 workloads would spend most trials on each other's news.
NEIGHBOURS: Final = 3

# Measurements in a row of one workload, where it has so many ready and there are more workloads than few: a change of workload may cost
# the runner fresh operands. guess: making them takes as long as one or two measurements of 8.
ROW: Final = 8
FEW: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A candidate whose turn on the device it is.

    Attributes:
        job: what the runner is asked.
        vendors: whether the workload's vendors are measured first.
    """

    search: Search
    candidate: Candidate
    job: MeasureJob
    vendors: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What came of a turn: the vendors' times, and the candidate's."""

    vendors: Sequence[tuple[str, MeasureOutcome]]
    outcome: MeasureOutcome


class Loop:
    """Keeps builder and device busy for the searches of a session.

    Where measuring takes time, the device has a thread of its own: while it measures one candidate, the next one is chosen, and more are
    handed to the builder. Where it takes none (a recording), all happens in turn, so that a seed reproduces.

    Args:
        device: builds and measures.
        searches: one for each workload.
        journal: writes what comes of it.
        interrupts: tells of signals.
        time_is_up: whether no further candidate may begin.
        is_spent: whether no further candidate may be asked for.
        hopes: ends searches that are not worth their budget.

    Attributes:
        busy_s: seconds that the device was measuring.
    """

    def __init__(
        self,
        *,
        device: Device,
        searches: Sequence[Search],
        journal: Journal,
        interrupts: Interrupts,
        time_is_up: Callable[[], bool],
        is_spent: Callable[[], bool],
        hopes: Hopes,
    ) -> None:
        self._device = device
        self._searches = searches
        self._journal = journal
        self._interrupts = interrupts
        self._time_is_up, self._is_spent, self._hopes = time_is_up, is_spent, hopes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tilewright-device") if device.overlaps else None
        self._current: Search | None = None
        self._row, self._most_in_row = 0, ROW if len(searches) > FEW else 1
        self._sated: set[int] = set()
        self._next: deque[Turn] = deque()
        self._none_ready = True
        # One ahead of the device hides what choosing costs. The second, whose module the runner loads meanwhile, would be chosen two
        # results late, which a search of one workload feels.
        self._depth = 1 if len(searches) == 1 else 2
        self.busy_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._thread is not None:
            # In the middle of a measurement only where something was raised; then closing the device ends it.
            self._thread.shutdown(wait=False)

    # --- Before there is a device ---

    def open(self) -> None:
        """Have candidates built until there is a device to measure them on.

        Raises:
            HostError: there will be none.
        """
        if self._thread is None:
            return
        while not (self._interrupts.requested or self._device.is_settled):
            if not self.feed():
                time.sleep(0.01)  # nobody tells when it is, and it takes seconds
        if self._device.is_settled:
            self._device.settle()

    # --- The loop ---

    def run(self, *, feeding: bool = True) -> None:
        """Build and measure until the budget is spent, or nobody has a candidate left.

        Args:
            feeding: whether searches may be asked for more; else only what waits in their queues is measured.
        """
        if self._thread is None:
            self._run_in_turn(feeding)
            return
        running: tuple[Turn, Future[Taken]] | None = None
        while True:
            stop = self._stops()
            if stop and running is None:
                return
            written = self._journal.trial
            if not stop and len(self._next) < self._depth and (turn := self._choose(feeding=feeding)) is not None:
                self._next.append(turn)
            if running is None:
                if self._next:
                    running = self._start(self._thread)
                elif self._journal.trial == written and not ((feeding and self.feed()) or self._wait(None, feeding=feeding)):
                    return
            elif running[1].done():
                ended, running = running, None
                if self._next and not stop:
                    running = self._start(self._thread)  # the device first
                turn, taken = ended
                self._finish(turn, taken.result())
            elif stop or not (feeding and self.feed()):
                self._wait(running[1], feeding=feeding)

    def _run_in_turn(self, feeding: bool) -> None:
        while not self._stops():
            while feeding and self.feed():
                pass
            written = self._journal.trial
            turn = self._choose(feeding=feeding)
            if turn is not None:
                self._journal.starting(turn.search, turn.candidate)
                self._finish(turn, self._take(turn))
            elif self._journal.trial == written and not self._wait(None, feeding=feeding):
                return

    def _stops(self) -> bool:
        return self._interrupts.requested or self._time_is_up()

    def feed(self) -> bool:
        """Hand one candidate to the builder, of the search that promises most; False where there is none, or enough are being built."""
        hungry = [search for search in self._searches if not search.ended and id(search) not in self._sated]
        while (
            hungry and sum(search.pipeline.in_flight for search in self._hopeful()) < self._device.lookahead and not self._is_spent() and not self._time_is_up()
        ):
            chosen = choose([(search, search.standing) for search in hungry]) or hungry[0]
            if chosen.feed():
                self._device.timeline.mark("first build asked for")
                return True
            self._sated.add(id(chosen))  # until something comes of what it has
            hungry.remove(chosen)
        return False

    def _hopeful(self) -> list[Search]:
        return [search for search in self._searches if search.ended != HOPELESS]

    def _choose(self, *, feeding: bool) -> Turn | None:
        """Whose turn it is, among candidates that are built; those that need no device are recorded on the way."""
        more = feeding and not self._is_spent()
        ready = self._ready(more)
        self._none_ready = not ready
        if not ready:
            return None
        self._device.timeline.mark("first build done")
        if self._current is not None and self._row < self._most_in_row and any(search is self._current for search in ready):
            chosen: Search | None = self._current
        else:
            chosen = choose([(search, search.standing) for search in ready], built=True)
        if chosen is None:
            return None
        candidate = chosen.take()
        if candidate is None:
            self._sated.discard(id(chosen))
            return None
        built = candidate.built()
        known = chosen.record(candidate, built.status, built.message) if built.status is not Status.OK else chosen.twin(candidate)
        if known is not None:
            self._record(chosen, known)
            return None
        self._row = self._row + 1 if chosen is self._current else 1
        self._current = chosen
        chosen.standing.running += 1
        return Turn(search=chosen, candidate=candidate, job=chosen.measure_job(candidate), vendors=chosen.claim_vendors())

    def _ready(self, more: bool) -> list[Search]:
        return [search for search in self._hopeful() if search.pipeline.ready(more=more)]

    def _start(self, thread: ThreadPoolExecutor) -> tuple[Turn, Future[Taken]]:
        turn = self._next.popleft()
        following = self._next[0] if self._next else None
        ahead = following.candidate.source if following else turn.search.pipeline.upcoming
        workload = following.search.workload if following else None
        self._journal.starting(turn.search, turn.candidate)
        self._device.timeline.mark("first trial begins")
        return turn, thread.submit(self._take, replace(turn, job=replace(turn.job, ahead=ahead, ahead_workload=workload)))

    def _take(self, turn: Turn) -> Taken:
        """Use the device."""
        began = time.monotonic()
        vendors = self._device.runner.vendors(turn.search.job) if turn.vendors else ()
        outcome = self._device.runner.measure(turn.job)
        self.busy_s += time.monotonic() - began
        return Taken(vendors=vendors, outcome=outcome)

    def _finish(self, turn: Turn, found: Taken) -> None:
        self._device.timeline.mark("first trial done")
        search, outcome = turn.search, found.outcome
        search.standing.running -= 1
        if turn.vendors:
            self._journal.vendors(search, found.vendors)
        search.measured(turn.candidate, outcome)
        self._record(search, search.record(turn.candidate, outcome.status, outcome.message, outcome.measurement, outcome.check))

    def _record(self, search: Search, record: Record) -> None:
        self._pass_on(search, written := self._journal.record(search, record))
        self._hopes.heard(search, written)
        self._sated.clear()

    def _pass_on(self, search: Search, record: Record) -> None:
        """Let the other workloads learn of a record, and the most alike of them try a new best."""
        others = [other for other in self._searches if other is not search and not other.ended]
        for other in others:
            other.heard(search.workload, record)
        news = search.news()
        if news is not None and not search.default_only:
            for other in sorted(others, key=lambda other: distance(search.workload, other.workload))[:NEIGHBOURS]:
                other.pipeline.hint(news)

    def _wait(self, running: Future[Taken] | None, *, feeding: bool) -> bool:
        """Wait until a build or the device is done; False where nothing is under way."""
        more = feeding and not self._is_spent()
        pending: list[Future[object]] = [build for search in self._hopeful() for build in search.pipeline.pending(more=more)]  # type: ignore[misc]
        if running is not None:
            wait([running, *pending] if len(self._next) < self._depth else [running], timeout=POLL_S, return_when=FIRST_COMPLETED)  # type: ignore[list-item]
        elif pending:
            wait(pending, timeout=POLL_S, return_when=FIRST_COMPLETED)
        elif self._sated and more and not all(search.ended for search in self._searches):
            self._sated.clear()  # a search that wanted nothing a moment ago, while another's candidates were under way
            return self.feed() or bool(self._ready(more))
        else:
            # A build may have ended since there was nothing to choose from.
            return self._none_ready and bool(self._ready(more))
        self._sated.clear()
        return True

    # --- After it ---

    def leave(self) -> None:
        """Write down what was built, or was about to be, and is not measured any more: a trial ends in one record."""
        rest: list[tuple[Search, Record]] = []
        for turn in self._next:
            turn.search.standing.running -= 1
            rest.append((turn.search, self._unmeasured(turn.search, turn.candidate)))
        self._next.clear()
        rest += [(search, self._unmeasured(search, candidate)) for search in self._searches for candidate in search.leave()]
        self._journal.leave(rest)

    @staticmethod
    def _unmeasured(search: Search, candidate: Candidate) -> Record:
        built = candidate.is_built and candidate.built()
        failed = built and built.status is not Status.OK
        message = built.message if built and failed else f"the search ended before it was {'measured' if built else 'built'}"
        return search.record(candidate, built.status if built and failed else Status.CUT, message)
