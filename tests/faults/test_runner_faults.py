"""Each fault of a candidate ends in one status, and the next candidate is measured as if nothing had been."""

import os
import re
import signal
import time

import pytest

from tilewright.errors import HostError, UsageError
from tilewright.record import Status
from tilewright.runner import InterpreterRunner
from tilewright.target import named_target


def test_each_fault_has_its_status(interpreter_runner, vector_add, candidate_fault):
    workload = vector_add.workload(3000)
    outcome = interpreter_runner.measure(vector_add.changed(candidate_fault.old, candidate_fault.new, workload))
    assert outcome.status is candidate_fault.status, outcome
    assert re.search(candidate_fault.said, outcome.message), outcome.message
    assert outcome.measurement is None
    after = interpreter_runner.measure(vector_add.job(workload=workload))
    assert after.status is Status.OK, after.message


def test_unwritten_integers_are_found(interpreter_runner, vector_add):
    """Integers have no NaN: what is left unwritten must differ from the reference by its poison."""
    outcome = interpreter_runner.measure(vector_add.changed("[(triton.cdiv(n, 1024),)]", "[(2,)]", vector_add.workload(3000, "int32")))
    assert outcome.status is Status.WRONG_RESULT


def test_a_child_killed_between_jobs_costs_no_candidate(interpreter_runner, vector_add):
    assert interpreter_runner.measure(vector_add.job()).status is Status.OK
    os.kill(interpreter_runner._worker.pid, signal.SIGKILL)
    time.sleep(0.1)
    assert interpreter_runner.measure(vector_add.job()).status is Status.OK


def test_a_wrong_verdict_on_spoiled_references_is_taken_back(interpreter_runner, vector_add):
    """A candidate that writes over the cached reference must not make the next one look wrong."""
    workload = vector_add.workload(3000)
    reaching = "import gc\nfrom tilewright.children.operands import Operands\n"
    text = (
        vector_add.schedule
        + reaching
        + "".join(
            f"{line}\n"
            for line in (
                "_right = launch",
                "def launch(a, b, c):",
                "    _right(a, b, c)",
                "    for thing in gc.get_objects():",
                "        if isinstance(thing, Operands):",
                "            thing._uses_left = 5",
                "            thing.spoil = lambda: None",
                "            thing.expectations['the reference']['c'].zero_()",
            )
        )
    )
    assert interpreter_runner.measure(vector_add.job(text, workload)).status is Status.WRONG_RESULT
    assert interpreter_runner.measure(vector_add.job(workload=workload)).status is Status.OK


def test_right_at_its_own_extents_and_wrong_at_a_ragged_neighbour(interpreter_runner, vector_add):
    """A grid that counts whole blocks alone is right for multiples of them."""
    text = vector_add.schedule.replace("triton.cdiv(n, 1024),", "n // 1024,")
    workload, ragged = vector_add.workload(2048), vector_add.workload(2032)
    assert interpreter_runner.measure(vector_add.job(text, workload)).status is Status.OK
    outcome = interpreter_runner.measure(vector_add.job(text, workload, neighbours=(ragged,)))
    assert outcome.status is Status.WRONG_RESULT and outcome.measurement is None
    assert re.search("right at its own extents, and at N=2032: .*1,008 of 2,032 elements were never written", outcome.message), outcome.message
    after = interpreter_runner.measure(vector_add.job(workload=workload, neighbours=(ragged,)))
    assert after.status is Status.OK and after.check.ragged == ragged.key


def test_a_neighbour_that_the_operator_refuses_is_nobodys_fault(interpreter_runner, vector_add):
    refused = vector_add.workload(2032, "bfloat16")  # which the interpreter computes wrongly
    outcome = interpreter_runner.measure(vector_add.job(workload=vector_add.workload(2048), neighbours=(refused,)))
    assert outcome.status is Status.OK and outcome.check.ragged == ""


RACING = "\ncalls = []\nright = launch\n\ndef launch(a, b, c):\n    right(a, b, c)\n    calls.append(1)\n    c.add_(1e-4 * len(calls))\n"


