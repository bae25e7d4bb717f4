"""What a build refuses and lets pass in each mode, and values of a log that try to be more than data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tilewright.aliases import ALIASES, is_named, select
from tilewright.best import BestEntry, BestFile, BestRange, Pins, Step, best_text, entry_text, parse_best
from tilewright.cli import main
from tilewright.emit import Misfit, Mode, Refused, emit_package
from tilewright.errors import ExitCode, LogError, UsageError
from tilewright.library import Operator, find_operators
from tilewright.target import Target, named_target
from tilewright.workload import Workload

TARGET = named_target("sm_90")
OPERATORS = find_operators()
H200 = replace(TARGET, name="NVIDIA H200", memory_bytes=150109880320, pci_id="0x2335", power_limit_w=700)


def entry(parameters: str = "rows=16,cols=256", name: str = "rms_norm", target: Target = TARGET, **changes: Any) -> BestEntry:
    operator = OPERATORS[name]
    workload = operator.spec.workload(parameters)
    config = operator.space(workload, target).default()
    source = operator.instantiate(workload, target, config)
    pins = Pins(protocol="graph/1", source=source.hash, template=source.template_hash, triton="3.6", driver="580")
    return msgspec.structs.replace(BestEntry(workload=workload, target=target, config=config, median_us=1.0, pins=pins), **changes)


def pinned(**pins: str) -> BestEntry:
    made = entry()
    return msgspec.structs.replace(made, pins=msgspec.structs.replace(made.pins, **pins))


def build(tmp_path: Path, entries: list[BestEntry], mode: Mode, operators: dict[str, Operator] = OPERATORS, **options: Any) -> Any:
    return emit_package(BestFile(entries=tuple(entries)), operators, tmp_path / "out", name="kernels", mode=mode, triton="3.6", **options)


def refused(tmp_path: Path, entries: list[BestEntry], mode: Mode, **options: Any) -> str:
    with pytest.raises(Refused) as error:
        build(tmp_path, entries, mode, **options)
    assert not (tmp_path / "out").exists()
    return str(error.value)


MISSING = OPERATORS["rms_norm"].spec.workload("rows=17,cols=256")
ILLEGAL = entry(config={**entry().config, "num_warps": 3})
UNREACHABLE = entry(workload=Workload(operator="rms_norm", dims={"rows": 16, "cols": 256, "depth": 2}, dtypes={"dtype": "float16"}))


@pytest.mark.parametrize(
    ("entries", "options", "misfit", "said", "passes"),
    [
        (
            [entry()],
            {"required": [MISSING]},
            Misfit.MISSING,
            r"rows=17.*nearest: rms_norm:cols=256,rows=16.* differs in rows \(17, not 16\)",
            {Mode.COMPATIBLE},
        ),
        ([pinned(source="f" * 64)], {}, Misfit.STALE, "target or rendering changed since it was tuned: source .*, recorded ffffffffffff", {Mode.COMPATIBLE}),
        ([pinned(source="f" * 64, template="e" * 64)], {}, Misfit.STALE, "template changed since it was tuned", {Mode.COMPATIBLE}),
        ([pinned(triton="3.7")], {}, Misfit.TRITON, "tuned with Triton 3.7, and this build is for 3.6", {Mode.DEFAULT, Mode.COMPATIBLE}),
        ([entry(), ILLEGAL], {}, Misfit.ILLEGAL, "knob 'num_warps': 3 is no candidate", {Mode.COMPATIBLE}),
        ([entry(), UNREACHABLE], {}, Misfit.UNREACHABLE, "unknown workload parameter 'depth'", {Mode.DEFAULT, Mode.COMPATIBLE}),
    ],
    ids=["missing", "stale rendering", "stale template", "triton", "illegal", "unreachable"],
)
def test_each_mode_refuses_or_lets_pass(
    tmp_path: Path, entries: list[BestEntry], options: dict[str, Any], misfit: Misfit, said: str, passes: set[Mode]
) -> None:
    import re

    for mode in Mode:
        if mode in passes:
            emitted = build(tmp_path / mode, entries, mode, **options)
            ((found, message),) = emitted.plan.relaxed
            assert found is misfit
            assert re.search(said, message)
            assert f"{misfit}: " in (emitted.folder / "manifest.json").read_text()  # what was let pass is on record
        else:
            message = refused(tmp_path / mode, entries, mode, **options)
            assert re.search(f"{misfit}: .*{said}", message)
            assert f"({mode} mode)" in message


def test_all_reasons_are_named_at_once(tmp_path: Path) -> None:
    message = refused(tmp_path, [pinned(triton="3.7"), ILLEGAL, UNREACHABLE], Mode.STRICT, required=[MISSING])
    assert message.startswith("4 reason(s) not to emit (strict mode). --compatible lets all of it pass, logged.")


def test_a_comment_in_a_template_stales_nothing(tmp_path: Path) -> None:
    build(tmp_path, [pinned(template="e" * 64)], Mode.STRICT)  # another text, the same code


def test_an_entry_that_defaults_would_complete_is_reached_by_no_call(tmp_path: Path) -> None:
    bare = entry(workload=Workload(operator="rms_norm", dims={"rows": 16, "cols": 256}, dtypes={}))
    message = refused(tmp_path, [bare], Mode.STRICT)
    assert "calls ask for rms_norm:cols=256,rows=16,dtype=float16, which differs in dtype (absent, not float16)" in message


def test_an_unknown_operator_is_no_relaxation(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="operator 'rms_norm', and there is none here"):
        build(tmp_path, [entry()], Mode.COMPATIBLE, operators={"softmax": OPERATORS["softmax"]})
    with pytest.raises(UsageError, match="nothing is left to emit"):
        build(tmp_path, [ILLEGAL], Mode.COMPATIBLE)
    with pytest.raises(UsageError, match="nothing to emit"):
        build(tmp_path, [], Mode.STRICT)


def spread(low: int, high: int, at: int, default: bool = False, dim: str = "rows", parameters: str = "rows={},cols=256") -> BestRange:
    tuned = entry(parameters.format(at))
    rest = replace(tuned.workload, dims={name: extent for name, extent in tuned.workload.dims.items() if name != dim})
    step = Step(low=low, high=high, at=at, config=tuned.config, pins=tuned.pins)
    beyond = Step(low=high + 1, high=2**31 - 1, at=at, config=tuned.config, pins=tuned.pins)
    return BestRange(workload=rest, target=TARGET, dim=dim, steps=[step], tuned=[at], default=beyond if default else None)


def emitted(tmp_path: Path, line: BestRange, mode: Mode, *required: str) -> Any:
    wanted = [OPERATORS["rms_norm"].spec.workload(text) for text in required]
    entries = (entry("rows=1,cols=64"),)  # something that is left
    return emit_package(BestFile(entries=entries, ranges=(line,)), OPERATORS, tmp_path / "out", name="kernels", mode=mode, triton="3.6", required=wanted)


def test_a_default_serves_the_holes_of_a_range_too(tmp_path: Path) -> None:
    # As the dispatcher has it: extents in no step go to the default, those below the first step too.
    for rows in (3, 8, 9, 16, 17, 4096):
        emitted(tmp_path, spread(9, 16, 16, default=True), Mode.STRICT, f"rows={rows},cols=256")
    with pytest.raises(Refused, match="rows=8"):
        emitted(tmp_path, spread(9, 16, 16), Mode.STRICT, "rows=8,cols=256")


def test_a_range_reaches_no_further_than_its_schedule_is_legal(tmp_path: Path) -> None:
    # A row of 256 fits one pass of 256 columns; one of 300 does not.
    line = spread(200, 300, 256, default=True, dim="cols", parameters="rows=16,cols={}")
    assert emitted(tmp_path, spread(200, 256, 256, dim="cols", parameters="rows=16,cols={}"), Mode.STRICT).plan.relaxed == ()
    for mode in (Mode.STRICT, Mode.DEFAULT):
        with pytest.raises(Refused, match=r"illegal: .*: cols 200\.\.300: the schedule tuned at cols=256 is not legal at cols=\d+, or is another module there"):
            emitted(tmp_path, line, mode)
    package = emitted(tmp_path, line, Mode.COMPATIBLE)
    ((_, names, default),) = package.plan.operators["rms_norm"].ranges
    assert names == [""] and default == "", "extents of a step left out are a miss: their default was never asked for them"


def test_no_path_of_the_machine_is_in_a_manifest(tmp_path: Path) -> None:
    build(tmp_path, [entry(), ILLEGAL], Mode.COMPATIBLE)
    manifest = (tmp_path / "out" / "kernels" / "manifest.json").read_text()
    assert "rms_norm/one_pass.py.jinja:" in manifest and str(OPERATORS["rms_norm"].folder.parent) not in manifest


def test_targets_are_told_apart_by_identity_and_never_by_name() -> None:
    assert [name for name in ALIASES if is_named(name, H200)] == ["h200-sxm"]
    nvl = replace(H200, pci_id="0x233b", power_limit_w=600)  # the same marketing name
    assert [name for name in ALIASES if is_named(name, nvl)] == ["h200-nvl"]
    slice_ = replace(H200, mig_profile="1g.18gb", sm_count=16, memory_bytes=18 * 2**30)
    assert not is_named("h200-sxm", slice_)
    assert is_named("h200-sxm/1g.18gb", slice_)
    assert not is_named("h200-sxm/1g.18gb", H200)
    assert not is_named("h200-sxm", replace(H200, power_limit_w=500))
    assert is_named("sm_90", nvl) and not is_named("sm_80", nvl)
    assert select("h200-sxm", [nvl, H200]) == [H200]
    with pytest.raises(UsageError, match=r"NVIDIA H200 differs in pci_id \('0x233b', not '0x2335'\), power_limit_w \(600, not 700\)"):
        select("h200-sxm", [nvl])
    with pytest.raises(UsageError, match=r"differs in mig_profile \('1g.18gb', not ''\)|differs in .*mig_profile"):
        select("h200-sxm", [slice_])
    with pytest.raises(UsageError, match="unknown target 'h200'; did you mean"):
        is_named("h200", H200)


def test_only_one_target_may_be_emitted(tmp_path: Path) -> None:
    entries = [entry(target=H200), entry(target=replace(H200, pci_id="0x233b", power_limit_w=600))]
    emitted = build(tmp_path, entries, Mode.STRICT, target="h200-nvl")
    assert [target.pci_id for target in emitted.plan.targets] == ["0x233b"]


# Values that would do harm if they were rendered, formatted, evaluated or used as a path.
ATTEMPTS = {
    "a Jinja expression": "{{ cfg.__init__.__globals__ }}",
    "a Jinja statement": "{% include '/etc/passwd' %}",
    "Python that ends the call": "4)\n    __import__('os').system('touch PWNED')\n    (",
    "a Python expression": "__import__('os').system('touch PWNED')",
    "a path upwards": "../../../etc/passwd",
    "an absolute path": "/tmp/PWNED.py",
    "a format field": "{0.__class__}",
    "a null byte": "pointers\x00.py",
    "a lone quote": "'''",
}


def _config(value: str) -> dict[str, Any]:
    return {"config": {**entry().config, "num_warps": value}}


def _knob(value: str) -> dict[str, Any]:
    return {"config": {**entry().config, value: 4}}


def _split(value: str) -> dict[str, Any]:
    return {"config": {**entry().config, "tile_rows": [value, 1]}}


def _schedule(value: str) -> dict[str, Any]:
    return {"config": {**entry().config, "schedule": value}}


@pytest.mark.parametrize("where", [_config, _knob, _split, _schedule], ids=["a value", "a knob's name", "a part of a split", "a schedule"])
@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS)
def test_a_config_is_matched_with_candidates_before_anything_is_rendered(tmp_path: Path, where: Any, attempt: str) -> None:
    spoiled = entry(**where(attempt))
    best = tmp_path / "best.jsonl"
    best.write_text(f"{entry_text(spoiled)}\n")  # as a best file that came from elsewhere
    assert parse_best(best.read_text()) == (spoiled,)
    assert main(["emit", str(best), "-o", str(tmp_path / "out"), "--triton", "3.6"]) == ExitCode.FAILED
    assert main(["emit", str(best), "-o", str(tmp_path / "out"), "--triton", "3.6", "--compatible"]) == ExitCode.USAGE  # nothing is left
    assert {path.name for path in tmp_path.iterdir()} == {"best.jsonl"}


@pytest.mark.parametrize("field", ["operator", "dim", "dtype", "dtype name"])
@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS)
def test_a_workload_is_matched_with_the_spec(tmp_path: Path, field: str, attempt: str) -> None:
    builtins = msgspec.to_builtins(entry())
    workload = builtins["workload"]
    if field == "operator":
        workload["operator"] = attempt
    elif field == "dim":
        workload["dims"] = {"rows": 16, "cols": 256, attempt: 4}
    elif field == "dtype":
        workload["dtypes"] = {"dtype": attempt}
    else:
        workload["dtypes"] = {attempt: "float16"}
    best = tmp_path / "best.jsonl"
    best.write_bytes(msgspec.json.encode(builtins) + b"\n")
    with pytest.raises(LogError, match="not an entry of a best file"):
        parse_best(best.read_text())
    assert main(["emit", str(best), "-o", str(tmp_path / "out"), "--compatible"]) == ExitCode.LOG
    assert {path.name for path in tmp_path.iterdir()} == {"best.jsonl"}


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS)
def test_labels_are_text_wherever_they_stand(tmp_path: Path, attempt: str) -> None:
    """A device's name and a protocol are free text: they are emitted as literals, and nothing comes of them."""
    made = entry(target=replace(TARGET, name=attempt))
    made = msgspec.structs.replace(made, pins=msgspec.structs.replace(made.pins, protocol=attempt, driver=attempt))
    best = tmp_path / "best.jsonl"
    best.write_text(best_text([made]))
    assert main(["emit", str(best), "-o", str(tmp_path / "out"), "--name", "kernels", "--triton", "3.6", "--strict"]) == 0
    scope: dict[str, Any] = {}
    exec(compile((tmp_path / "out" / "kernels" / "_table.py").read_text(), "_table.py", "exec"), scope)
    assert scope["TARGETS"][0]["name"] == attempt
    (row,) = scope["TABLES"]["rms_norm"]["entries"]
    assert row["pins"]["protocol"] == attempt
    for path in (tmp_path / "out").rglob("*.py"):
        if path.name != "_table.py":
            assert attempt not in path.read_text() or attempt == "'''"
    assert {path.name for path in tmp_path.iterdir()} == {"best.jsonl", "out"}
