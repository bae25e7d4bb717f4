"""A template whose loops do not end is refused, with file and line, on any machine alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.errors import TemplateError
from tilewright.target import named_target
from tilewright.template import Template
from tilewright.workload import Workload

WORKLOAD = Workload(operator="toy", dims={"M": 64}, dtypes={})
TARGET = named_target("sm_90")


def template(body: str, before: str = "") -> Template:
    text = f'{before}{{%- set tile = cfg.define_knob("tile", [1, 2]) -%}}\n{body}\n{{%- set last = cfg.define_knob("last", [1]) %}}\ndef launch(a):\n    pass\n'
    return Template("plain", Path("plain.py.jinja"), text)


NESTED = "{%- for x in range(100000) -%}{%- for y in range(100000) -%}{%- endfor -%}{%- endfor -%}"
FOREVER = {
    "nested": (NESTED, "more than 1,000,000 steps"),
    "at_some_points": (f"{{%- if tile == 2 -%}}{NESTED}{{%- endif -%}}", "more than 1,000,000 steps"),
    "macro": ("{%- set text = f(100) -%}", "more than 1,000,000 steps"),
    "recursive": (
        "{%- for x in range(10) recursive -%}{%- if loop.depth < 100 -%}{%- set text = loop(range(10)) -%}{%- endif -%}{%- endfor -%}",
        "more than 1,000,000 steps",
    ),
    "range_of_more_than_a_word": ("{%- set all = range(10 ** 30) | list -%}", r"range\(1000000000000000000000000000000,\) has more than"),
    "range": ("{%- set all = range(10 ** 12) | list -%}", r"range\(1000000000000,\) has more than"),
    "power": ("{%- set huge = 10 ** (10 ** 10) -%}", "10 .. 10000000000 has more than 4,096 bits"),
}


@pytest.mark.parametrize(("body", "said"), FOREVER.values(), ids=FOREVER)
def test_what_would_never_end_is_refused_where_it_stands(body: str, said: str) -> None:
    macro = "{%- macro f(n) -%}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{%- endmacro -%}" if "f(100)" in body else ""
    with pytest.raises(TemplateError, match=rf"plain\.py\.jinja:\d+: .*{said}"):
        template(body, macro).space(WORKLOAD, TARGET).count()


def test_the_kernels_own_loops_are_counted_as_well() -> None:
    found = Template("plain", Path("plain.py.jinja"), f'{{%- set tile = cfg.define_knob("tile", [1]) -%}}\ndef launch(a):\n    pass\n{NESTED}')
    assert found.space(WORKLOAD, TARGET).count().legal == 1
    with pytest.raises(TemplateError, match=r"plain\.py\.jinja:4: .*more than 1,000,000 steps"):
        found.render(WORKLOAD, TARGET, {"tile": 1})


def test_a_loop_over_a_list_that_it_makes_longer_ends() -> None:
    grown = template("{%- set xs = [1, 2] -%}{%- for x in xs -%}{%- do xs.append(x) -%}{%- endfor -%}\n# {{ xs }} {{ 2 ** 20 }}\n")
    assert "# [1, 2, 1, 2] 1048576" in grown.render(WORKLOAD, TARGET, {"tile": 1, "last": 1}).text


def test_steps_are_counted_for_each_pass_alone() -> None:
    space = template("{%- for x in range(300000) -%}{%- endfor -%}").space(WORKLOAD, TARGET)
    assert [space.count().legal for _ in range(3)] == [2, 2, 2]
