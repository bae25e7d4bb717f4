"""What a person sees of a session: a live line, plain lines, and the table at its end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tilewright.formats import format_config as format_config
from tilewright.formats import format_us as format_us
from tilewright.observer import Progress
from tilewright.protocols import CUT_FACTOR
from tilewright.record import Racer, Record, SessionStart, Status, Value
from tilewright.result import TuneResult, WorkloadResult, ranked_ratio, time_us
from tilewright.roofline import Roofline
from tilewright.workload import Workload

# Seconds between plain progress lines, besides those of a better time. guess: a log file stays readable.
_PLAIN_EVERY_S: Final = 10.0
_CUT: Final = f" (cut: right, but over {CUT_FACTOR:g} times as slow as the best so far, and not timed to the end)"


def format_gain(ratio: float | None) -> str:
    """A ratio of times, `-` for none."""
    return "-" if ratio is None else f"{ratio:.2f}x"


def format_paired(gain: float | None, racer: Racer | None) -> str:
    """A ratio of times, with its 95% interval where it was raced for."""
    if racer is None or racer.low is None or racer.high is None:
        return format_gain(gain)
    return f"{format_gain(gain)} ({racer.low:.3f}-{racer.high:.3f})"


def format_workload(workload: Workload) -> str:
    """A workload's parameters, without the operator."""
    return workload.key.partition(":")[2]


def rate(roofline: Roofline | None, us: float | None) -> str:
    """Achieved rate and share of the roofline: TFLOP/s where arithmetic bounds the workload, else GB/s."""
    if roofline is None or us is None:
        return ""
    figure = f"{roofline.tflops(us):.3g} TFLOP/s" if roofline.bound == "compute" else f"{roofline.gb_s(us):.4g} GB/s"
    fraction = roofline.fraction(us)
    return figure if fraction is None else f"{figure}, {100 * fraction:.2g}% of roofline"


def status_line(progress: Progress, elapsed_s: float) -> str:
    """One line for the state of a workload's search."""
    budget = progress.budget
    best_us = time_us(progress.best)
    parts = [_trials(progress)]
    if best_us is None:
        parts.append("nothing correct yet")
    else:
        figure = rate(progress.roofline, best_us) if not _interpreted(progress.best) else ""
        parts.append(f"best {format_us(best_us)} µs{_label(progress.best)}" + (f" ({figure})" if figure else ""))
        if gain := ranked_ratio(progress.default, progress.best):
            parts.append(f"{gain:.2f}x default")
        if gains := [gain for vendor in progress.vendors if (gain := ranked_ratio(vendor, progress.best))]:
            parts.append(f"{min(gains):.2f}x vendor")
    if failures := _failures(progress.statuses):
        parts.append(failures)
    if budget.time_s is not None:
        parts.append(f"{max(0.0, budget.time_s - elapsed_s):.0f} s left")
    return " | ".join(parts)


def _trials(progress: Progress) -> str:
    """How many trials a workload had; of how many, where they are its own."""
    of = progress.budget.trials
    if of is not None and progress.sharing == 1:
        return f"{progress.done}/{of}"
    shared = f" (all {progress.sharing} workloads: {of})" if of is not None else ""
    return f"{progress.done} trial{'' if progress.done == 1 else 's'}{shared}"


def _interpreted(record: Record | None) -> bool:
    return record is not None and record.target.backend == "interpreter"


def _label(record: Record | None) -> str:
    return " (interpreter)" if _interpreted(record) else ""


def _failures(statuses: Mapping[Status, int]) -> str:
    return ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()) if status is not Status.OK)


