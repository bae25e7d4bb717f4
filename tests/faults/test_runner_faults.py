"""Each fault of a candidate ends in one status, and the next candidate is measured as if nothing had been."""

import os
import re
import signal
import time

from tilewright.record import Status


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
