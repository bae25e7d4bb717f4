"""The parent's side of a race: every racer that fails is out, and the others run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tilewright.child_runner import PREPARE_TIMEOUT_S, ChildRunner, source_payload
from tilewright.job import RaceEntrant, RaceJob, RaceOutcome
from tilewright.record import Anchor, DeviceState, Status
from tilewright.reply import Reply

_RACE_TIMEOUTS: Final = 6.0  # of one candidate, for all racers. guess: 60 s by default, and a race takes 0.2 to 1.5 s
_ALONE_ROUNDS: Final = 4

_Entry = tuple[str, Mapping[str, Any]]


class RacingRunner(ChildRunner):
    """A child runner that races."""

    def _race(self, job: RaceJob) -> RaceOutcome:
        """Check and capture each racer, then time all in turns.

        A racer that fails is out, in its check or in the race. Where it took the child down, or may have written over what the others are
        compared with, those enter anew: each failure costs one racer, and nothing else.
        """
        entries: list[_Entry] = [(f"schedule {place}", source_payload(source)) for place, source in enumerate(job.sources)]
        entries += [(f"vendor {name}", {"vendor": name}) for name in self._prepare(job)]
        out: dict[str, RaceEntrant] = {}
        found: Mapping[str, Any] = {}
        message = ""
        afresh = searched = False
        for _ in range(2 * len(entries) + 2):  # more than each can fail; the child may be replaced for its size as well
            racing = [(name, entry) for name, entry in entries if name not in out]
            if not racing:
                break
            entered, afresh = self._enter(job, racing, out, afresh=afresh)
            if entered is None:
                continue
            reply = self._run_race(job, _RACE_TIMEOUTS * self._timeout_s)
            if reply.kind == "ok" and "failed" not in reply.result:
                found = reply.result
                for name, entrant in zip(entered, found["entrants"], strict=True):
                    out[name] = RaceEntrant(status=Status(entrant["status"]), message=entrant["message"], times_us=tuple(entrant["times_us"]))
                break
            if reply.kind == "ok":
                failed = reply.result["failed"]
                out[entered[failed["place"]]] = RaceEntrant(status=Status(failed["status"]), message=f"in the race: {failed['message']}")
                continue
            message = f"the race did not end: {reply.message}"
            guilty = {} if searched else self._alone(job, racing)
            searched = True
            if not guilty:  # whose fault, nobody can tell, and all pass alone
                break
            out |= guilty
        unraced = RaceEntrant(status=Status.CRASH, message=message or "the race could not be begun for the failures of others")
        return RaceOutcome(
            schedules=tuple(out.get(f"schedule {place}", unraced) for place in range(len(job.sources))),
            vendors={name.removeprefix("vendor "): entrant for name, entrant in out.items() if name.startswith("vendor ")},
            rounds=int(found.get("rounds", 0)),
            anchor=msgspec.convert(found.get("anchor"), Anchor | None),
            state=msgspec.convert(found.get("state"), DeviceState | None),
            message="" if found else message,
        )

    def _enter(self, job: RaceJob, racing: Sequence[_Entry], out: dict[str, RaceEntrant], *, afresh: bool) -> tuple[list[str] | None, bool]:
        """Have racers checked and captured; those that fail go into `out`.

        Returns:
            Who entered, None where the rest must enter anew; and whether everything must be made afresh for that.
        """
        self._prepare(job)
        begin = {**self._payload(job), "afresh": afresh}
        self._expect(self._worker.request("race_begin", begin, PREPARE_TIMEOUT_S), "the race cannot begin")
        pid = self._worker.pid
        for name, entry in racing:
            reply = self._worker.request("race_enter", {**self._payload(job), **entry}, self._timeout_s)
            outcome = self._outcome(reply)
            spoiled = False
            if outcome.status is not Status.OK:
                out[name] = RaceEntrant(status=outcome.status, message=outcome.message)
                spoiled = bool(reply.result.get("spoiled"))
            if spoiled or self._worker.pid != pid:
                return None, spoiled
        return [name for name, _ in racing if name not in out], False

    def _run_race(self, job: RaceJob, timeout_s: float, rounds: int | None = None) -> Reply:
        reply = self._worker.request("race_run", {**self._payload(job), "rounds": rounds}, timeout_s)
        if reply.kind != "ok" or "failed" in reply.result:
            self._retire_if_told({"retire": reply.kind in ("ok", "error")})
        return reply

    def _alone(self, job: RaceJob, racing: Sequence[_Entry]) -> dict[str, RaceEntrant]:
        """Those of the racers that do not get through some rounds alone."""
        guilty: dict[str, RaceEntrant] = {}
        for name, entry in racing:
            entered, _ = self._enter(job, [(name, entry)], guilty, afresh=True)
            if name in guilty or entered is None:
                continue
            reply = self._run_race(job, self._timeout_s, _ALONE_ROUNDS)
            if reply.kind == "ok" and "failed" in reply.result:
                failed = reply.result["failed"]
                guilty[name] = RaceEntrant(status=Status(failed["status"]), message=f"in the race: {failed['message']}")
            elif reply.kind != "ok":
                status = Status.RUN_TIMEOUT if reply.kind == "timeout" else Status.CRASH
                guilty[name] = RaceEntrant(status=status, message=f"in the race: {reply.message}")
        return guilty
