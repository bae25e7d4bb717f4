"""The timing protocol on a simulated device: a host that launches slowly, and a device with a clock of its own."""

import itertools
import statistics
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from tilewright.children import captured, racing, timing  # noqa: E402
from tilewright.children.failure import CandidateFailed  # noqa: E402
from tilewright.protocols import EVENTS_PROTOCOL, GRAPH_PROTOCOL, INTERPRETER_PROTOCOL, LEAST_US  # noqa: E402
from tilewright.record import Anchor, Status  # noqa: E402

LAUNCH_US, GRAPH_LAUNCH_US, GAP_US = 20.0, 10.0, 1.0


class Simulation:
    """Stands in for torch: streams, events and graphs in virtual time."""

    def __init__(self):
        self.host_us = self.device_us = 0.0
        self.captured = None
        self.launches = 0
        self.graphs = []
        self.hangs_at_us = float("inf")
        self.breaks_at_us = None
        simulation = self

        class Event:
            def __init__(self, enable_timing=False):
                self.timing = enable_timing

            def record(self):
                self.at_us = simulation.device_us = max(simulation.device_us, simulation.host_us)

            def query(self):
                if simulation.breaks_at_us is not None and self.at_us >= simulation.breaks_at_us:
                    raise RuntimeError("CUDA error: an illegal memory access was encountered")
                self.synchronize()
                return self.at_us < simulation.hangs_at_us

            def synchronize(self):
                simulation.host_us = max(simulation.host_us, self.at_us)

            def elapsed_time(self, end):
                assert self.timing and end.timing
                return (end.at_us - self.at_us) / 1000

        class CUDAGraph:
            def capture_begin(self, capture_error_mode):
                assert capture_error_mode == "thread_local"
                simulation.captured = self.nodes = []
                simulation.graphs.append(self)

            def capture_end(self):
                simulation.captured = None

            def replay(self):
                simulation.host_us += GRAPH_LAUNCH_US
                simulation.device_us = max(simulation.device_us, simulation.host_us) + GAP_US
                for duration in self.nodes:
                    simulation.device_us += duration()

            def reset(self):
                self.nodes = None

        self.cuda = SimpleNamespace(
            Event=Event,
            CUDAGraph=CUDAGraph,
            Stream=lambda device: "stream",
            stream=lambda stream: nullcontext(),
            current_stream=lambda device: SimpleNamespace(cuda_stream=0),
            synchronize=self.synchronize,
        )

    def synchronize(self, device):
        self.host_us = max(self.host_us, self.device_us)

    def kernel(self, *durations_us, capturable=True):
        """A call whose kernel takes each of the durations in turn."""
        taking = itertools.cycle(durations_us)

        def call():
            self.launches += 1
            self.host_us += LAUNCH_US
            if self.captured is None:
                self.device_us = max(self.device_us, self.host_us) + next(taking)
            elif capturable:
                self.captured.append(lambda: next(taking))
            else:
                raise RuntimeError("operation not permitted when stream is capturing")

        return call


@pytest.fixture
def device(monkeypatch):
    simulation = Simulation()
    monkeypatch.setattr(timing, "torch", simulation)
    monkeypatch.setattr(captured, "torch", simulation)
    monkeypatch.setattr(captured, "_nodes", lambda stream: len(simulation.captured))
    timing.stream.cache_clear()
    yield simulation
    timing.stream.cache_clear()
    assert all(graph.nodes is None for graph in simulation.graphs), "a graph was left behind"


def run(device, call, sets=1, cut_above_us=None):
    return timing.time_on_device([call] * sets, "cuda:0", cut_above_us=cut_above_us)


@pytest.mark.parametrize(("kernel_us", "sets"), [(3.0, 34), (1.5, 64), (17.0, 3), (100.0, 1), (200.0, 2), (1000.0, 1), (4000.0, 2)])
def test_the_kernels_time_is_found_whatever_the_hosts(device, kernel_us, sets):
    timed = run(device, device.kernel(kernel_us), sets)
    assert timed.protocol == GRAPH_PROTOCOL and not timed.cut and not timed.capture_failed
    assert statistics.median(timed.samples_us) == pytest.approx(kernel_us, rel=0.01)
    assert device.device_us >= LEAST_US or len(timed.samples_us) == 50
    assert device.device_us < 2 * LEAST_US + 6 * kernel_us + 5_000  # without noise there is nothing to repeat for beyond the least
    assert len(timed.samples_us) >= 5
    assert set(timed.phases_ms) == {"capture", "time"}


def test_every_operand_set_is_in_a_graph_and_short_kernels_are_captured_again(device):
    used = [0] * 34
    call = device.kernel(3.0)

    def on(index):
        def use():
            used[index] += 1
            call()

        return use

    timing.time_on_device([on(index) for index in range(34)], "cuda:0", cut_above_us=None)
    # One call ahead, one round that shows a replay of 102 µs to be short, then three rounds of 3 µs calls: 306 µs.
    assert used == [1 + 1 + 3, *([1 + 3] * 33)]


