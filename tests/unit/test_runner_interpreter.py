"""The runner's promises on Triton's interpreter: what passes, what is recorded of it, and what is refused."""

import pytest

from tilewright.errors import NoDevice, UsageError
from tilewright.operator import instead_of
from tilewright.record import Status
from tilewright.runner import DeviceRunner, InterpreterRunner, Runner, refuse_on_interpreter
from tilewright.target import named_target
from tilewright.testing import FakeRunner, timed
from tilewright.workload import Workload


def test_a_right_candidate_is_checked_and_timed(interpreter_runner, vector_add):
    outcome = interpreter_runner.measure(vector_add.job())
    assert outcome.status is Status.OK, outcome.message
    assert outcome.measurement.protocol == interpreter_runner.protocol == "interpreter/1"
    assert 1 <= outcome.measurement.samples == len(outcome.measurement.times_us) <= 3
    assert outcome.measurement.min_us <= outcome.measurement.median_us <= outcome.measurement.max_us
    assert outcome.check.rel_norm < 1e-6 < outcome.check.rel_norm_allowed == 1e-3
    assert outcome.bitwise_equal is True
    assert set(outcome.phases_ms) == {"prepare", "load", "check", "ragged", "time"}


@pytest.mark.parametrize(("n", "dtype"), [(1, "float32"), (1000, "float16"), (4099, "int32")])
def test_dtypes_and_ragged_shapes(interpreter_runner, vector_add, n, dtype):
    outcome = interpreter_runner.measure(vector_add.job(workload=vector_add.workload(n, dtype)))
    assert outcome.status is Status.OK, outcome.message


def test_outputs_with_strides_of_their_own(interpreter_runner, vector_add):
    workload = vector_add.workload(1000, step=2)
    strided = vector_add.changed("tl.store(c + offsets", "tl.store(c + 2 * offsets", workload)
    assert interpreter_runner.measure(strided).status is Status.OK
    spilling = vector_add.changed(
        "tl.store(c + offsets, total", "tl.store(c + 2 * offsets + 1, total, mask=mask)\n    tl.store(c + 2 * offsets, total", workload
    )
    outcome = interpreter_runner.measure(spilling)
    assert outcome.status is Status.OUT_OF_BOUNDS and "past its end" in outcome.message


def test_scratch_is_given_as_workspace_asks(interpreter_runner, vector_add):
    text = vector_add.schedule.replace(
        "def launch(a, b, c):", "def workspace(a, b, c):\n    return [((c.numel(),), 'float32'), ((3, 5), a.dtype)]\n\ndef launch(a, b, c, s, t):"
    )
    assert_shapes = "    assert s.numel() == c.numel() and t.shape == (3, 5) and s.data_ptr() % 256 == t.data_ptr() % 256 == 0\n"
    text = text.replace("    n = c.numel()\n", assert_shapes + "    n = c.numel()\n    add_kernel[(triton.cdiv(n, 1024),)](a, b, s, n, BLOCK=1024)\n")
    outcome = interpreter_runner.measure(vector_add.job(text))
    assert outcome.status is Status.OK, outcome.message
    past = text.replace("(a, b, s, n,", "(a[:2], b[:2], t.view(-1)[14:], 2,")
    outcome = interpreter_runner.measure(vector_add.job(past))
    assert outcome.status is Status.OUT_OF_BOUNDS and "scratch 1" in outcome.message


def test_a_declared_mutation_is_allowed_and_undone(interpreter_runner, vector_add, tmp_path):
    in_place = vector_add.with_files(tmp_path / "vector_add", mutates=("a",))
    job = in_place.changed("tl.store(c + offsets", "tl.store(a + offsets, total, mask=mask)\n    tl.store(c + offsets")
    for _ in range(2):  # were `a` not given its values back, the second run of a check would differ
        assert interpreter_runner.measure(job).status is Status.OK
    other = in_place.changed("tl.store(c + offsets", "tl.store(b + offsets, total, mask=mask)\n    tl.store(c + offsets")
    assert "changed input 'b'" in interpreter_runner.measure(other).message


def test_each_check_has_inputs_of_its_own(interpreter_runner, vector_add):
    """A module that remembers a right answer must not pass with it."""
    text = (
        vector_add.schedule
        + "\nimport builtins\n"
        + "".join(
            f"{line}\n"
            for line in (
                "_right = launch",
                "def launch(a, b, c):",
                "    kept = getattr(builtins, 'kept_answer', None)",
                "    if kept is None:",
                "        _right(a, b, c)",
                "        builtins.kept_answer = c.clone()",
                "    else:",
                "        c.copy_(kept)",
            )
        )
    )
    workload = vector_add.workload(1001)
    assert interpreter_runner.measure(vector_add.job(text, workload)).status is Status.OK
    assert interpreter_runner.measure(vector_add.job(text + "# another\n", workload)).status is Status.WRONG_RESULT


def test_a_hopeless_candidate_is_cut(interpreter_runner, vector_add):
    outcome = interpreter_runner.measure(vector_add.job(cut_above_us=0.5))
    assert outcome.status is Status.CUT and outcome.measurement.samples == 1
    assert "3 times 0.5 µs" in outcome.message