def test_two_runs_must_agree_to_the_bit_unless_atomics_are_declared(interpreter_runner, vector_add):
    outcome = interpreter_runner.measure(vector_add.job(vector_add.schedule + RACING))
    assert outcome.status is Status.WRONG_RESULT
    assert re.search(r"two runs on the same inputs differ: output 'c' in [\d,]+ of 1,000 elements, first at \[\d+\]: .* ATOMICS = True", outcome.message)
    declared = interpreter_runner.measure(vector_add.job(vector_add.schedule + RACING + "\nATOMICS = True\n"))
    assert declared.status is Status.OK and declared.bitwise_equal is False
    # Within tolerance all the same.
    wild = interpreter_runner.measure(vector_add.job(vector_add.schedule + RACING.replace("1e-4", "10.0") + "\nATOMICS = True\n"))
    assert wild.status is Status.WRONG_RESULT and "allowed 0.001" in wild.message


SCRATCH = """
_right = launch

def workspace(a, b, c):
    return [((c.numel(),), "float32")]

def launch(a, b, c, s):
    _right(a, b, c)
    FILL
    c.add_(s)
"""


def test_scratch_that_nobody_wrote_is_seen(interpreter_runner, vector_add):
    outcome = interpreter_runner.measure(vector_add.job(vector_add.schedule + SCRATCH.replace("FILL", "")))
    assert outcome.status is Status.WRONG_RESULT and "scratch that nobody wrote" in outcome.message
    assert interpreter_runner.measure(vector_add.job(vector_add.schedule + SCRATCH.replace("FILL", "s.zero_()"))).status is Status.OK


def test_scratch_that_nobody_wrote_is_told_from_other_faults(interpreter_runner, vector_add):
    """A device's sums give one NaN for all, so that the poison's bits do not show."""
    plain = "c.copy_(c.where(~c.isnan(), float('nan')))\n"
    reading = SCRATCH.replace("FILL", "").rstrip() + f"\n    {plain}"
    outcome = interpreter_runner.measure(vector_add.job(vector_add.schedule + reading))
    assert outcome.status is Status.WRONG_RESULT and "elements are NaN" in outcome.message and "it reads scratch that nobody wrote" in outcome.message
    # Wrong, with scratch that it does write.
    wrong = SCRATCH.replace("FILL", "s.zero_(); c.add_(1)")
    outcome = interpreter_runner.measure(vector_add.job(vector_add.schedule + wrong))
    assert outcome.status is Status.WRONG_RESULT and "nobody wrote" not in outcome.message


def test_garbage_on_the_wire_is_a_crash_and_a_flood_on_stdout_is_nothing(interpreter_runner, vector_add):
    write = "    import os, sys; os.write(int(sys.argv[sys.argv.index('--fd-out') + 1]), b'Segmentation fault?\\n')\n    n = c.numel()\n"
    outcome = interpreter_runner.measure(vector_add.changed("    n = c.numel()\n", write))
    assert outcome.status is Status.CRASH and "Segmentation fault?" in outcome.message
    flood = "    import os\n    for _ in range(25):\n        os.write(1, b'x' * 2**20)\n    n = c.numel()\n"
    assert interpreter_runner.measure(vector_add.changed("    n = c.numel()\n", flood)).status is Status.OK


LEFT_BEHIND = {
    "a_fork_that_goes_on": "import os; os.fork()",
    "another_environment": "import os; os.environ.clear(); os.environ.update(TRITON_INTERPRET='0', TRITON_CACHE_DIR='/proc/nowhere')",
    "a_folder_that_is_gone": "import os, tempfile; os.chdir(tempfile.mkdtemp()); os.rmdir(os.getcwd())",
    "another_default_dtype_and_device": "import torch; torch.set_default_dtype(torch.float64); torch.set_default_device('meta')",
    "few_frames": "import sys; sys.setrecursionlimit(80)",
    "an_alarm": "import signal; signal.setitimer(signal.ITIMER_REAL, 0.6)",
    "a_thread_that_ends_the_process": "import os, threading; threading.Timer(0.6, os._exit, [9]).start()",
    "no_stdout": "import sys; sys.stdout = None",
}


