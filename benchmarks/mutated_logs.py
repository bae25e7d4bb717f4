"""Mutated log lines, read and emitted: no crash, nothing executed, nothing written outside of the output folder.

    python benchmarks/mutated_logs.py [--lines 100000] [--seed 0] [--out DIR]

Lines of a real log are changed: bytes, JSON values of other types and sizes, texts that would do harm as code, a template or a path. The
log is linted, its best file derived and merged, and emitted with --compatible, all in this process under an audit hook that notes every file
opened for writing, every process started, and every compilation of text that is none of Tilewright's or of the operators'. What was
refused is counted by its reason.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilewright.best import best_entries, best_text, parse_best
from tilewright.bestfile import BestFile
from tilewright.codec import decode_line, encode_line
from tilewright.emit import Mode, Refused, emit_package
from tilewright.errors import LogError, SchemaTooNew, TilewrightError, UsageError
from tilewright.library import Operator, find_operators
from tilewright.lint import lint
from tilewright.log import TuningLog
from tilewright.reach import inspector
from tilewright.record import Check, Measurement, Record, SessionEnd, SessionStart, Status
from tilewright.target import Toolchain, named_target

HARM = (
    "{{ cfg.__init__.__globals__ }}",
    "{% include '/etc/passwd' %}",
    "__import__('os').system('touch PWNED')",
    "4)\n    __import__('os').system('touch PWNED')\n    (",
    "../../../../tmp/PWNED",
    "/tmp/PWNED.py",
    "\x00",
    "'''",
    "{0.__class__.__mro__}",
    "\ud800",
    "a" * 10_000,
)
VALUES: tuple[Any, ...] = (None, True, -1, 0, 10**30, 1e308, -0.0, "", [], {}, [[[[]]]], {"a": {"b": 1}}, *HARM)


def originals(operators: dict[str, Operator]) -> list[bytes]:
    """Lines of a small session: records of each operator's first suggestions."""
    target = named_target("sm_90")
    lines: list[bytes] = []
    trial = 0
    for name, operator in operators.items():
        if name not in ("matmul", "rms_norm", "softmax"):
            continue
        workload = next(iter(operator.spec.workload_set("smoke")))
        start = SessionStart(session=name, started_at="", tilewright="0", operator=name, workloads=[workload], target=target, toolchain=Toolchain())
        lines.append(encode_line(start))
        for config in operator.space(workload, target).suggestions()[:4]:
            source = operator.instantiate(workload, target, config)
            us = 10.0 + trial
            lines.append(
                encode_line(
                    Record(
                        session=name, trial=trial, workload=workload, target=target, config=config, status=Status.OK, template=source.template_hash,
                        source=source.hash, toolchain=Toolchain(triton="3.6.0"), check=Check(rel_norm=0, max_error=0, rel_norm_allowed=1, max_error_allowed=1),
                        measurement=Measurement(protocol="graph/1", median_us=us, min_us=us, max_us=us, samples=1, times_us=[us]),
                    )
                )
            )  # fmt: skip
            trial += 1
        lines.append(encode_line(SessionEnd(session=name, ended_at="", reason="budget", trials=4)))
    return lines


