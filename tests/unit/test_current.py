"""Records of templates as they were: they do not stand before records of templates as they are."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tilewright.best import BestFile, best_entries, best_of, best_text, merge, parse_best
from tilewright.bulk import parts
from tilewright.bulk.best import best_of_files
from tilewright.cli import main
from tilewright.cover import covers
from tilewright.current import current_templates
from tilewright.dispatch import load, read_best
from tilewright.economics import savings
from tilewright.errors import ExitCode, UsageError
from tilewright.interchange.chosen import chosen_records
from tilewright.library import Operator, find_operators, shipped_templates
from tilewright.log import TuningLog, write_log
from tilewright.record import Line, Measurement, Racer, RaceRecord, Record, Status
from tilewright.target import Toolchain, named_target
from tilewright.workload import Workload

TARGET = named_target("sm_90")
WORKLOAD = Workload(operator="m", dims={"M": 16, "N": 64}, dtypes={})
TEMPLATES = {"m": frozenset({"new", "other"})}


def record(us: float, template: str, tile: int = 1, source: str = "", **changes: Any) -> Record:
    measurement = Measurement(protocol=changes.pop("protocol", "graph/1"), median_us=us, min_us=us, max_us=us)
    fields = {"workload": WORKLOAD, "target": TARGET, "status": Status.OK, "measurement": measurement, "config": {"tile": tile}}
    return Record(session="s", trial=0, template=template, source=source or f"{template}-{tile}", **{**fields, **changes})


def race(*racers: Record, winner: int = 0) -> RaceRecord:
    entered = [Racer(config=one.config, source=one.source, median_us=1.0, ratio=1.0) for one in racers]
    return RaceRecord(session="s", workload=WORKLOAD, target=TARGET, protocol="graph/1", racers=entered, winner=winner, rounds=3)


def chosen(lines: Sequence[Line], folder: Path) -> tuple[float, bool, list[str]]:
    """Time, whether a race chose it, and notes: the same from all lines in any order, and from parts of a large log."""
    said: list[str] = []
    (entry,) = best_entries(lines, TEMPLATES, said.append)
    for seed in range(3):
        shuffled = random.Random(seed).sample(list(lines), len(lines))
        assert best_entries(shuffled, TEMPLATES) == (entry,)
        log, notes = folder / f"{seed}.jsonl", list[str]()
        log.unlink(missing_ok=True)
        write_log(log, shuffled)
        assert msgspec.structs.replace(best_of_files([log], notes.append, TEMPLATES)[0], vendor=None) == entry
        assert notes == said
    return entry.median_us, entry.raced, said


def test_a_current_record_goes_before_a_faster_stale_one(tmp_path: Path) -> None:
    lines = [record(1.0, "old"), record(2.0, "older", tile=2), record(5.0, "new"), record(4.0, "other", tile=3)]
    us, _, said = chosen(lines, tmp_path)
    assert us == 4.0
    assert said == ["passed over 2 record(s) of older templates, where there are records of today's for the same workload, target and protocol"]
    assert best_entries(lines)[0].median_us == best_entries(lines, {"n": frozenset()})[0].median_us == 1.0  # the operator is not at hand


def test_a_stale_record_stands_where_none_is_current_and_right(tmp_path: Path) -> None:
    assert chosen([record(3.0, "old"), record(1.0, "older")], tmp_path) == (1.0, False, [])
    wrong = record(2.0, "new", status=Status.WRONG_RESULT, measurement=None, message="no")
    assert chosen([record(3.0, "old"), record(2.0, "new"), wrong], tmp_path) == (3.0, False, [])


def test_a_race_of_old_does_not_decide(tmp_path: Path) -> None:
    old, kept, slow, fast = record(1.0, "old"), record(2.0, "other", tile=2), record(3.0, "new", tile=3), record(1.5, "new", tile=4)
    assert chosen([old, kept, slow, race(old, kept, slow)], tmp_path)[:2] == (2.0, False)
    # `slow` has won a race of today: that the stale one beat it once puts it out no longer.
    assert chosen([old, kept, slow, fast, race(old, slow), race(slow, fast, kept)], tmp_path)[:2] == (3.0, True)
    # A comment that changed gives the template another hash, and the schedule the same code: it has won as it is.
    again = record(2.5, "new", source="old-1")
    assert chosen([old, again, fast, race(old, fast)], tmp_path)[:2] == (2.5, True)


def test_a_current_record_by_a_lesser_protocol_goes_before_a_stale_one(tmp_path: Path) -> None:
    assert chosen([record(1.0, "old", protocol="graph/2"), record(9.0, "new")], tmp_path) == (9.0, False, [])
    assert {key[2]: found.template for key, found in best_of([record(1.0, "old", protocol="graph/2"), record(9.0, "new")], TEMPLATES).items()} == {
        "graph/1": "new",
        "graph/2": "old",
    }


def test_best_files_are_merged_by_the_same_rule() -> None:
    old, new = best_entries([record(1.0, "old")]), best_entries([record(5.0, "new")])
    assert merge([*old, *new], (), TEMPLATES).entries == merge([*new, *old], (), TEMPLATES).entries == new
    assert merge([*old, *new]).entries == old


def test_a_cover_takes_no_stale_schedule_for_a_workload_that_has_others() -> None:
    wide = Workload(operator="m", dims={"M": 32, "N": 64}, dtypes={})
    records = [record(1.0, "old"), record(5.0, "new"), record(2.0, "old", workload=wide)]
    (cover,) = covers(records, max_loss=1.03, max_schedules=8, templates=TEMPLATES)
    assert {key: served.record.template for key, served in cover.served.items()} == {WORKLOAD.key: "new", wide.key: "old"}
    (cover,) = covers(records, max_loss=1.03, max_schedules=8)
    assert cover.schedules == ("old-1",)


def test_schedules_for_other_tools_are_of_templates_of_today() -> None:
    lines = [record(1.0, "old"), record(5.0, "new", tile=2), record(6.0, "new", tile=3), record(2.0, "old", tile=4)]
    assert [one.config["tile"] for one in chosen_records(lines, 5, TEMPLATES)] == [2, 3]
    assert [one.config["tile"] for one in chosen_records(lines, 5)] == [1, 4, 2, 3]


def test_gains_are_reckoned_against_a_default_of_today() -> None:
    best, new, old = record(2.0, "other", tile=2), record(8.0, "new", default=True), record(5.0, "old", default=True)
    assert [one.default_us for one in savings([best, new, old], 1.0, TEMPLATES)] == [8.0]
    assert [one.default_us for one in savings([best, old], 1.0, TEMPLATES)] == [None]  # no record of today's is the default's
    assert [one.default_us for one in savings([best, new, old], 1.0)] == [5.0]
    assert [one.default_us for one in savings([record(3.0, "old", tile=3), old], 1.0, TEMPLATES)] == [5.0]  # nothing is of today
    raced = race(best, old)
    raced.racers[1] = msgspec.structs.replace(raced.racers[1], default=True, ratio=2.5)
    assert [one.default_us for one in savings([best, new, old, raced], 1.0, TEMPLATES)] == [8.0]
    assert [one.default_us for one in savings([best, new, old, raced], 1.0)] == [5.0]
    again = record(9.0, "new", source="old-1", default=True)  # a comment changed: its code is what raced
    assert [one.default_us for one in savings([best, again, old, raced], 1.0, TEMPLATES)] == [5.0]


@pytest.fixture
def changed(tmp_path: Path) -> tuple[Path, Path, list[str]]:
    """A folder with an operator whose template was changed after tuning, a log from before and after, and its configs' times."""
    shipped = shipped_templates()
    assert shipped is not None
    folder = tmp_path / "operators"
    shutil.copytree(shipped / "rms_norm", folder / "norm")
    spec = folder / "norm" / "spec.py"
    spec.write_text(spec.read_text().replace('name="rms_norm"', 'name="norm"'))
    before = tuned(Operator(folder / "norm"), 1.0)
    for template in (folder / "norm").glob("*.py.jinja"):
        template.write_text(template.read_text().replace("def launch(", "REVISION = 2\n\n\ndef launch("))
    after = tuned(Operator(folder / "norm"), 2.0)
    log = tmp_path / "log.jsonl"
    write_log(log, [before, after])
    assert before.source != after.source
    return folder, log, [before.template, after.template]