@pytest.mark.parametrize("code", LEFT_BEHIND.values(), ids=LEFT_BEHIND)
def test_what_a_launch_leaves_behind_is_not_the_next_ones_to_bear(interpreter_runner, vector_add, code):
    once = f"    if not globals().get('done'):\n        globals()['done'] = True\n        {code}\n    n = c.numel()\n"
    assert interpreter_runner.measure(vector_add.changed("    n = c.numel()\n", once)).status is Status.OK
    for number in range(2):
        after = interpreter_runner.measure(vector_add.job(f"{vector_add.schedule}# {number}\n"))
        assert after.status is Status.OK, after.message
        time.sleep(0.35)  # an alarm or a thread would go off


@pytest.mark.parametrize("then", ["pass", "while True: pass"], ids=["and_goes_on", "and_hangs"])
def test_a_grandchild_in_a_session_of_its_own_is_ended_too(interpreter_runner, vector_add, is_running, then):
    """Killing the child's group alone would leave it."""
    code = f"    import subprocess\n    subprocess.Popen(['sleep', '86395'], start_new_session=True)\n    {then}\n    n = c.numel()\n"
    outcome = interpreter_runner.measure(vector_add.changed("    n = c.numel()\n", code))
    assert outcome.status is (Status.OK if then == "pass" else Status.RUN_TIMEOUT)
    assert then != "pass" or outcome.message == "it left child processes behind: its process is replaced"
    assert interpreter_runner.measure(vector_add.job()).status is Status.OK
    assert not is_running("sleep", "86395")


def test_a_cache_folder_that_cannot_be_written_is_no_candidates_fault(vector_add, tmp_path):
    (tmp_path / "sources").write_text("a file, where a folder should be")
    unwritable = InterpreterRunner(named_target("sm_90"), cache_dir=tmp_path, timeout_s=60.0)
    with unwritable as runner, pytest.raises(HostError, match="cannot write.*TILEWRIGHT_CACHE"):
        runner.measure(vector_add.job())


WITHOUT_REFERENCE = """
import torch

def make_inputs(workload, specs, generator, device):
    return {name: torch.randn(spec.shape, generator=generator, device=device) for name, spec in specs.items()}

VENDORS = {VENDORS}
"""


def test_without_a_reference_only_what_agrees_with_a_trusted_candidate_may_win(interpreter_runner, vector_add, tmp_path):
    """The cluster around a vendor, or without one around the author's default."""
    vendor = "{'sum': lambda workload, inputs: inputs['a'] + inputs['b'], 'nan': lambda workload, inputs: inputs['a'] * float('nan')}"
    trusting = vector_add.with_files(tmp_path / "vendor", reference=WITHOUT_REFERENCE.replace("{VENDORS}", vendor))
    assert interpreter_runner.measure(trusting.job()).status is Status.OK
    outcome = interpreter_runner.measure(trusting.changed("total, mask=mask", "total + 1, mask=mask"))
    assert outcome.status is Status.WRONG_RESULT and outcome.message.startswith("unlike vendor sum: output 'c'")

    alone = vector_add.with_files(tmp_path / "alone", reference=WITHOUT_REFERENCE.replace("{VENDORS}", "{}"))
    default = alone.job().source
    assert interpreter_runner.measure(alone.job(alone.schedule + "# another\n", default=default)).status is Status.OK
    outcome = interpreter_runner.measure(alone.changed("total, mask=mask", "total + 1, mask=mask", default=default))
    assert outcome.status is Status.WRONG_RESULT and outcome.message.startswith("unlike the default schedule: output 'c'")

    nobody = vector_add.with_files(tmp_path / "nobody", reference=WITHOUT_REFERENCE.replace("{VENDORS}", "{}"))
    with pytest.raises(UsageError, match="there is no reference.., and no candidate to trust instead"):
        interpreter_runner.measure(nobody.job())
