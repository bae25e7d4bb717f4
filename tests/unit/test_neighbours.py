"""Ragged neighbours: which there are, and which serve."""

from __future__ import annotations

import pytest

from tilewright.canonical import sha256_text
from tilewright.carrying import carries
from tilewright.errors import SpaceError
from tilewright.library import find_operator
from tilewright.neighbours import Neighbours
from tilewright.record import Config
from tilewright.target import named_target
from tilewright.template import Source
from tilewright.workload import Workload, parse_key

WORKLOAD = parse_key("toy:K=32,M=64,N=1,dtype=float16")


def make_source(text: str) -> Source:
    return Source(text=text, hash=sha256_text(text), schedule="plain", template_hash="")


def test_all_dims_first_then_fewer_and_what_served_alone_the_next_time() -> None:
    asked: list[str] = []

    def serves(workload: Workload, config: Config, source: Source) -> bool:
        asked.append(workload.key)
        return True

    neighbours = Neighbours(serves)
    found = neighbours.of(WORKLOAD, {}, make_source("text"))
    # N is 1, which Triton takes for a constant.
    assert [workload.dims for workload in found] == [{"K": 16, "M": 48, "N": 1}, {"K": 16, "M": 64, "N": 1}]
    neighbours.learn(WORKLOAD, make_source("text"), found[1].key)
    asked.clear()
    assert neighbours.of(WORKLOAD, {}, make_source("text")) == (found[1],) and len(asked) == 1
    neighbours.learn(WORKLOAD, make_source("text"), "")
    assert neighbours.of(WORKLOAD, {}, make_source("text")) == found


def test_an_extent_that_the_template_refuses_or_renders_is_kept() -> None:
    def serves(workload: Workload, config: Config, source: Source) -> bool:
        if workload["K"] < 32:
            raise SpaceError("no such tile")
        return source.text == f"text for M={workload['M']}"

    (found,) = Neighbours(serves).of(WORKLOAD, {}, make_source("text for M=64"))
    assert found.dims == {"K": 48, "M": 64, "N": 1}


@pytest.mark.parametrize(
    ("operator", "parameters"),
    [("matmul", "M=512,N=512,K=512,dtype=float16"), ("rms_norm", "rows=256,cols=4096,dtype=bfloat16"), ("softmax", "rows=256,cols=4096,dtype=bfloat16")],
)
def test_every_shipped_suggestion_has_a_ragged_neighbour(operator: str, parameters: str) -> None:
    found = find_operator(operator)
    target = named_target("sm_90")
    workload = found.spec.workload(parameters)
    neighbours = Neighbours(lambda other, config, source: carries(found.templates[source.schedule], other, target, config, source.hash))
    for config in found.space(workload, target).suggestions():
        assert neighbours.of(workload, config, found.render(workload, target, config)), config
