"""One workload's search: its space, its searcher, and the candidates on their way from asked to told."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import msgspec

from tilewright.allocation import LEAST_TRIALS, Standing
from tilewright.best import rank
from tilewright.builder import BuildOutcome, BuildRequest
from tilewright.device import Device
from tilewright.observer import Budget, Progress
from tilewright.record import Check, Config, Measurement, Record, Status, Value, VendorRecord, config_key
from tilewright.result import Tier, WorkloadResult, edges, learned_us, time_us
from tilewright.roofline import roofline
from tilewright.runner import Job, MeasureJob
from tilewright.search import Proposer, make_proposer
from tilewright.template import Source
from tilewright.transfer import translate
from tilewright.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A config that was asked for, rendered and handed to the builder."""

    config: dict[str, Value]
    source: Source
    build: Future[BuildOutcome] | None

    def built(self) -> BuildOutcome:
        """Wait for the build."""
        if self.build is None:
            raise ValueError(f"candidate {config_key(self.config)} was not handed to the builder")
        return self.build.result()

    def cancel(self) -> bool:
        """Take it back from the builder; False where the build has begun."""
        return self.build is not None and self.build.cancel()


class Search:
    """The search of one workload on one device."""

    def __init__(
        self,
        *,
        device: Device,
        workload: Workload,
        weight: float,
        budget: Budget,
        default_only: bool,
        searcher: str,
        seed: int,
        records: Sequence[Record],
        vendors: Sequence[VendorRecord],
    ) -> None:
        """Start from what is known.

        Args:
            device: builds and measures.
            workload: what is searched for.
            weight: what a microsecond of it is worth next to one of the other workloads.
            budget: early stop; the session watches time and trials.
            default_only: ask for the default schedule, and no more.
            searcher: name of the searcher.
            seed: of the searcher and the input data.
            records: of this workload on this device, still valid, in the order of the log. They count as trials.
            vendors: their kernels' records, where the log has them.
        """
        self.device = device
        self.workload = workload
        self.space = device.make_space(workload)
        self.ended = ""
        self._seed = seed
        self.standing = Standing(weight=weight)
        self._default_only = default_only
        self._retries: deque[dict[str, Value]] = deque()
        self._hints: deque[dict[str, Value]] = deque()
        self._known: set[str] = set()
        self._news: Config | None = None
        self._by_source: dict[str, Record] = {}
        self._since_best = 0
        self.progress = Progress(
            workload=workload,
            budget=budget,
            roofline=roofline(device.spec, workload, device.target) if device.spec is not None else None,
            vendors=tuple(vendors),
        )
        self._default_config = self.space.default()
        self._default = config_key(self._default_config)
        self._searcher = searcher
        self._history = [(record.config, learned_us(record)) for record in records]
        for record in records:
            self._count(record)
        self._news = None
        self.progress.asked = self.standing.asked = self.progress.done

    @functools.cached_property
    def _proposer(self) -> Proposer:
        # Made at the first ask: a workload that the log answers pays for no searcher.
        return make_proposer(self._searcher, self.space, seed=self._seed, history=self._history)

    @property
    def rejected(self) -> Mapping[str, int]:
        """Points refused by each `require`, by its reason."""
        return self._proposer.rejected if "_proposer" in vars(self) else {}

    def retry(self, config: Config) -> None:
        """Try a config before the searcher's own; the searcher hears of it when it is told."""
        self._retries.append(dict(config))

    def hint(self, config: Config) -> None:
        """Try another workload's config soon, where this one's space has it."""
        known = translate(config, self.space)
        if known is not None and config_key(known) not in self._known:
            self._hints.append(known)

    def news(self) -> Config | None:
        """The best config, once each time that it is new."""
        news, self._news = self._news, None
        return news

    def ask(self) -> Candidate | None:
        """The next candidate, on its way to the builder; None, and `ended` set, where there is none."""
        early_stop = self.progress.budget.early_stop
        if early_stop is not None and self._since_best >= early_stop:
            self.ended = "early_stop"
            return None
        config = self._next_config()
        if config is None:
            self.ended = "exhausted"
            return None
        self._known.add(config_key(config))
        self.progress.asked += 1
        self.standing.asked += 1
        return self.candidate(config)

    def _next_config(self) -> dict[str, Value] | None:
        if self._retries:
            return self._retries.popleft()
        if self._default_only:
            return None if self._default in self._known else self._default_config
        # Not before the author's own suggestions, of which the default is measured first of all.
        while self._hints and self.progress.asked >= LEAST_TRIALS:
            hint = self._hints.popleft()
            if config_key(hint) not in self._known:
                return hint
        while (config := self._proposer.ask()) is not None and config_key(config) in self._known:
            pass  # a hint was quicker, and its result is not told yet
        return config

    def candidate(self, config: dict[str, Value], *, build: bool = True) -> Candidate:
        """Render a config, and hand it to the builder."""
        source = self.device.make_source(self.workload, config)
        return Candidate(config=config, source=source, build=self.device.builder.submit(self._request(source)) if build else None)

    def forget(self, candidate: Candidate) -> None:
        """Drop a candidate that was never built."""
        self.progress.asked -= 1
        self.standing.asked -= 1

    @property
    def job(self) -> Job:
        """What the runner needs to measure the vendors' kernels."""
        return Job(operator=self.device.operator, folder=self.device.folder, workload=self.workload, seed=self._seed)

    def measure_job(self, candidate: Candidate) -> MeasureJob:
        """What the runner needs to measure a candidate."""
        job = self.job
        return MeasureJob(
            operator=job.operator,
            folder=job.folder,
            workload=job.workload,
            seed=job.seed,
            source=candidate.source,
            cut_above_us=time_us(self.progress.best),
        )

    def twin(self, candidate: Candidate) -> Record | None:
        """The result of an earlier candidate of the same source, as this candidate's own: equal code is measured once."""
        earlier = self._by_source.get(candidate.source.hash)
        if earlier is None or not candidate.source.hash:
            return None
        message = f"same source as trial {earlier.trial} of session {earlier.session}" + (f": {earlier.message}" if earlier.message else "")
        return self.record(candidate, earlier.status, message, earlier.measurement, earlier.check)

    def record(self, candidate: Candidate, status: Status, message: str, measurement: Measurement | None = None, check: Check | None = None) -> Record:
        """How a candidate ended. The session numbers it when it is written."""
        built = candidate.built() if candidate.build is not None else None
        return Record(
            trial=0,
            workload=self.workload,
            target=self.device.target,
            toolchain=self.device.toolchain,
            template=candidate.source.template_hash,
            config=candidate.config,
            source=candidate.source.hash,
            binary=built.binary if built else "",
            status=status,
            message=message,
            measurement=measurement,
            check=check,
            resources=built.resources if built else None,
            build_s=round(built.build_s, 4) if built else 0.0,
            default=config_key(candidate.config) == self._default,
        )

    def numbered(self, record: Record, *, session: str, trial: int) -> Record:
        """The record as it goes into the log."""
        return msgspec.structs.replace(record, session=session, trial=trial)

    def tell(self, record: Record) -> None:
        """Count a record that was written, and let the searcher learn from it."""
        self._count(record)
        self.progress.asked = self.standing.asked = max(self.progress.asked, self.progress.done)
        self._proposer.tell(dict(record.config), learned_us(record))

    def _count(self, record: Record) -> None:
        progress = self.progress
        progress.done += 1
        progress.statuses[record.status] += 1
        self._since_best += 1
        self._by_source.setdefault(record.source, record)
        if record.default:
            progress.default = record
        if record.status is Status.OK and (progress.best is None or rank(record) < rank(progress.best)):
            progress.best = record
            self._news = record.config
            self._since_best = 0
        self._known.add(config_key(record.config))
        self.standing.told(time_us(progress.best))

    def _request(self, source: Source) -> BuildRequest:
        spec = self.device.spec
        arguments = (*spec.inputs(self.workload).values(), *spec.outputs(self.workload).values()) if spec is not None else ()
        return BuildRequest(source=source, arguments=arguments, target=self.device.compile_target)

    def result(self, tier: Tier, reason: str) -> WorkloadResult:
        """The answer as it stands."""
        progress = self.progress
        return WorkloadResult(
            workload=self.workload,
            tier=tier,
            best=progress.best,
            default=progress.default,
            vendors=progress.vendors,
            statuses=dict(progress.statuses),
            rejected=dict(self.rejected),
            edges=edges(progress.best.config, self.space) if progress.best else (),
            reason=reason,
            roofline=progress.roofline,
        )
