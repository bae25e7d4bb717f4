"""Record a whole space: every legal point of an operator on every given workload, as a log that can stand in for the device.

    python benchmarks/record_space.py coarse_matmul --templates benchmarks/operators --workloads recorded --out DIR --time 540
    python benchmarks/record_space.py softmax -w rows=2048,cols=4096,dtype=bfloat16 -w ... --out DIR --time 60

Each point is built once, and measured by the session's own runner on every workload that its source serves: outputs checked, then timed by
graph replay beside an anchor. One more than three times slower than the best so far is cut short after its first samples, and keeps their
time; equal code is measured once. Workloads come in turn, points in random order, so that a recording that ran out of time is a sample.

DIR/<operator>.jsonl.gz is the recording, without samples, device states and code (times at the anchors' nominal speed), written now and then
and at the end; where it is there at the start, what it has is not measured again. DIR/<operator>.jsonl is the raw log of this run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import msgspec

from tilewright.device import Device
from tilewright.devices import open_device
from tilewright.log import TuningLog, write_log
from tilewright.observer import Budget, Observers, Progress
from tilewright.record import Config, KnobInfo, Line, Measurement, Record, RecordedSpace, SessionEnd, SessionStart, Status, VendorRecord, config_key
from tilewright.recorded import Recording
from tilewright.search import Proposer
from tilewright.session import Session
from tilewright.timeline import Timeline
from tilewright.trials import Search
from tilewright.tuner import parse_workloads
from tilewright.workload import Workload

SAVE_EVERY_S = 150.0
SAY_EVERY_S = 15.0

Order = Callable[[Search], Proposer]


class Recorder(Session):
    """A session that measures everything: no races, no crossing, and searchers of its own choice."""

    order: Order | None = None
    earlier: Sequence[Record] = ()

    def _search(self, workload: Workload) -> Search:
        records = [record for record in self.earlier if record.workload.key == workload.key]
        search = Search(
            device=self.device,
            workload=workload,
            weight=1.0,
            budget=self.budget,
            default_only=False,
            searcher="random",
            seed=self.seed,
            records=records,
            vendors=(),
        )
        search.standing.best_us.clear()
        if self.order is not None:
            order = self.order
            search.pipeline._make = lambda: order(search)  # type: ignore[assignment]
        return search

    def _answers(self, search: Search) -> bool:
        return False

    def _cross(self, searches: Any, loop: Any) -> None:
        return

    def _race(self, searches: Any) -> None:
        return

    @property
    def _crossing_share(self) -> float:
        return 0.0

    @property
    def _reserve_s(self) -> float:
        return self._closing_s


class Printing(Observers):
    """A line now and then, and the recording on the disk now and then."""

    def __init__(self, points: int, save: Callable[[], None], timeline: Timeline) -> None:
        super().__init__()
        self._points, self._save, self._timeline = points, save, timeline
        self._said = self._saved = time.monotonic()
        self._states: dict[str, Progress] = {}

    def progress(self, progress: Progress, record: Record | None, elapsed_s: float) -> None:
        self._states[progress.workload.key] = progress
        now = time.monotonic()
        if now - self._said >= SAY_EVERY_S:
            self._said = now
            done = sum(state.done for state in self._states.values())
            statuses: Counter[str] = Counter()
            for state in self._states.values():
                statuses.update({str(status): count for status, count in state.statuses.items()})
            print(f"{elapsed_s:7.1f} s  {done:6d} of {self._points}  {dict(statuses)}", flush=True)
        if now - self._saved >= SAVE_EVERY_S:
            self._saved = now
            self._save()


def merged_order(configs: Iterable[Config]) -> list[str]:
    """Knob names in an order that agrees with that of every config."""
    before: dict[str, set[str]] = {}
    seen: set[tuple[str, ...]] = set()
    for config in configs:
        names = tuple(config)
        if names in seen:
            continue
        seen.add(names)
        for place, name in enumerate(names):
            before.setdefault(name, set()).update(names[max(0, place - 1) : place])
    return list(TopologicalSorter(before).static_order())


def knob_infos(configs: Sequence[Config]) -> list[KnobInfo]:
    """The knobs of recorded configs, candidates in ascending order."""
    found: dict[str, dict[str, Any]] = {}
    for config in configs:
        for name, value in config.items():
            found.setdefault(name, {})[json.dumps(value)] = value

    def key(value: Any) -> Any:
        return (1, [*value[1:], value[0]]) if isinstance(value, list) else (0, value)

    return [KnobInfo(name=name, candidates=sorted(found[name].values(), key=key)) for name in merged_order(configs)]


def plain(record: Record) -> Record:
    """A record as a recording keeps it: no code and no samples, and times at the anchor's nominal speed."""
    found = record.measurement
    if found is not None:
        scale = found.ranked_us / found.median_us
        found = Measurement(
            protocol=found.protocol,
            median_us=round(found.median_us * scale, 3),
            min_us=round(found.min_us * scale, 3),
            max_us=round(found.max_us * scale, 3),
            cv=round(found.cv, 4),
            samples=found.samples,
        )
    message = record.message.splitlines()[0][:160] if record.message and record.status is not Status.CUT else ""
    return msgspec.structs.replace(record, source="", binary="", check=None, measurement=found, message=message, build_s=round(record.build_s, 2))


