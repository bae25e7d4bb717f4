"""`tune`, the library's front door to a tuning session."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Final

from tilewright.device import Device
from tilewright.devices import open_device
from tilewright.errors import UsageError
from tilewright.history import LogHistory, default_history, named_history
from tilewright.inference import inference_note
from tilewright.interchange.suggested import suggesting
from tilewright.log import TuningLog
from tilewright.logfile import refuse_unfit
from tilewright.observer import Budget, Observer, Observers
from tilewright.opening import TargetDiffers
from tilewright.result import TuneResult
from tilewright.search import check_searcher
from tilewright.session import Session
from tilewright.timeline import Timeline
from tilewright.timeouts import Timeouts
from tilewright.workload import Workload, parse_weighted
from tilewright.workload_file import naming_line

# On the recorded GEMM space auto is at the optimum by then, and within 1% of it with the general estimate alone:
# benchmarks/search_efficiency.py, H200, November 2026.
DEFAULT_TRIALS: Final = 64


def tune(
    operator: str,
    workloads: Sequence[str | Mapping[str, int | str] | Workload] | str | Mapping[str, int | str] | Workload = (),
    *,
    workload_set: str | None = None,
    trials: int | None = None,
    time_s: float | None = None,
    early_stop: int | None = None,
    search: str = "auto",
    seed: int = 0,
    device: str = "auto",
    target: str | None = None,
    log: Path | None = None,
    resume: bool = False,
    force: bool = False,
    default_only: bool = False,
    jobs: int | None = None,
    compile_timeout_s: float | None = None,
    run_timeout_s: float | None = None,
    templates: Sequence[Path] = (),
    suggest: Path | None = None,
    names: Sequence[str] = (),
    history: Sequence[Path] | None = None,
    observer: Observer | None = None,
    timeline: Timeline | None = None,
) -> TuneResult:
    """Find the best schedule of an operator for each workload, and log every candidate tried.

    Args:
        operator: the operator's name.
        workloads: parameters such as `"M=4096,N=4096,K=4096,dtype=float16"`, or mappings, or workloads; one of them, or a list. Text may end
            in `:weight`, what a microsecond of that workload is worth next to one of the others.
        workload_set: a named set of the operator's spec, besides or instead.
        trials: candidates measured, over all workloads; 64 for each where no other limit is given.
        time_s: seconds for the whole session.
        early_stop: trials without a better time after which a workload ends.
        search: the searcher's name, one of `tilewright.search.SEARCHERS`.
        seed: of the searcher and of the input data.
        device: `auto`, `cuda:N`, `interpreter` or `recorded:FILE`.
        target: named target to compile for, without a GPU.
        log: file to append to; by default `tuning_logs/<device>/<operator>.jsonl` below the working folder.
        resume: go on with finished searches too, where the trials allow more than the log has. A search that did not end is gone on
            with in any case: its records count, and the candidate it died at is tried once more.
        force: search again, and use nothing of the log.
        default_only: measure only the author's default schedule of a workload that has no answer.
        jobs: builder children; by default all cores but one.
        compile_timeout_s: most seconds for one build, 60 by default; what takes longer is a record of its own status.
        run_timeout_s: most seconds for checking and timing one candidate, by default 10 on a GPU and 120 in the interpreter.
        templates: folders of operators, beside those that come with Tilewright; a name must be found once.
        suggest: file with configs to try first, as `tilewright.interchange.config_files.read_configs` takes it.
        names: what the file calls the knobs, as `tile_m=BLOCK_M`.
        history: logs of other workloads, targets or template versions, which searchers that learn start from; by default those of this
            operator that come with Tilewright, and the log. None of them: an empty list.
        observer: told of progress.
        timeline: gets the moments of the session, and says when it was asked for: `time_s` is what the caller waits.

    Returns:
        One result for each workload. A workload that a finished session of the log covers is answered from it at once.

    Raises:
        UsageError: what was asked for is not there or makes no sense together.
        HostError: no such device, or the log cannot be written.
        LogError: the log, or one of `history`, cannot be read.
    """
    refuse_contradictions(resume=resume, force=force, names=names, suggest=suggest)
    check_searcher(search)
    trials, early_stop, jobs, time_s = _count("trials", trials), _count("early_stop", early_stop), _count("jobs", jobs), _seconds("time_s", time_s)
    timeouts = Timeouts(compile=_seconds("compile_timeout_s", compile_timeout_s), run=_seconds("run_timeout_s", run_timeout_s))
    seed = _whole("seed", seed)
    asked_for = _several(workloads)
    timeline = timeline or Timeline()
    observer = observer or Observers()
    named = named_history(history, operator, search, observer.note) if history is not None else None

    def session(ahead: bool) -> TuneResult:
        with open_device(device, operator, target=target, templates=templates, jobs=jobs, ahead=ahead, timeline=timeline, timeouts=timeouts) as opened:
            if suggest is not None:
                opened.make_space = suggesting(opened.make_space, suggest, names, observer.note)
            if opened.note:
                observer.note(opened.note)
            asked = parse_workloads(opened, asked_for, workload_set)
            if opened.spec is not None and (unseen := inference_note(opened.spec, asked)):
                observer.note(unseen)
            given = (trials, time_s, early_stop)
            limit = DEFAULT_TRIALS * len(asked) if given == (None, None, None) else trials
            lines = TuningLog(log or default_log(opened))
            refuse_unfit(lines.path)
            opened.history = named or LogHistory(default_history(operator, None if force else lines.path))
            if force or not lines.exists():
                opened.start()  # the log has no answer: what takes seconds may begin
            return Session(
                device=opened,
                workloads=asked,
                budget=Budget(trials=limit, time_s=time_s, early_stop=early_stop),
                search=search,
                seed=seed,
                log=lines,
                resume=resume,
                force=force,
                default_only=default_only,
                observer=observer,
            ).run()

    try:
        return session(ahead=True)
    except TargetDiffers as error:
        # Nothing is logged yet. Seldom worth a thought, and never worth a wrong record.
        observer.note(f"{error}; starting over with what the runner says")
        return session(ahead=False)


def refuse_contradictions(*, resume: bool, force: bool, names: Sequence[str], suggest: Path | None) -> None:
    """Refuse options that make no sense together, as `tune` does and a dry run too.

    Raises:
        UsageError: there are such.
    """
    if names and suggest is None:
        raise UsageError("--map says what a file of suggestions calls the knobs: give the file with --suggest")
    if resume and force:
        raise UsageError("--resume goes on from the log's records and --force starts over: give one of them")


def _several(given: object) -> tuple[str | Mapping[str, int | str] | Workload, ...]:
    """One workload or several, as a tuple: a text is one, not its letters."""
    items = (given,) if isinstance(given, str | Mapping | Workload) or not isinstance(given, Iterable) else tuple(given)
    for item in items:
        if not isinstance(item, str | Mapping | Workload):
            raise UsageError(f"workloads must be parameters such as 'M=256,N=256,K=256,dtype=float16', a mapping, a Workload, or a list of them, not {item!r}")
    return items


def _whole(name: str, given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise UsageError(f"{name} must be a whole number, such as {name}=0, not {given!r}")
    return int(given)


def _count(name: str, given: object) -> int | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, Integral) or int(given) <= 0:
        raise UsageError(f"{name} must be a whole number above 0, such as {name}=8, not {given!r}; without it the default holds")
    return int(given)


def _seconds(name: str, given: object) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, Real) or not 0 < float(given) < math.inf:
        raise UsageError(f"{name} must be a number of seconds above 0, such as {name}=60, not {given!r}; without it there is no such limit")
    return float(given)


def default_log(device: Device) -> Path:
    """`tuning_logs/<target>/<operator>.jsonl` below the working folder."""
    return Path("tuning_logs") / device.label / f"{device.operator}.jsonl"


def parse_workloads(device: Device, given: Sequence[str | Mapping[str, int | str] | Workload], set_name: str | None) -> dict[Workload, float]:
    """The workloads asked for, each with its weight; equal ones are one, of their weights' sum.

    Args:
        device: knows the operator.
        given: parameters as text, with `:weight` at its end where it is not 1, or as a mapping, or workloads.
        set_name: a named set of the operator's spec, besides.

    Raises:
        UsageError: a workload is not the operator's, or there is none.
    """
    found: dict[Workload, float] = {}
    for item in given:
        parameters = item.parameters if isinstance(item, Workload) else item
        with naming_line(parameters):
            text, weight = parse_weighted(parameters) if isinstance(parameters, str) else (_text(parameters), 1.0)
            workload = device.make_workload(text)
        found[workload] = found.get(workload, 0.0) + weight
    if set_name is not None:
        if device.spec is None:
            raise UsageError(f"workload set {set_name!r}: operator {device.operator} has no spec here; name its folder with --templates")
        for member, weight in device.spec.workload_set(set_name).items():
            workload = device.make_workload(_text(member.parameters))
            found[workload] = found.get(workload, 0.0) + weight
    if not found:
        raise UsageError(f"nothing to tune: give a workload with -w, or a named set with --workloads (operator {device.operator})")
    return found


def _text(parameters: Mapping[str, int | str]) -> str:
    return ",".join(f"{name}={value}" for name, value in parameters.items())
