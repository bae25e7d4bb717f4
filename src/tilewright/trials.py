"""One workload's search: what became of its candidates, and the answer that they add up to."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from math import inf

from tilewright.allocation import Standing
from tilewright.best import best_of, rank
from tilewright.device import Device
from tilewright.finalists import decide, finalists
from tilewright.observer import Budget, Progress
from tilewright.pipeline import Candidate, Pipeline
from tilewright.races import first_of
from tilewright.record import Check, Config, Measurement, RaceRecord, Record, Status, VendorRecord, config_key
from tilewright.result import Tier, WorkloadResult, edges, learned_us, time_us
from tilewright.roofline import roofline
from tilewright.runner import Job, MeasureJob, MeasureOutcome, RaceJob, RaceOutcome
from tilewright.template import Source
from tilewright.workload import Workload


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
        races: Sequence[RaceRecord] = (),
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
            races: of this workload on this device.
        """
        self.device = device
        self.workload = workload
        self.space = device.make_space(workload)
        self._default = config_key(self.space.default())
        # A default that an older version cut is measured once more: gains are reckoned against it.
        records = [record for record in records if record.status is not Status.CUT or not self._is_default(record.config)]
        self.ended, self.default_only = "", default_only
        self.most = inf  # trials in all, those of the log included, where the session sets a limit to this search
        self._seed, self._vendors_claimed = seed, bool(vendors)
        self.standing = Standing(weight=weight)
        self._news: Config | None = None
        self._by_source: dict[str, Record] = {}
        self._records: list[Record] = []
        self._races = list(races)
        self._race: RaceRecord | None = None
        self._since_best = 0
        self.progress = Progress(
            workload=workload,
            budget=budget,
            roofline=roofline(device.spec, workload, device.target) if device.spec is not None else None,
            vendors=tuple(vendors),
        )
        self.pipeline = Pipeline(
            device=device,
            workload=workload,
            space=self.space,
            searcher=searcher,
            seed=seed,
            history=[(record.config, learned_us(record)) for record in records],
            default_only=default_only,
            known={config_key(record.config) for record in records},
        )
        for record in records:
            self._count(record)
        self._settle()
        self._news = None
        self.sync()

    @property
    def rejected(self) -> Mapping[str, int]:
        """Points refused by each `require`, by its reason."""
        return self.pipeline.rejected

    @property
    def correct(self) -> list[Record]:
        """Records of correct schedules with times, in the order told."""
        return [record for record in self._records if record.status is Status.OK and record.measurement is not None]

    @property
    def lacks_default(self) -> bool:
        """Whether the author's default schedule has neither a time nor a failure yet."""
        return self.progress.default is None

    def _is_default(self, config: Config) -> bool:
        return config_key(config) == self._default

    def news(self) -> Config | None:
        """The best config, once each time that it is new."""
        news, self._news = self._news, None
        return news

    def feed(self) -> bool:
        """Hand one more candidate to the builder; False where there is none to hand, now or (`ended` is set) at all."""
        if self.progress.asked >= self.most:
            self.ended = self.ended or "budget"
        elif (stop := self.progress.budget.early_stop) is not None and self._since_best >= stop and not self.lacks_default:
            self.ended = "early_stop"
        fed = not self.ended and self.pipeline.feed()
        self.sync()
        return fed

    def take(self) -> Candidate | None:
        """The next candidate to measure, or whose build has failed; None where the searcher wants none of the built ones."""
        candidate = self.pipeline.take()
        self.sync()
        return candidate

    def leave(self) -> list[Candidate]:
        """Stop: take back what has not begun to build, and give what was built, or is being built, and not measured."""
        rest = self.pipeline.leave()
        self.sync()
        return rest

    def sync(self) -> None:
        """Take over what the pipeline counts."""
        if self.pipeline.exhausted:
            self.ended = self.ended or "exhausted"
        self.progress.asked = self.standing.asked = self.pipeline.asked
        self.standing.ahead = self.pipeline.stock

    @property
    def job(self) -> Job:
        """What the runner needs to measure the vendors' kernels."""
        return Job(operator=self.device.operator, folder=self.device.folder, workload=self.workload, seed=self._seed, default=self._default_source)

    @functools.cached_property
    def _default_source(self) -> Source:
        return self.device.make_source(self.workload, self.pipeline.default)

    def measure_job(self, candidate: Candidate) -> MeasureJob:
        """What the runner needs to measure a candidate."""
        job = self.job
        return MeasureJob(
            operator=job.operator,
            folder=job.folder,
            workload=job.workload,
            seed=job.seed,
            default=job.default,
            source=candidate.source,
            cut_above_us=None if self._is_default(candidate.config) else time_us(self.progress.best),  # gains need its time, however long it takes
            neighbours=self.device.neighbours.of(self.workload, candidate.config, candidate.source) if self.device.neighbours is not None else (),
        )

    @property
    def wants_vendors(self) -> bool:
        """Whether the vendors' kernels are still to be measured: not under the interpreter, where they run natively and their times are of another kind."""
        return not self._vendors_claimed and self.device.target.backend != "interpreter"

    def claim_vendors(self) -> bool:
        """Whether the vendors' kernels are still to be measured; whoever is told so does it."""
        wanted, self._vendors_claimed = self.wants_vendors, True
        return wanted

    def measured(self, candidate: Candidate, outcome: MeasureOutcome) -> None:
        """Remember at which ragged neighbour a candidate was checked too."""
        if self.device.neighbours is not None and outcome.check is not None:
            self.device.neighbours.learn(self.workload, candidate.source, outcome.check.ragged)

    def heard(self, workload: Workload, record: Record) -> None:
        """Let the searcher learn from another workload's record."""
        if not self.default_only:
            self.pipeline.hearsay.heard(workload, record.config, learned_us(record), record.resources)

    def finalists(self) -> list[Record]:
        """The schedules to race at the end, the best ranked first; none where there is nothing to decide or to compare with."""
        chosen = finalists(self._records, self.device.runner.protocol)
        return chosen if len(chosen) > 1 or self.progress.vendors else []

    def race(self, chosen: Sequence[Record]) -> RaceOutcome | None:
        """Race them, beside the vendors."""
        job, sources = self.job, tuple(self.device.make_source(self.workload, record.config) for record in chosen)
        return self.device.runner.race(
            RaceJob(operator=job.operator, folder=job.folder, workload=job.workload, seed=job.seed, default=job.default, sources=sources)
        )

    def raced(self, chosen: Sequence[Record], outcome: RaceOutcome, wall_s: float) -> RaceRecord:
        """What the race decided; from here on, its winner is the best."""
        decision = decide(chosen, outcome)
        race = RaceRecord(
            workload=self.workload,
            target=self.device.target,
            toolchain=self.device.toolchain,
            protocol=self.device.runner.protocol,
            racers=decision.racers,
            winner=decision.winner,
            reason=decision.reason,
            rounds=outcome.rounds,
            anchor=outcome.anchor,
            state=outcome.state,
            wall_s=round(wall_s, 3),
        )
        self._races.append(race)
        self._settle()
        return race

    def _settle(self) -> None:
        """Let the races decide which record is the best."""
        if not self._races:
            return
        keys = {key: record for key, record in best_of([*self._records, *self._races]).items() if key[2] == self.device.runner.protocol}
        self.progress.best = next(iter(keys.values()), None)
        self._race = next((race for race in reversed(self._races) if _won(race, self.progress.best)), None)

    def twin(self, candidate: Candidate) -> Record | None:
        """The result of an earlier candidate of the same source, as this candidate's own: equal code is measured once."""
        earlier = self._by_source.get(candidate.source.hash)
        if earlier is None or not candidate.source.hash or (earlier.status is Status.CUT and self._is_default(candidate.config)):
            return None
        message = f"same source as trial {earlier.trial} of session {earlier.session}" + (f": {earlier.message}" if earlier.message else "")
        return self.record(candidate, earlier.status, message, earlier.measurement, earlier.check)

    def record(self, candidate: Candidate, status: Status, message: str, measurement: Measurement | None = None, check: Check | None = None) -> Record:
        """How a candidate ended. The session numbers it when it is written."""
        built = candidate.built() if candidate.is_built else None
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
            default=self._is_default(candidate.config),
        )

    def tell(self, record: Record) -> None:
        """Count a record that was written, and let the searcher learn from it."""
        self._count(record)
        self.pipeline.tell(record.config, learned_us(record))
        self.sync()

    def _count(self, record: Record) -> None:
        progress = self.progress
        is_trial = self.pipeline.is_trial(record.config)
        progress.done += is_trial
        progress.statuses[record.status] += 1
        self._since_best += is_trial
        if self._by_source.setdefault(record.source, record).status is Status.CUT:
            self._by_source[record.source] = record
        self._records.append(record)
        progress.default = record if self._is_default(record.config) else progress.default
        if record.status is Status.OK and (progress.best is None or rank(record) < rank(progress.best)):
            progress.best = record
            self._news = record.config
            self._since_best = 0
        if is_trial:
            self.standing.told(time_us(progress.best))

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
            race=self._race,
        )


def _won(race: RaceRecord, record: Record | None) -> bool:
    racer = first_of(race.racers, race.winner)
    return racer is not None and record is not None and (racer.config, racer.source) == (record.config, record.source)
