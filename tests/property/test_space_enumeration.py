"""Random conditional spaces, against a plain nested loop."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.candidates import split_candidates
from tilewright.knobs import Split
from tilewright.space import Cfg, Space, unconditional


@dataclass
class Step:
    """One declaration or require; `when` names a knob and the values under which it stands."""

    kind: str
    name: str
    values: list[int]
    when: tuple[str, frozenset[int]] | None = None
    terms: tuple[str, ...] = ()
    bound: int = 0

    def applies(self, chosen: dict[str, int]) -> bool:
        return self.when is None or chosen.get(self.when[0]) in self.when[1]

    def holds(self, chosen: dict[str, int]) -> bool:
        return sum(chosen.get(term, 0) for term in self.terms) % 7 != self.bound


@dataclass
class Plan:
    steps: list[Step] = field(default_factory=list)

    def program(self, cfg: Cfg) -> None:
        chosen: dict[str, int] = {}
        for step in self.steps:
            if not step.applies(chosen):
                continue
            if step.kind == "knob":
                chosen[step.name] = cfg.define_knob(step.name, step.values)
            else:
                cfg.require(step.holds(chosen), step.name)

    def points(self, chosen: dict[str, int] | None = None, at: int = 0) -> list[tuple[dict[str, int], list[str]]]:
        """All points with the requires they fail, by nested loops without any cutting."""
        chosen = chosen or {}
        if at == len(self.steps):
            return [(chosen, [])]
        step = self.steps[at]
        if not step.applies(chosen):
            return self.points(chosen, at + 1)
        if step.kind == "knob":
            return [point for value in step.values for point in self.points({**chosen, step.name: value}, at + 1)]
        failed = [] if step.holds(chosen) else [step.name]
        return [(config, failed + later) for config, later in self.points(chosen, at + 1)]


@st.composite
def plans(draw: st.DrawFn, *, conditional: bool = True) -> Plan:
    plan = Plan()
    names: list[str] = []
    for number in range(draw(st.integers(1, 7))):
        when = None
        if conditional and names and draw(st.booleans()):
            when = (draw(st.sampled_from(names)), frozenset(draw(st.sets(st.integers(0, 6), min_size=1, max_size=5))))
        if draw(st.booleans()) or not names:
            values = draw(st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True))
            plan.steps.append(Step("knob", f"k{number}", values, when))
            names.append(f"k{number}")
        else:
            terms = tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)))
            plan.steps.append(Step("require", f"r{number}", [], when, terms, draw(st.integers(0, 6))))
    return plan


@settings(max_examples=120, deadline=None)
@given(plans())
def test_enumeration_is_the_nested_loop(plan):
    points = plan.points()
    legal = [config for config, failed in points if not failed]
    space = Space({"s": plan.program})
    assert list(space.enumerate()) == legal
    count = space.count()
    assert count.legal == len(legal)
    assert set(count.cuts) == {failed[0] for _, failed in points if failed}
    assert count.points == (None if len(legal) < len(points) else len(points))
    assert space.suggestions() == [] and (not legal or space.default() == legal[0])


@settings(max_examples=60, deadline=None)
@given(plans(conditional=False))
def test_rejections_are_the_points_that_first_fail_each_require(plan):
    points = plan.points()
    count = Space({"s": unconditional(lambda cfg: plan.program(cfg))}).count()
    assert count.rejected == Counter(failed[0] for _, failed in points if failed)
    assert count.points == len(points) and count.cuts == {}


@settings(max_examples=60, deadline=None)
@given(plans(), st.integers(0, 2**32))
def test_evaluate_and_validate_agree_with_the_nested_loop(plan, seed):
    space = Space({"s": plan.program})
    config, failed = random.Random(seed).choice(plan.points())
    evaluation = space.evaluate(lambda knob: config[knob.name])
    assert evaluation.config == config and list(evaluation.violations) == failed
    if not failed:
        assert space.validate(config) == config


@settings(max_examples=30, deadline=None)
@given(plans(), st.integers(0, 2**32))
def test_samples_are_legal(plan, seed):
    legal = [config for config, failed in plan.points() if not failed]
    space = Space({"s": plan.program})
    if legal:
        assert all(config in legal for config in space.sample(5, random.Random(seed)))


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 5000), st.integers(1, 3), st.sampled_from(["factors", "power2", "verbose"]), st.booleans(), st.integers(1, 16))
def test_splits_cover_their_extent(extent, num_outputs, policy, no_tail, top):
    splits = split_candidates("t", extent, num_outputs, policy, no_tail=no_tail, max_factor=top)
    keys = []
    for split in splits:
        assert isinstance(split, Split) and len(split.size) == num_outputs
        inner = 1
        for part in split.size[1:]:
            assert 1 <= part <= top
            inner *= part
        assert split.size[0] == -(-extent // inner)
        if no_tail or policy == "factors":
            assert split.size[0] * inner == extent
        keys.append(split.size[1:])
    assert keys == sorted(set(keys))


@given(st.integers(1, 10**6), st.integers(1, 4), st.integers(0, 8), st.integers(0, 8))
def test_power2_is_never_empty(extent, num_outputs, low, above):
    splits = split_candidates("t", extent, num_outputs, "power2", min_factor=1 << low, max_factor=1 << (low + above))
    for split in splits:
        assert isinstance(split, Split)
        assert all(part & (part - 1) == 0 and 1 << low <= part <= 1 << (low + above) for part in split.size[1:])