def tuned(operator: Operator, us: float) -> Record:
    workload = operator.spec.workload("rows=16,cols=256")
    source = operator.instantiate(workload, TARGET, config := operator.space(workload, TARGET).default())
    pins = {"source": source.hash, "template": source.template_hash, "workload": workload}
    return record(us, pins.pop("template"), config=config, toolchain=Toolchain(triton="3.6.0"), **pins)  # type: ignore[arg-type]


@pytest.mark.parametrize("large", [False, True])
def test_what_was_tuned_again_is_emitted(
    changed: tuple[Path, Path, list[str]], tmp_path: Path, large: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, log, (_, new) = changed
    if large:
        monkeypatch.setattr(parts, "LARGE_BYTES", 1)
    best, emitted = tmp_path / "best.jsonl", ["--name", "kernels", "--triton", "3.6", "--strict", "--templates", str(folder)]
    assert main(["best", str(log), "-o", str(best), "--templates", str(folder)]) == 0
    assert "passed over 1 record(s) of older templates" in capsys.readouterr().err
    (entry,) = parse_best(best.read_text())
    assert (entry.pins.template, entry.median_us) == (new, 2.0)
    assert main(["emit", str(best), "-o", str(tmp_path / "from-best"), *emitted]) == 0
    assert main(["emit", str(log), "-o", str(tmp_path / "from-log"), *emitted]) == 0
    assert main(["best", str(log), "--cover", "rows", "--templates", str(folder), "--json"]) == 0
    capsys.readouterr()
    assert main(["show", str(log), "--templates", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert "REVISION = 2" in out and "renders other code" not in err
    # An old best file beside the log: what it says of the old template gives way, and is named.
    old = tmp_path / "old.jsonl"
    old.write_text(best_text(best_entries([line for line in TuningLog(log).read().lines if isinstance(line, Record) and line.template != new])))
    assert main(["best", str(old), str(log), "--templates", str(folder), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["entries"][0]["pins"]["template"] == new
    assert "conflict" in err
    assert main(["emit", str(old), "-o", str(tmp_path / "stale"), *emitted]) == ExitCode.FAILED
    assert "template changed since it was tuned" in capsys.readouterr().err


def test_load_takes_one_path_or_several_in_any_order(changed: tuple[Path, Path, list[str]], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder, log, (old, new) = changed
    alone = tmp_path / "old.jsonl"
    write_log(alone, [line for line in TuningLog(log).read().lines if isinstance(line, Record) and line.template == old])
    for logs in (str(log), log, [log], [str(log), alone], [alone, log]):
        assert [entry.pins.template for entry in load("norm", logs=logs, templates=[folder]).best.entries] == [new]
    assert [entry.pins.template for entry in load("norm", logs=alone, templates=[folder]).best.entries] == [old]
    assert read_best(log) == BestFile(entries=best_entries(TuningLog(log).read().lines), ranges=())
    assert [entry.pins.template for entry in read_best(log, current_templates(find_operators([folder]))).entries] == [new]  # as `verify` reads it


def test_templates_are_hashed_as_they_are_without_loading_anything(tmp_path: Path) -> None:
    operators = find_operators()
    assert current_templates(operators) == {name: frozenset(one.hash for one in operator.templates.values()) for name, operator in operators.items()}
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "spec.py").write_text("this is no Python")
    assert current_templates({"broken": Operator(folder)}) == {}
    (folder / "a.py.jinja").write_text("{% if")
    assert len(current_templates({"broken": Operator(folder)})["broken"]) == 1
    (folder / "b.py.jinja").write_bytes(b"\xff")
    assert len(current_templates({"broken": Operator(folder)})["broken"]) == 1


def test_best_needs_no_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.jsonl"
    write_log(log, [record(1.0, "old")])
    monkeypatch.setenv("TILEWRIGHT_TEMPLATES", str(tmp_path / "none"))
    assert main(["best", str(log)]) == 0
    assert "records of older templates are not told from today's" in capsys.readouterr().err
    assert main(["best", str(log), "--templates", str(tmp_path / "none")]) == ExitCode.USAGE
    with pytest.raises(UsageError):
        load("m", logs=[log], templates=[tmp_path / "none"])