@pytest.mark.parametrize("kernel_us", [200.0, 400.0])
def test_noise_is_repeated_against_within_the_budget(device, kernel_us):
    noisy = device.kernel(*(kernel_us * factor for factor in (0.9, 1.1, 1.0, 0.95, 1.2, 0.8, 1.05)))
    before = device.device_us
    timed = run(device, noisy, 2)
    assert 10 <= len(timed.samples_us) <= 50
    assert device.device_us - before < 20_000


def test_a_hopeless_slow_call_costs_one_launch(device):
    timed = run(device, device.kernel(10_000.0), 2, cut_above_us=200.0)
    assert timed.cut and timed.protocol == EVENTS_PROTOCOL
    assert timed.samples_us == [pytest.approx(10_000.0, rel=0.01)] and device.launches == 1


def test_a_hopeless_short_call_is_cut_only_by_the_devices_time(device):
    timed = run(device, device.kernel(50.0), 4, cut_above_us=10.0)
    assert timed.cut and timed.protocol == GRAPH_PROTOCOL and timed.samples_us == [pytest.approx(50.0, rel=0.02)]
    # The host takes 20 µs to launch what runs 4 µs: that is no reason to cut.
    assert not run(device, device.kernel(4.0), 4, cut_above_us=3.0).cut


def test_what_cannot_be_captured_is_timed_by_events(device):
    timed = run(device, device.kernel(500.0, capturable=False), 2)
    assert timed.protocol == EVENTS_PROTOCOL and timed.capture_failed and not timed.cut
    assert statistics.median(timed.samples_us) == pytest.approx(500.0, rel=0.01) and len(timed.samples_us) >= 5


def test_the_interpreter_is_run_again_only_while_that_is_cheap():
    calls = []
    timed = timing.time_interpreted(lambda: calls.append(1), wall_us=1000.0, cut_above_us=None)
    assert timed.protocol == INTERPRETER_PROTOCOL and len(timed.samples_us) == 3 and len(calls) == 2
    timed = timing.time_interpreted(lambda: calls.append(1), wall_us=5e6, cut_above_us=None)
    assert timed.samples_us == [5e6] and len(calls) == 2
    assert timing.time_interpreted(lambda: calls.append(1), wall_us=5e6, cut_above_us=1e6).cut and len(calls) == 2


def test_the_anchor_is_timed_before_and_after_each_batch(device):
    taken, busy = [], []

    def anchor(repeats):
        taken.append((repeats, device.launches))
        return [100.0] * repeats

    timed = timing.time_on_device([device.kernel(300.0)] * 2, "cuda:0", cut_above_us=None, anchor=anchor, while_busy=lambda: busy.append(device.captured))
    batches = len(taken) - 1
    assert 2 <= batches <= 5 and timed.anchor_us == [100.0] * (2 * (batches + 1))
    assert busy == [None]


def test_a_hopeless_call_costs_no_anchor(device):
    timed = timing.time_on_device([device.kernel(50.0)] * 4, "cuda:0", cut_above_us=10.0, anchor=lambda repeats: pytest.fail("not needed"))
    assert timed.cut and timed.anchor_us == []


def test_long_calls_have_an_anchor_every_few_milliseconds(device):
    moments = []

    def anchor(repeats):
        moments.append(device.device_us)
        return [100.0] * repeats

    timed = timing.time_on_device([device.kernel(1240.0)], "cuda:0", cut_above_us=None, anchor=anchor)
    assert len(timed.samples_us) >= 5
    # 2.5 ms of samples, and a replay ahead of them.
    assert len(moments) >= 4 and all(after - before < 4000 for before, after in zip(moments, moments[1:], strict=False)), moments


def test_the_short_kernel_is_timed_beside_short_calls_alone(device):
    def two_kernels():
        first()
        second()

    first, second = device.kernel(4.0), device.kernel(6.0)
    timed = timing.time_on_device([two_kernels] * 3, "cuda:0", cut_above_us=None, latency=lambda repeats: [3.5] * repeats)
    assert timed.kernels == 2.0 and len(timed.latency_us) >= 2
    timed = timing.time_on_device([device.kernel(180.0)] * 3, "cuda:0", cut_above_us=None, latency=lambda repeats: pytest.fail("not needed"))
    assert timed.kernels == 1.0 and timed.latency_us == []


class RaceOperands:
    """What a race asks of operands, without tensors."""

    spec = SimpleNamespace(mutates=())
    outputs = ()

    def __init__(self):
        self.drawn = self.refreshed = 0

    def draw(self):
        self.drawn += 1

    def refresh_sets(self):
        self.refreshed += 1

    def ready_set(self, index):
        return []