def test_vendors_are_checked_too(interpreter_runner, vector_add):
    outcomes = dict(interpreter_runner.vendors(vector_add.vendor_job()))
    assert outcomes["torch.add"].status is Status.OK and outcomes["torch.add"].measurement.median_us > 0
    assert outcomes["wrong"].status is Status.WRONG_RESULT and "allowed 0.001" in outcomes["wrong"].message


def test_bfloat16_is_refused(interpreter_runner, vector_add):
    with pytest.raises(UsageError, match="use another dtype, or a GPU"):
        interpreter_runner.measure(vector_add.job(workload=vector_add.workload(dtype="bfloat16")))


@pytest.mark.parametrize(
    ("dtypes", "said"),
    [
        ({"dtype": ("bfloat16", "float16"), "other": ("float32",)}, "; use dtype=float16, or a GPU"),
        ({"dtype": ("float32", "bfloat16", "float16"), "other": ("float32",)}, "; use dtype=float32 or dtype=float16, or a GPU"),
        ({"dtype": ("bfloat16",), "other": ("float32",)}, "; use a GPU: the operator takes no other dtype"),
    ],
)
def test_only_dtypes_that_the_operator_has_are_named(dtypes, said):
    workload = Workload(operator="o", dims={"n": 1}, dtypes={"dtype": "bfloat16", "other": "float32"})
    with pytest.raises(UsageError) as raised:
        refuse_on_interpreter(workload, dtypes)
    assert str(raised.value).endswith(said)
    words = instead_of("bfloat16", dtypes).removesuffix(", or a GPU").removeprefix("use ").split(" or ")  # where it is not known whose it is
    assert sorted(words) == sorted({*dtypes["dtype"], "float32"} - {"bfloat16"})


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("return made", "return {}", "names differ"),
        ("def reference(workload, inputs):", "def reference(workload, inputs):\n    raise KeyError('gone')", "reference: KeyError: 'gone'"),
        ("def reference(workload, inputs):", "def reference(workload, inputs):\n    raise SystemExit(3)", "reference: SystemExit: 3"),
        ("to(wide)}", "to(wide) * float('nan')}", "output 'c' has no finite element"),
        ("import torch", "import torsh", "No module named 'torsh'"),
        ("torch.randn(spec.shape", "torch.randn((7,)", "SPEC.inputs says float32"),
    ],
)
def test_an_operators_own_fault_is_named_and_costs_nothing(interpreter_runner, vector_add, tmp_path, old, new, said):
    reference = (vector_add.folder / "reference.py").read_text()
    assert old in reference
    broken = vector_add.with_files(tmp_path / "vector_add", reference=reference.replace(old, new))
    with pytest.raises(UsageError, match=said):
        interpreter_runner.measure(broken.job())
    assert interpreter_runner.measure(vector_add.job()).status is Status.OK


def test_a_reference_may_come_in_eight_bits(interpreter_runner, vector_add, tmp_path):
    reference = (vector_add.folder / "reference.py").read_text()
    rough = vector_add.with_files(
        tmp_path / "vector_add",
        reference=reference.replace('inputs["a"].to(wide) + inputs["b"].to(wide)', '(inputs["a"] + inputs["b"]).to(torch.float8_e4m3fn)'),
    )
    assert rough.folder != vector_add.folder and "float8" in (rough.folder / "reference.py").read_text()
    outcome = interpreter_runner.measure(rough.job())
    assert outcome.status is Status.WRONG_RESULT and "allowed 0.001" in outcome.message


def test_target_and_toolchain(interpreter_runner):
    assert interpreter_runner.target == named_target("sm_90").interpreted()
    assert interpreter_runner.toolchain.triton.startswith("3.") and interpreter_runner.toolchain.torch


class _NoDeviceWorker:
    """A worker whose child found no device; the child's own account is tested in test_check_device.py."""

    info = {"toolchain": {}, "absent": "torch 2.13.0+cpu is built for the CPU alone"}
    closed = False

    def __init__(self, *args, **options):
        type(self).closed = False

    def close(self):
        type(self).closed = True


def test_no_device_says_what_to_do(monkeypatch):
    monkeypatch.setattr("tilewright.child_runner.Worker", _NoDeviceWorker)
    with pytest.raises(NoDevice, match="no device cuda:0: torch 2.13.0.cpu is built for the CPU alone; use --device interpreter"):
        DeviceRunner("cuda:0")
    assert _NoDeviceWorker.closed


def test_the_fake_keeps_the_protocol(vector_add):
    fake: Runner = FakeRunner(lambda job: timed(2.0) if "add_kernel" in job.source.text else 5.0, vendors={"torch.add": 3.0})
    assert fake.measure(vector_add.job()).measurement.median_us == 2.0
    assert fake.measure(vector_add.job("")).measurement.median_us == 5.0
    assert [(name, outcome.measurement.median_us) for name, outcome in fake.vendors(vector_add.vendor_job())] == [("torch.add", 3.0)]
    assert len(fake.jobs) == 2 and not fake.closed


def test_closing_is_final(vector_add):
    runner = InterpreterRunner(named_target("sm_80"))
    runner.close()
    with pytest.raises(Exception, match="closed"):
        runner.measure(vector_add.job())
