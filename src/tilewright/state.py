"""What a log's lines say when put together: sessions, records by workload, and candidates left open."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from tilewright.identity import Keys
from tilewright.record import Line, RaceRecord, Record, RecordedSpace, SessionEnd, SessionStart, TrialStart, Value, VendorRecord, config_key
from tilewright.target import Target
from tilewright.workload import Workload


@dataclass(slots=True, kw_only=True)
class SessionState:
    """One session.

    Attributes:
        start, end: its first and last lines; an end of None tells an interrupted session.
        records: how many records it wrote.
    """

    start: SessionStart | None = None
    end: SessionEnd | None = None
    records: int = 0

    @property
    def interrupted(self) -> bool:
        """Whether it began and did not end in order."""
        return self.start is not None and self.end is None


@dataclass(slots=True)
class _Open:
    config: dict[str, Value]
    starts: int


@dataclass(slots=True)
class _Topic:
    """All about one workload on one target."""

    records: list[Record] = field(default_factory=list)
    vendors: list[VendorRecord] = field(default_factory=list)
    races: list[RaceRecord] = field(default_factory=list)
    open: dict[str, _Open] = field(default_factory=dict)


class LogState:
    """The state that lines add up to. Built by `LogState.of`; lines may come from several logs.

    Attributes:
        sessions: by session id, in order of appearance.
        spaces: recorded spaces, in order of appearance.
    """

    def __init__(self) -> None:
        self.sessions: dict[str, SessionState] = {}
        self.spaces: list[RecordedSpace] = []
        self._topics: dict[tuple[str, str], _Topic] = {}
        self._keys = Keys()
        self._ends: dict[tuple[str, ...], dict[str, frozenset[str]]] = {}

    @classmethod
    def of(cls, lines: Iterable[Line]) -> LogState:
        """Fold lines, in the order of the log."""
        state = cls()
        for line in lines:
            state._add(line)
        return state

    def _add(self, line: Line) -> None:
        match line:
            case Record():
                topic = self._topic(line.workload, line.target)
                topic.records.append(line)
                if topic.open:
                    topic.open.pop(config_key(line.config), None)
                self._session(line.session).records += 1
            case VendorRecord():
                self._topic(line.workload, line.target).vendors.append(line)
            case RaceRecord():
                self._topic(line.workload, line.target).races.append(line)
            case TrialStart():
                start = self._session(line.session).start
                # A start names no target; its session does. Without that line, nobody can tell where it ran.
                if start is not None:
                    waiting = self._topic(line.workload, start.target).open
                    waiting.setdefault(config_key(line.config), _Open(line.config, 0)).starts += 1
            case SessionStart():
                self._session(line.session).start = line
            case SessionEnd():
                self._session(line.session).end = line
            case RecordedSpace():
                self.spaces.append(line)

    def _session(self, name: str) -> SessionState:
        return self.sessions.setdefault(name, SessionState())

    def _topic(self, workload: Workload, target: Target) -> _Topic:
        return self._topics.setdefault((self._keys.workload(workload), self._keys.target(target)), _Topic())

    def _find(self, workload: Workload, target: Target) -> _Topic:
        return self._topics.get((workload.key, target.key)) or _Topic()

    def records(self, workload: Workload, target: Target) -> tuple[Record, ...]:
        """Records of a workload on a target of the same identity, in the order of the log."""
        return tuple(self._find(workload, target).records)

    def vendors(self, workload: Workload, target: Target) -> tuple[VendorRecord, ...]:
        """Vendors' records of a workload on a target of the same identity, in the order of the log."""
        return tuple(self._find(workload, target).vendors)

    def races(self, workload: Workload, target: Target) -> tuple[RaceRecord, ...]:
        """Races of a workload on a target of the same identity, in the order of the log."""
        return tuple(self._find(workload, target).races)

    def unfinished(self, workload: Workload, target: Target) -> tuple[tuple[dict[str, Value], int], ...]:
        """Candidates that started on the device and have no record since.

        Returns:
            Each config with how often it started in vain: once is bad luck or its fault, twice is its fault.
        """
        return tuple((dict(waiting.config), waiting.starts) for waiting in self._find(workload, target).open.values())

    def has_run(self, operator: str) -> bool:
        """Whether any candidate of an operator ran, on whichever workload and target."""
        records = (record for topic in self._topics.values() for record in topic.records)
        return any(record.measurement is not None or record.check is not None for record in records if record.workload.operator == operator)

    def finished(self, target: Target, reasons: Collection[str]) -> frozenset[str]:
        """Keys of workloads whose search on a target came to its end in some session.

        Args:
            target: compared by identity.
            reasons: ends of a whole session that finish all its workloads, whether its end line lists them or not.
        """
        return frozenset().union(*self._finished(target, reasons).values())

    def finishing(self, workload: Workload, target: Target, reasons: Collection[str]) -> tuple[str, ...]:
        """Ids of the sessions in which a workload's search came to its end, in the order of the log; arguments as for `finished`."""
        return tuple(name for name, keys in self._finished(target, reasons).items() if workload.key in keys)

    def _finished(self, target: Target, reasons: Collection[str]) -> dict[str, frozenset[str]]:
        if (known := self._ends.get((target.key, *sorted(reasons)))) is not None:
            return known
        found = self._ends[target.key, *sorted(reasons)] = dict[str, frozenset[str]]()
        for name, session in self.sessions.items():
            if session.start is None or session.end is None or self._keys.target(session.start.target) != target.key:
                continue
            everything = session.end.reason in reasons
            found[name] = frozenset((*session.end.finished, *((self._keys.workload(one) for one in session.start.workloads) if everything else ())))
        return found