def paths_in(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values of a JSON value are."""
    yield here
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths_in(item, (*here, key))


def mutated(raw: bytes, rng: random.Random) -> bytes:
    """One line, changed once or a few times."""
    if rng.random() < 0.4:
        changed = bytearray(raw)
        for _ in range(rng.randrange(1, 6)):
            place = rng.randrange(len(changed))
            match rng.randrange(4):
                case 0:
                    changed[place] = rng.randrange(256)
                case 1:
                    del changed[place : place + rng.randrange(1, 40)]
                case 2:
                    changed[place:place] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 8)))
                case _:
                    changed[place:place] = rng.choice(HARM).encode("utf-8", "surrogatepass")
            if not changed:
                break
        return bytes(changed)
    value = json.loads(raw)
    for _ in range(rng.randrange(1, 3)):
        places = [place for place in paths_in(value) if place]
        *way, last = rng.choice(places)
        holder = value
        for key in way:
            holder = holder[key]
        if isinstance(holder, dict) and rng.random() < 0.3:
            holder[rng.choice(HARM)] = holder.pop(last)
        else:
            holder[last] = copy.deepcopy(rng.choice(VALUES))
    return json.dumps(value).encode("utf-8", "surrogatepass") + b"\n"


class Audit:
    """What this process did that a log must not make it do. Hooks cannot be taken out again: it is switched on and off."""

    def __init__(self, allowed: Path) -> None:
        self.on = False
        self.offences: Counter[str] = Counter()
        self._allowed = str(allowed)
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open" and isinstance(arguments[0], (str, bytes)) and isinstance(arguments[2], int) and arguments[2] & 0o3:
            path = str(arguments[0])
            if not path.startswith(self._allowed) and "__pycache__" not in path:
                self.offences[f"opened for writing: {path[:80]}"] += 1
        elif event in ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "socket.connect", "ctypes.dlopen"):
            self.offences[event] += 1
        elif event in ("os.mkdir", "os.remove", "os.rename", "os.rmdir"):
            folder = os.readlink(f"/proc/self/fd/{arguments[-1]}") if isinstance(arguments[-1], int) and arguments[-1] >= 0 and event != "os.mkdir" else ""
            path = os.path.join(folder, str(arguments[0]))
            if not path.startswith(self._allowed):
                self.offences[f"{event}: {path[:80]}"] += 1

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self.on = True
        try:
            yield
        finally:
            self.on = False


def reason_of(error: BaseException) -> str:
    """A message without what is particular to one line."""
    text = str(error).split("\n")[0].partition(" - at ")[0].partition(" (byte ")[0]
    return f"{type(error).__name__}: {text[:60]}"


def attack(lines: int, seed: int, folder: Path) -> dict[str, Any]:
    """Read, lint and emit so many mutated lines; what came of it."""
    rng = random.Random(seed)
    operators = find_operators()
    base = originals(operators)
    audit = Audit(folder)
    refused: Counter[str] = Counter()
    read = emitted = 0
    inspect = inspector(operators)
    batch = 200
    for number in range(-(-lines // batch)):
        log = folder / "log.jsonl"
        raws = [mutated(rng.choice(base), rng) for _ in range(min(batch, lines - number * batch))]
        raws = [raw.replace(b"\n", b" ") for raw in raws]
        kept: list[bytes] = []
        for raw in raws:
            try:
                with audit.watching():
                    decode_line(raw)
                kept.append(raw)
                read += 1
            except (LogError, SchemaTooNew) as error:
                refused[reason_of(error)] += 1
        log.write_bytes(b"\n".join(kept))
        with audit.watching():
            contents = TuningLog(log).read()
            assert not contents.damage
            lint(contents, templates={}, inspect=inspect)
            entries = best_entries(contents.lines)
            assert best_text(parse_best(best_text(entries))) == best_text(entries)
            known = tuple(entry for entry in entries if entry.workload.operator in operators)
            refused["operator that is not here"] += len(entries) - len(known)
            for entry in known:
                try:
                    one = emit_package(BestFile(entries=(entry,)), operators, folder / "out", name="kernels", mode=Mode.COMPATIBLE)
                    emitted += 1
                    assert set(path.name for path in (folder / "out").iterdir()) == {"kernels"}
                    for path in one.files:
                        assert (one.folder / path).resolve().is_relative_to((folder / "out").resolve())
                except (Refused, UsageError) as error:
                    # A single line that is left out leaves nothing, and that is said with its misfit.
                    lines_said = str(error).split("\n")
                    refused["emit: " + (lines_said[1].split(":")[0].strip() if len(lines_said) > 1 else reason_of(error))] += 1
    counts = {"lines": lines, "read": read, "emitted": emitted, "refused": refused.total()}
    return {**counts, "reasons": dict(refused.most_common()), "offences": dict(audit.offences)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        result = attack(args.lines, args.seed, Path(folder).resolve())
    result["seconds"] = round(time.perf_counter() - began, 1)
    for reason, count in list(result["reasons"].items())[:25]:
        print(f"{count:8,}  {reason}")
    print({name: value for name, value in result.items() if name != "reasons"})
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "mutated_logs.json").write_text(json.dumps(result, indent=1))
    return 1 if result["offences"] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TilewrightError as error:
        sys.exit(f"a log ended the run: {error}")