class RaceAnchors:
    """The anchor as a kernel of 100 µs."""

    def __init__(self, device):
        call = device.kernel(100.0)
        self._graph = captured.capture([call], 2, "cuda:0")

    def graph(self, kind):
        return self._graph

    def told(self, kind, samples_us):
        return Anchor(kind=kind, median_us=statistics.median(samples_us), nominal_us=95.0, samples=len(samples_us))


@pytest.fixture
def race(device, monkeypatch):
    monkeypatch.setattr(racing, "torch", device)
    monkeypatch.setattr(racing, "compare_all", lambda operands, outputs: None)
    operands, anchors = RaceOperands(), RaceAnchors(device)
    race = racing.Race(operands, "cuda:0", anchors=anchors, kind="compute", sensors=SimpleNamespace(read=lambda: None))
    assert (operands.drawn, operands.refreshed) == (1, 1)
    yield race
    race.close()
    anchors._graph.reset()


def test_a_race_times_all_in_turns(device, race):
    for kernel_us in (3.0, 200.0, 180.0):
        race.enter([device.kernel(kernel_us)] * 4, checks=False)
    found = race.run()
    assert found["rounds"] == 60 and found["anchor"].samples == 2 * 60 // 4
    assert found["anchor"].median_us == pytest.approx(100.0, rel=0.02)
    for entrant, kernel_us in zip(found["entrants"], (3.0, 200.0, 180.0), strict=True):
        assert len(entrant.times_us) == 60
        assert statistics.median(entrant.times_us) == pytest.approx(kernel_us, rel=0.01)


def test_slow_racers_get_fewer_rounds_and_the_same_for_all(device, race):
    for kernel_us in (40_000.0, 60_000.0):
        race.enter([device.kernel(kernel_us)], checks=False)
    found = race.run()
    assert found["rounds"] == 12 and {len(entrant.times_us) for entrant in found["entrants"]} == {12}


def test_heat_and_clocks_are_the_same_for_all(device, race):
    """The device slows down by a half over the race; the ratio paired by round stays what it is."""
    began = device.device_us

    def heated(kernel_us):
        def call():
            device.host_us += LAUNCH_US
            device.captured.append(lambda: kernel_us * (1 + min(1.0, (device.device_us - began) / 60_000) / 2))

        def first():
            if device.captured is None:
                device.device_us = max(device.device_us, device.host_us) + kernel_us
            else:
                call()

        return first

    race.enter([heated(500.0)], checks=False)
    race.enter([heated(510.0)], checks=False)
    first, second = race.run()["entrants"]
    assert max(first.times_us) / min(first.times_us) > 1.2
    ratios = [b / a for a, b in zip(first.times_us, second.times_us, strict=True)]
    assert statistics.median(ratios) == pytest.approx(1.02, abs=0.002)


def test_what_was_timed_is_checked_and_a_racer_that_fails_it_is_out(device, race, monkeypatch):
    def compare(operands, outputs):
        raise CandidateFailed(Status.WRONG_RESULT, "off by 3")

    race.enter([device.kernel(200.0)] * 2, checks=False)
    race.enter([device.kernel(100.0)] * 2, checks=True)
    monkeypatch.setattr(racing, "compare_all", compare)
    vendor, cheat = race.run()["entrants"]
    assert vendor.status is Status.OK and len(vendor.times_us) > 10
    assert cheat.status is Status.WRONG_RESULT and cheat.times_us == []
    assert cheat.message == "what was timed does not compute what was checked: off by 3"


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("ends", [Status.RUN_TIMEOUT, Status.CRASH])
def test_a_racer_that_hangs_or_breaks_the_context_is_named(device, race, monkeypatch, place, ends):
    monkeypatch.setattr(racing, "HUNG_S", 0.01)
    monkeypatch.setattr(racing, "_HUNG_TIMES", 0.0)

    def bad():
        if device.captured is None:
            return
        device.captured.append(fail)

    def fail():
        if race._entrants and len(race._entrants) == 3:
            if ends is Status.CRASH:
                device.breaks_at_us = device.device_us
            else:
                device.hangs_at_us = device.device_us
        return 100.0

    for number in range(3):
        race.enter([bad if number == place else device.kernel(100.0)], checks=False)
    with pytest.raises(racing.RacerFailed) as failed:
        race.run()
    assert (failed.value.place, failed.value.status) == (place, ends)


def test_what_cannot_be_captured_does_not_race(device, race):
    with pytest.raises(CandidateFailed, match="only graphs race"):
        race.enter([device.kernel(200.0, capturable=False)], checks=False)
    race.enter([device.kernel(200.0)], checks=False)
    assert len(race.run()["entrants"]) == 1


def test_each_order_has_its_reverse_and_everyone_begins():
    orders = [racing.order(3, number) for number in range(6)]
    assert orders == [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1], [2, 0, 1], [1, 0, 2]]
    assert racing.order(1, 5) == [0]