class PlainReport:
    """Progress as plain lines: a better time at once, else a line every ten seconds."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream`, flushed at each line."""
        self._stream = stream
        self._best: dict[Workload, float | None] = {}
        self._last = 0.0

    def _write(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def session(self, start: SessionStart, device: str, log: Path) -> None:
        """Say what begins."""
        self._write(f"tuning {start.operator} on {device}: {len(start.workloads)} workload(s), log {log}")

    def note(self, text: str) -> None:
        """Pass it on."""
        self._write(f"note: {text}")

    def progress(self, progress: Progress, record: Record | None, elapsed_s: float) -> None:
        """A line where the best is new, or the last line is old."""
        best = time_us(progress.best)
        now = time.monotonic()
        if record is not None and best == self._best.get(progress.workload) and now - self._last < _PLAIN_EVERY_S:
            return
        self._best[progress.workload] = best
        self._last = now
        self._write(f"{format_workload(progress.workload)}: {status_line(progress, elapsed_s)}")

    def answered(self, result: WorkloadResult) -> None:
        """Nothing: the table says it."""

    def end(self, result: TuneResult) -> None:
        """Nothing: the table says it."""


class LiveReport:
    """Progress as one live block, a line for each workload."""

    def __init__(self, stream: TextIO) -> None:
        """Draw on the terminal behind `stream`."""
        self._console = Console(file=stream)
        self._live: Live | None = None
        self._lines: dict[Workload, str] = {}
        self._recent: dict[Workload, None] = {}  # the latest last

    def session(self, start: SessionStart, device: str, log: Path) -> None:
        """Say what begins, and start drawing."""
        self._console.print(f"tuning [bold]{start.operator}[/bold] on {device}: {len(start.workloads)} workload(s), log {log}", highlight=False)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._live.start()

    def note(self, text: str) -> None:
        """Pass it on."""
        self._console.print(f"note: {text}", highlight=False, markup=False)

    def progress(self, progress: Progress, record: Record | None, elapsed_s: float) -> None:
        """Redraw the workload's line."""
        self._lines[progress.workload] = f"{format_workload(progress.workload)}: {status_line(progress, elapsed_s)}"
        if self._live is not None:
            self._live.update(Text("\n".join(self._shown(progress.workload)), no_wrap=True, overflow="ellipsis"))

    def _shown(self, latest: Workload) -> list[str]:
        """All workloads; where the terminal is too short for them, those that had a trial last, in their order."""
        self._recent.pop(latest, None)
        self._recent[latest] = None
        room = max(2, self._console.height - 2)
        if len(self._lines) <= room:
            return list(self._lines.values())
        active = set(list(self._recent)[1 - room :])
        shown = [line for workload, line in self._lines.items() if workload in active]
        return [*shown, f"and {len(self._lines) - len(shown)} more workloads"]

    def answered(self, result: WorkloadResult) -> None:
        """Stop drawing: the search is over."""
        self._stop()

    def end(self, result: TuneResult) -> None:
        """Stop drawing."""
        self._stop()

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def end_table(result: TuneResult) -> Table:
    """The table at the end: for each workload the default, the winner and the vendor."""
    unit = "µs, interpreter" if any(_interpreted(answer.best) for answer in result.results) else "µs"
    table = Table(title=f"{result.device}, {result.protocol}", title_justify="left")
    table.add_column("workload", overflow="fold")
    for title in (f"default {unit}", f"best {unit}", f"vendor {unit}", "vs default", "vs vendor"):
        table.add_column(title, justify="right")
    for title in ("rate", "from", "schedule"):
        table.add_column(title, overflow="fold")
    for answer in result.results:
        interpreted = _interpreted(answer.best)
        table.add_row(
            format_workload(answer.workload),
            format_us(answer.default_us),
            format_us(answer.best_us),
            format_us(answer.vendor_us),
            format_paired(answer.gain_over_default, answer.raced_default),
            format_paired(answer.gain_over_vendor, answer.raced_vendor),
            "" if interpreted else rate(answer.roofline, answer.best_us),
            answer.tier,
            format_config(answer.best.config) if answer.best is not None else _no_schedule(answer),
        )
    return table


def _no_schedule(answer: WorkloadResult) -> str:
    """Why there is none. A workload that had no trial is not one whose every schedule is wrong."""
    if any(answer.statuses.values()):
        return "none is correct"
    why = {"budget": "the budget was spent", "interrupted": "interrupted"}.get(answer.reason, answer.reason or "the session ended")
    return f"not measured: {why} before its first trial"


def end_notes(result: TuneResult) -> Iterable[str]:
    """What the table has no room for: failures, refused points, edges of the candidates, where the log is."""
    for answer in result.results:
        name = format_workload(answer.workload)
        if failures := _failures(answer.statuses):
            cut = _CUT if answer.statuses.get(Status.CUT) else ""
            yield f"{name}: {failures} of {sum(answer.statuses.values())} trials{cut}"
        for reason, count in sorted(answer.rejected.items()):
            yield f"{name}: {count} points refused: {reason}"
        if answer.race is not None:
            yield f"{name}: won a race of {len(answer.race.racers)} in {answer.race.rounds} rounds: {answer.race.reason}"
        # The interpreter's time says nothing of warps and stages, so nothing of where they should end either.
        for edge in () if _interpreted(answer.best) else answer.edges:
            yield f"{name}: {edge.knob}={_value(edge.value)} is the {edge.end} of its candidates; the template may be too narrow there"
        if answer.reason == "hopeless":
            why = f"its candidates all failed alike, those of every schedule, and none of {answer.workload.operator} has ever run"
            yield f"{name}: ended before its budget: {why}"
        if answer.best is None and answer.statuses:
            yield f"{name}: every candidate failed; `tilewright log stats {result.log}` has the messages"
    if result.utilisation is not None:
        used = result.utilisation
        building = "" if used.builders is None else f", builders busy {100 * used.builders:.0f}%"
        yield f"first candidate on the device after {used.start_s:.1f} s; from there device busy {100 * used.device:.0f}% of the search{building}"
    yield f"log: {result.log} ({result.reason}, {result.wall_s:.1f} s)"


def _value(value: Value) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)


def print_end(result: TuneResult, stream: TextIO) -> None:
    """Print the table and the notes."""
    console = Console(file=stream) if stream.isatty() else Console(file=stream, width=200)
    console.print(end_table(result))
    for note in end_notes(result):
        console.print(note, highlight=False, markup=False, soft_wrap=True)
