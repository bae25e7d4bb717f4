"""What an operator's author is told of a slip: by file and line, before anything is measured, and without harm to other operators."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.builder import BuildOutcome, BuildRequest
from tilewright.cli import main
from tilewright.errors import ExitCode, SpaceError, TemplateError, UsageError
from tilewright.inference import inference_note
from tilewright.library import Operator, find_operator, known_operator
from tilewright.observer import Observers
from tilewright.operator import OperatorSpec
from tilewright.prediction import predicted_us, try_predict
from tilewright.record import KnobInfo, Measurement, Record, RecordedSpace, Resources, Status
from tilewright.recorded import Recording
from tilewright.recorded_operator import operator_of
from tilewright.target import named_target
from tilewright.testing import FakeBuilder
from tilewright.tuner import tune
from tilewright.workload import parse_key

ROOT = Path(__file__).parents[2]
TARGET = named_target("sm_90")
SPEC = """
from tilewright.operator import OperatorSpec, TensorSpec, Tolerance
tensor = lambda workload: {"x": TensorSpec(shape=(workload.dims["M"],), dtype="float16")}
SPEC = OperatorSpec(
    name="op", summary="a test's", dims=("M",), dtypes={"dtype": ("float16",)}, arguments=("x",), inputs=tensor, outputs=tensor,
    flops=lambda w: 1.0, bytes_moved=lambda w: 1.0, tolerance=lambda w: Tolerance(rel_norm=1.0, max_error=1.0, reason="none"),
    infer=lambda t: {"M": 1}, workload_sets={"smoke": [{"M": 64}, {"M": 1}]},
)
"""
TILED = '{%- set w = cfg.define_knob("num_warps", [1, 2]) -%}\n{%- do cfg.suggest(num_warps=2) -%}\nW = {{ w }}\n\ndef launch(x, y):\n    pass\n'
PLAIN = TILED.replace("[1, 2]", "[2, 4]")


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    monkeypatch.delenv("TILEWRIGHT_TEMPLATES", raising=False)
    monkeypatch.chdir(tmp_path)

    def make(predict: str = "", spec: str = SPEC, name: str = "op", **templates: str) -> Path:
        folder = tmp_path / "ops" / name
        folder.mkdir(parents=True)
        (folder / "spec.py").write_text(spec.replace('"op"', repr(name)))
        (folder / "reference.py").write_text("")
        if predict:
            (folder / "predict.py").write_text(predict)
        for schedule, text in (templates or {"tiled": TILED}).items():
            (folder / f"{schedule}.py.jinja").write_text(text)
        return folder.parent

    return make


def body(text: str) -> str:
    return f"def predict(workload, target, config, resources):\n    {text}\n"


BROKEN = [
    (body("return 1 / 0"), r"predict\.py:2: predict raises ZeroDivisionError: division by zero .*; correct it"),
    (body("return config['nope']"), r"predict\.py:2: predict raises KeyError: 'nope'"),
    (body("raise SystemExit(3)"), r"predict\.py:2: predict raises SystemExit: 3"),
    (body("return resources.registers"), r"predict\.py:2: predict raises AttributeError"),
    (body("return 1.0 if resources is None else resources.nope"), r"predict\.py:2: predict raises AttributeError"),
    (body("return 1.0 if config['schedule'] == 'plain' else 1 / 0"), r"predict\.py:2: predict raises ZeroDivisionError"),
    (body("return 'fast'"), r"predict\.py:1: predict gives 'fast' before the build .*; it must give a time in µs"),
    (body("return True"), r"predict gives True"),
    (body("return float('nan')"), r"predict gives nan with what a build needs"),
    (body("return -1.0"), r"predict gives -1\.0"),
    (body("return 0"), r"predict gives 0 "),
    ("def predict(workload, target): return 1.0\n", r"predict\.py:1: predict raises TypeError: predict\(\) takes 2 positional arguments but 4 were given"),
    ("predct = 1\n", r"predict\.py: has no predict; did you mean 'predct'"),
    ("predict = 3\n", r"predict\.py: predict is 3; define predict\(workload, target, config, resources\)"),
    ("import tilewright.nope\n", r"predict\.py: does not load: ModuleNotFoundError"),
]


@pytest.mark.parametrize(
    ("text", "said", "command"), [*((*broken, "check") for broken in BROKEN), (*BROKEN[0], "tune"), (*BROKEN[-1], "tune"), (*BROKEN[5], "dry run")]
)
def test_a_broken_predict_is_told_before_anything_is_built(
    operator: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str, said: str, command: str
) -> None:
    root = operator(text, plain=PLAIN, tiled=TILED)
    monkeypatch.setattr("tilewright.commands.check.CompileBuilder", lambda jobs, timeout_s: FakeBuilder(lambda _: pytest.fail("nothing is built")))
    argv = ["check", "op", "-w", "M=64"] if command == "check" else ["tune", "op", "-w", "M=64", "--device", "interpreter"]
    code = main([*argv, *(["--dry-run"] if command == "dry run" else []), "--templates", str(root)])
    err = capsys.readouterr().err
    assert code == ExitCode.USAGE
    assert re.search(said, err) and "Traceback" not in err


def test_a_predict_is_tried_for_schedules_without_suggestions(operator: Callable[..., Path]) -> None:
    silent = TILED.replace("{%- do cfg.suggest(num_warps=2) -%}\n", "")
    root = operator(body("return 1.0 if config['schedule'] == 'plain' else 1 / 0"), plain=PLAIN, tiled=silent)
    found = find_operator("op", [root])
    workload = found.workload("M=64")
    with pytest.raises(UsageError, match="'schedule': 'tiled'"):
        try_predict(found.spec, workload, TARGET, found.space(workload, TARGET))


def test_check_gives_predict_what_builds_need(operator: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    root = operator(body("return 1.0 if resources is None or resources.registers is not None else 1 / 0"))
    needs: list[Resources] = [Resources(shared_memory_bytes=0, registers=8), Resources(shared_memory_bytes=0)]

    def build(request: BuildRequest) -> BuildOutcome:
        return BuildOutcome(status=Status.OK, resources=needs[0])

    monkeypatch.setattr("tilewright.commands.check.CompileBuilder", lambda jobs, timeout_s: FakeBuilder(build))
    argv = ["check", "op", "-w", "M=64", "--templates", str(root)]
    assert main(argv) == ExitCode.OK
    del needs[0]
    assert main(argv) == ExitCode.USAGE
    assert "predict raises ZeroDivisionError" in capsys.readouterr().err


def test_what_predict_may_give(operator: Callable[..., Path]) -> None:
    spec = find_operator("op", [operator()]).spec
    workload = spec.workload("M=64")
    for given in (3, 2.5, None):
        assert predicted_us(replace(spec, predict=lambda *_, given=given: given), workload, TARGET, {}, None) == given
    unknown = predicted_us(replace(spec, predict=lambda *_: float("nan")), workload, TARGET, {}, None)
    assert unknown is not None and unknown != unknown, "before the build, nothing need be said"


def test_one_broken_operator_leaves_the_others_listed(operator: Callable[..., Path], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    root = operator("predct = 1\n", name="broken")
    operator(name="sound")
    operator(name="my-op")
    operator(name="bare", spec=SPEC.replace('dims=("M",)', 'dims=("M")'))
    operator(name="twisted", tiled="{% if %}")
    (operator(name="begun") / "begun" / "spec.py").unlink()
    again = tmp_path / "again" / "sound"
    shutil.copytree(root / "sound", again)
    code = main(["operators", "--json", "--templates", str(root), "--templates", str(again)])
    listed = {(entry["name"], entry["folder"]): entry.get("error", "") for entry in json.loads(capsys.readouterr().out)}
    assert code == ExitCode.FAILED, "what cannot be used is a fault"
    assert listed["matmul", str(ROOT / "templates" / "matmul")] == listed["sound", str(root / "sound")] == ""
    assert "has no predict" in listed["broken", str(root / "broken")]
    assert "named after it" in listed["my-op", str(root / "my-op")]
    assert "dims is 'M'; it must be a tuple of names" in listed["bare", str(root / "bare")]
    assert "tiled.py.jinja" in listed["twisted", str(root / "twisted")]
    assert "no spec.py" in listed["begun", str(root / "begun")]
    assert "in two places" in listed["sound", str(again)]
    assert main(["operators", "--templates", str(root)]) == ExitCode.FAILED
    assert "broken: cannot be used" in capsys.readouterr().out
    assert main(["space", "sound", "-w", "M=64", "--templates", str(root)]) == ExitCode.OK, "nor do they stand in its way"


def test_a_folder_with_templates_and_no_spec_is_named(operator: Callable[..., Path], tmp_path: Path) -> None:
    root = operator()
    (root / "op" / "spec.py").unlink()
    for folders in ([root], [root / "op"]):
        with pytest.raises(UsageError, match=re.escape(f"{root / 'op'}: no spec.py")):
            find_operator("op", folders)
    assert known_operator("other", [root]) is None
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"empty' \(--templates\) holds no operator; name a folder that holds <operator>/spec.py"):
        find_operator("matmul", [tmp_path / "empty"])


@pytest.mark.parametrize("fault", ["import tilewright.nope\n", "predict = 3\n", body("return 1 / 0")])
def test_a_recordings_operator_is_passed_over_only_where_there_is_none(
    operator: Callable[..., Path], capsys: pytest.CaptureFixture[str], tmp_path: Path, fault: str
) -> None:
    recording = f"recorded:{ROOT / 'benchmarks' / 'data' / 'recorded_gemm_h200.jsonl.gz'}"
    argv = ["tune", "recorded_gemm", "-w", "M=4096,N=4096,K=4096", "--device", recording, "--trials", "2", "--history", "--log", str(tmp_path / "log.jsonl")]
    shutil.copytree(ROOT / "benchmarks" / "operators" / "recorded_gemm", tmp_path / "own" / "recorded_gemm", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "own" / "recorded_gemm" / "predict.py").write_text(fault)
    assert main([*argv, "--templates", str(tmp_path / "own")]) == ExitCode.USAGE
    assert "predict" in capsys.readouterr().err
    code = main(argv)
    assert code == ExitCode.OK
    assert "no operator 'recorded_gemm' here: the search goes by knobs alone" in capsys.readouterr().err
    both = [*argv, "--templates", str(tmp_path / "own"), "--templates", str(ROOT / "benchmarks" / "operators")]
    assert main(both) == ExitCode.USAGE
    assert "in two places" in capsys.readouterr().err


@pytest.mark.parametrize(
    "declaration",
    [
        '{%- set w = cfg.define_knob("num_warps", [1, 2, nun]) -%}',
        '{%- set w = cfg.define_split("w", M, candidates=[[1, nun]], policy="candidate") -%}',
        '{%- set w = cfg.define_split("w", M, max_factor=nun) -%}',
        '{%- set w = cfg.define_split("w", M, filter=nun) -%}',
        '{%- set w = cfg.define_reorder("w", ["a", nun]) -%}',
        '{%- set w = cfg.define_annotate("w", ["a"], policy="candidate", candidates=[[nun]]) -%}',
        "{%- do cfg.require(false, nun) -%}",
        '{%- set w = cfg.define_knob("num_warps", [1]) -%}{%- do cfg.suggest(num_warps=nun) -%}',
        '{%- set w = cfg.define_split("num_warps", M) -%}{%- do cfg.suggest(num_warps=[1, nun]) -%}',
    ],
)
def test_an_undefined_name_in_a_declaration_is_named(operator: Callable[..., Path], declaration: str) -> None:
    found = find_operator("op", [operator(tiled="{%- set nu = 1 -%}\n" + declaration + "\ndef launch(x, y):\n    pass\n")])
    with pytest.raises(TemplateError, match=r"tiled\.py\.jinja:2: 'nun' is undefined; did you mean 'nu'"):
        found.space(found.spec.workload("M=64"), TARGET).default()


def test_a_declarations_error_says_at_which_workload(operator: Callable[..., Path]) -> None:
    tiled = '{%- set w = cfg.define_split("w", M, policy="power2", min_factor=16, max_factor=[M, 64]|min) -%}\ndef launch(x, y):\n    pass\n'
    root = operator(tiled=tiled)
    found = find_operator("op", [root])
    with pytest.raises(SpaceError, match=re.escape("split 'w': max_factor=1 is below min_factor=16 (at M=1, dtype=float16 for sm_90)")):
        for workload in found.spec.workload_set("smoke"):
            found.space(workload, TARGET)
    (root / "op" / "tiled.py.jinja").write_text(TILED.replace("{%- do", '{%- do cfg.require(M > 1, "too small") -%}\n{%- do'))
    found = Operator(found.folder)
    with pytest.raises(SpaceError, match="the space is empty at op:M=1,dtype=float16 for sm_90: no point is legal"):
        found.space(found.spec.workload("M=1"), TARGET).default()


def test_an_author_chooses_whose_suggestion_is_the_default(operator: Callable[..., Path], tmp_path: Path) -> None:
    root = operator(plain=PLAIN, tiled=TILED)
    by_name = Operator(root / "op")
    workload = by_name.spec.workload("M=64")
    assert [config["schedule"] for config in by_name.space(workload, TARGET).suggestions()] == ["plain", "tiled"]
    (root / "op" / "spec.py").write_text(SPEC.replace('arguments=("x",)', 'arguments=("x",), schedules=("tiled",)'))
    chosen = Operator(root / "op").space(workload, TARGET)
    assert chosen.default() == {"schedule": "tiled", "num_warps": 2}
    assert [config["schedule"] for config in chosen.suggestions()] == ["tiled", "plain"]
    (root / "op" / "spec.py").write_text(SPEC.replace('arguments=("x",)', 'arguments=("x",), schedules=("tild",)'))
    with pytest.raises(UsageError, match=r"spec\.py: schedules names 'tild', of which there is no template; did you mean 'tiled'"):
        Operator(root / "op").space(workload, TARGET)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("M=16 N=16 K=16", "use commas between parameters, as in M=16,N=16,K=16"),
        ("M=16; N=16; K=16", "use commas between parameters, as in M=16,N=16,K=16"),
        ("M=1,N=1,K=99999999999999999999", "K=99999999999999999999 is more than 64 bits hold"),
        ("M=1,N=1,K=1,dtype=fp16", "did you mean 'float16'?"),
        ("M=1,N=1,K=1,dtype=bf16", "did you mean 'bfloat16'?"),
        ("M=1,N=1,K=1,dtype=fp32", "did you mean 'float32'?"),
        ("M=1,N=1,K=1,dtype=xyz", "'xyz' is not supported; one of: float16"),
    ],
)
def test_a_slip_in_a_workload_is_named(parameters: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        find_operator("matmul").spec.workload(parameters)


def test_the_largest_extent_is_taken() -> None:
    assert find_operator("matmul").spec.workload(f"M=1,N=1,K={2**63 - 1}").dims["K"] == 2**63 - 1


@pytest.mark.parametrize("field", ["dims", "arguments", "mutates", "schedules"])
def test_a_word_for_a_tuple_is_refused(operator: Callable[..., Path], field: str) -> None:
    spec: OperatorSpec = find_operator("op", [operator()]).spec
    with pytest.raises(UsageError, match=f"operator op: {field} is 'x'; it must be a tuple of names"):
        replace(spec, **{field: "x"})
    with pytest.raises(UsageError, match=re.escape("dtypes['dtype'] is 'float16'")):
        replace(spec, dtypes={"dtype": "float16"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, r"/op/reference\.py is missing; write it, with make_inputs\(workload, specs, generator, device\)"),
        ("def make_input(*_): pass\n", r"/op/reference\.py defines no function make_inputs; define make_inputs\("),
        ("import nope_nope\n", r"ModuleNotFoundError: No module named 'nope_nope' \(at .*/op/reference\.py:1\)"),
        ("x = 1\ndef f(:\n", r"SyntaxError: .*\(at .*/op/reference\.py:2\)"),
    ],
)
def test_what_is_wrong_with_a_reference_is_said_by_its_file(operator: Callable[..., Path], text: str | None, said: str) -> None:
    torch = pytest.importorskip("torch")
    from tilewright.children.failure import OperatorFault
    from tilewright.children.operands import Operands

    folder = operator() / "op"
    (folder / "reference.py").unlink()
    if text is not None:
        (folder / "reference.py").write_text(text)
    workload = Operator(folder).spec.workload("M=16")
    with pytest.raises(OperatorFault, match=said) as caught:
        Operands(operator="op", folder=folder, workload=workload, seed=0, device=torch.device("cpu"), l2_bytes=1)
    assert "<frozen" not in str(caught.value)


def test_show_names_a_parameter_that_no_workload_has(capsys: pytest.CaptureFixture[str]) -> None:
    log = next((ROOT / "benchmarks" / "data").glob("softmax_h200.jsonl.gz"))
    assert main(["show", str(log), "Q=7"]) == ExitCode.USAGE
    assert "has a parameter 'Q'; one of: " in capsys.readouterr().err


def test_a_predict_of_other_knobs_than_those_recorded_is_left_aside(operator: Callable[..., Path], tmp_path: Path) -> None:
    root = operator(body("return float(config['tile_nope'])"), plain=PLAIN)
    found = find_operator("op", [root])
    workload = found.workload({"M": 64})
    times = Measurement(protocol="graph/3", median_us=2.0, min_us=2.0, max_us=2.0)
    records = [
        Record(session="s", trial=trial, workload=workload, target=TARGET, config={"BM": 16 << trial}, status=Status.OK, measurement=times)
        for trial in range(3)
    ]
    recording = Recording([RecordedSpace(session="s", operator="op", knobs=[KnobInfo(name="BM", candidates=[16, 32, 64])]), *records], "recorded.jsonl")
    spec, note = operator_of(recording, [root])
    assert spec is not None and spec.predict is None and spec.name == "op"
    assert re.search(r"predict raises KeyError: 'tile_nope'.*the search goes by the general estimate", note)
    (root / "op" / "predict.py").write_text(body("return 1 / 0"))
    with pytest.raises(UsageError, match="ZeroDivisionError"):
        operator_of(recording, [root])


def test_infinity_of_a_predict_is_a_config_that_cannot_run(operator: Callable[..., Path]) -> None:
    spec = find_operator("op", [operator(body("return float('inf')"), plain=PLAIN)]).spec
    workload = parse_key("op:M=64,dtype=float16")
    assert predicted_us(spec, workload, TARGET, {"num_warps": 2}, None) is None


MODAL = SPEC.replace('dtypes={"dtype": ("float16",)}', 'dtypes={"dtype": ("float16",)}, layouts={"causal": ("yes", "no")}').replace(
    'infer=lambda t: {"M": 1}', 'infer=lambda t: {"M": t["x"].shape[0]}'
)


def test_a_mode_that_tensors_do_not_show_is_told_once(
    operator: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = operator(spec=MODAL)
    monkeypatch.setattr("tilewright.commands.check.CompileBuilder", lambda jobs, timeout_s: FakeBuilder())
    hidden = "tilewright.load takes a call of op:M=64,dtype=float16,causal=no for op:M=64,dtype=float16,causal=yes"
    several = ["-w", "M=64,causal=no", "-w", "M=64,causal=yes", "-w", "M=32,causal=no"]
    for command in (["check", "op", *several, "--target", "sm_90", "--target", "sm_80"], ["tune", "op", *several, "--dry-run", "--device", "interpreter"]):
        assert main([*command, "--templates", str(folder)]) == 0, "a note, and no error"
        (said,) = [line for line in capsys.readouterr().err.splitlines() if "tilewright.load" in line]
        assert f"{hidden}, and 1 more workload(s) for others: `infer` does not see causal in the tensors; docs/authoring.md" in said
        assert main([*command[:2], "-w", "M=64", "-w", "M=1", *command[8:], "--templates", str(folder)]) == 0
        assert "tilewright.load" not in capsys.readouterr().err


def test_tune_tells_its_observer_of_such_a_mode(operator: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(Observers, "note", lambda self, text: told.append(text))
    monkeypatch.setattr("tilewright.tuner.Session", lambda **options: object())
    with pytest.raises(AttributeError, match="run"):  # an object is no session
        tune("op", ["M=8,causal=no", "M=4,causal=no"], device="interpreter", templates=[operator(spec=MODAL)])
    assert ["does not see causal" in text for text in told] == [True]


def test_what_infer_makes_of_a_workloads_own_tensors(operator: Callable[..., Path]) -> None:
    spec = Operator(operator(spec=MODAL) / "op").spec
    assert inference_note(spec, [spec.workload("M=8"), spec.workload("M=1")]) == ""
    assert "does not see causal" in inference_note(spec, [spec.workload("M=8"), spec.workload("M=8,causal=no")])
    broken = replace(spec, infer=lambda tensors: {"M": 1 // 0})
    assert inference_note(broken, [spec.workload("M=8,causal=no")]) == "", "told where it is asked for"
    unseen = replace(spec, infer=lambda tensors: {"M": 16, "causal": "no"})
    assert "does not see M, causal" in inference_note(unseen, [spec.workload("M=8")])


@pytest.mark.parametrize("name", ["matmul", "rms_norm", "softmax"])
def test_shipped_operators_tell_their_workloads_from_tensors(name: str) -> None:
    spec = find_operator(name).spec
    assert inference_note(spec, [workload for chosen in spec.workload_sets for workload in spec.workload_set(chosen)]) == ""