def recording_lines(operator: str, records: Sequence[Record], others: Sequence[Line], *, complete: bool, note: str) -> list[Line]:
    """The lines of a recording."""
    kept: dict[tuple[str, str], Record] = {}
    for record in records:
        # A candidate that a session left unmeasured when its time was up is not recorded.
        if record.status is not Status.CUT or record.measurement is not None:
            kept[record.workload.key, config_key(record.config)] = plain(record)
    ordered = [msgspec.structs.replace(record, trial=number, session="recording") for number, record in enumerate(kept.values())]
    lines: list[Line] = [
        RecordedSpace(session="recording", operator=operator, knobs=knob_infos([record.config for record in ordered]), complete=complete, note=note)
    ]
    vendors: dict[tuple[str, str], VendorRecord] = {}
    starts = [line for line in others if isinstance(line, SessionStart)]
    for line in others:
        if isinstance(line, VendorRecord):
            found = line.measurement
            small = found and msgspec.structs.replace(found, times_us=[], state=None)
            vendors[line.workload.key, line.name] = msgspec.structs.replace(line, session="recording", measurement=small)
    lines += [msgspec.structs.replace(starts[0], session="recording")] if starts else []
    lines += list(vendors.values())
    lines += ordered
    ends = [line for line in others if isinstance(line, SessionEnd)]
    lines += [msgspec.structs.replace(ends[-1], session="recording", trials=len(ordered))] if ends else []
    return lines


def replace_log(path: Path, lines: Sequence[Line]) -> None:
    temporary = path.with_name(f".{path.name}.jsonl.gz")
    temporary.unlink(missing_ok=True)
    write_log(temporary, lines)
    temporary.replace(path)


def record_all(
    device: Device, workloads: Sequence[Workload], out: Path, *, time_s: float, seed: int = 0, order: Order | None = None, note: str = "", name: str = ""
) -> dict[str, Any]:
    """Measure every legal point of every workload, as far as the time goes; returns what there is now."""
    out.mkdir(parents=True, exist_ok=True)
    stem = name or device.operator
    raw, packed = out / f"{stem}.jsonl", out / f"{stem}.jsonl.gz"
    earlier: list[Line] = list(TuningLog(packed).read().lines) if packed.exists() else []
    device = replace(device, neighbours=None)  # a ragged neighbour for each candidate is what tuning needs, not a recording
    points = sum(device.make_space(workload).count().legal for workload in workloads)
    known = [line for line in earlier if isinstance(line, Record)]
    print(f"{device.operator} on {device.name}: {points} points on {len(workloads)} workloads, {len(known)} of them recorded before", flush=True)

    def save(complete: bool = False) -> list[Line]:
        lines = [*earlier, *(TuningLog(raw).read().lines if raw.exists() else ())]
        records = [line for line in lines if isinstance(line, Record)]
        if not records:
            return []
        made = recording_lines(device.operator, records, lines, complete=complete, note=note)
        replace_log(packed, made)
        return made

    session = Recorder(
        device=device,
        workloads=dict.fromkeys(workloads, 1.0),
        budget=Budget(time_s=time_s),
        search="random",
        seed=seed,
        log=TuningLog(raw),
        resume=True,
        force=True,
        default_only=False,
        observer=Printing(points, lambda: void(save()), device.timeline),
    )
    session.order = order
    session.earlier = known
    result = session.run()
    lines = save()
    recorded = [line for line in lines if isinstance(line, Record)]
    if len(recorded) >= points:
        lines = save(complete=True)
    if lines:
        Recording(lines, str(packed)).space(workloads[0])  # it can be replayed
    summary = {
        "operator": device.operator,
        "points": points,
        "recorded": len(recorded),
        "complete": len(recorded) >= points,
        "statuses": dict(Counter(str(record.status) for record in recorded)),
        "bytes": packed.stat().st_size if packed.exists() else 0,
        "utilisation": msgspec.to_builtins(result.utilisation),
        "wall_s": round(result.wall_s, 1),
        "best_us": {},
    }
    for workload in workloads:
        own = [record for record in recorded if record.workload.key == workload.key and record.status is Status.OK and record.measurement is not None]
        times = sorted(record.measurement.median_us for record in own if record.measurement is not None)
        if times:
            summary["best_us"][workload.key] = {
                "best": times[0],
                "within_5%": sum(us <= 1.05 * times[0] for us in times),
                "median": times[len(times) // 2],
                "ok": len(times),
            }
    return summary


def void(_: object) -> None:
    """Drop a value."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operator")
    parser.add_argument("--templates", type=Path, action="append", default=[])
    parser.add_argument("-w", "--workload", dest="workloads", action="append", default=[])
    parser.add_argument("--workloads", dest="workload_set")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--time", type=float, default=540.0, help="seconds, from the start of this script")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--note", default="")
    arguments = parser.parse_args()
    timeline = Timeline()
    with open_device(arguments.device, arguments.operator, target=None, templates=arguments.templates, jobs=arguments.jobs, timeline=timeline) as device:
        workloads = list(parse_workloads(device, arguments.workloads, arguments.workload_set))
        summary = record_all(device, workloads, arguments.out, time_s=arguments.time, seed=arguments.seed, note=arguments.note)
    print(json.dumps(summary, indent=1))
    (arguments.out / f"{arguments.operator}.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
