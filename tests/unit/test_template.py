"""Templates: knob sections, rendering, and errors that name the template's file and line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.canonical import sha256_text
from tilewright.errors import SpaceError, TemplateError
from tilewright.target import named_target
from tilewright.template import Template
from tilewright.workload import Workload

TARGET = named_target("sm_90")
WORKLOAD = Workload(operator="op", dims={"M": 64, "N": 100}, dtypes={"dtype": "float16"}, layout={"order": "row"})
LAUNCH = "\ndef launch(x, y):\n    pass\n"


def template(text: str, name: str = "plain") -> Template:
    return Template(name, Path(f"{name}.py.jinja"), text)


def render(text: str, config=None, workload=WORKLOAD) -> str:
    return template(text + LAUNCH).render(workload, TARGET, config or {}).text.removesuffix(LAUNCH).rstrip("\n")


def knobs(text: str) -> dict:
    return {knob.name: list(knob.values) for knob in template(text).space(WORKLOAD, TARGET).knobs}


def test_declarations_collect_and_instantiate_in_one_text():
    text = """
    {%- set tile = cfg.define_split("tile_m", M, policy="power2", min_factor=16) -%}
    {%- set warps = cfg.define_knob("warps", [2, 4]) -%}
    {%- do cfg.require(tile.size[-1] * warps <= 128, "too large") -%}
BLOCK, WARPS, SMS = {{ tile.size[-1] }}, {{ warps }}, {{ target.sm_count }}
"""
    space = template(text).space(WORKLOAD, TARGET)
    assert space.count().rejected == {"too large": 1}
    assert render(text, {"tile_m": [2, 32], "warps": 4}) == "BLOCK, WARPS, SMS = 32, 4, 132"


def test_all_kinds_of_entities_read_as_in_autotvm():
    text = """
    {%- set o = cfg.define_reorder("o", ["m", "n"], policy="all") -%}
    {%- set u = cfg.define_annotate("u", ["m", "n"], policy="try_unroll") -%}
    {%- set k = cfg.define_knob("k", [1, 2]) -%}
x = {{ o.perm }}, {{ o.axes[0] | ident }}, {{ u.anns }}, {{ k.val }}
"""
    assert render(text, {"o": ["n", "m"], "u": ["none", "unroll"], "k": 2}) == "x = (1, 0), n, ('none', 'unroll'), 2"


def test_a_knob_under_a_condition_makes_a_conditional_space():
    text = """
    {%- set split = cfg.define_knob("split", [1, 2]) -%}
    {%- set atomic = False -%}
    {%- if split > 1 %}{% set atomic = cfg.define_knob("atomic", [False, True]) %}{% endif -%}
    ATOMIC = {{ atomic }}
"""
    space = template(text).space(WORKLOAD, TARGET)
    assert list(space) == [{"split": 1}, {"split": 2, "atomic": False}, {"split": 2, "atomic": True}]
    assert not space._schedules["plain"].fixed_path
    assert render(text, {"split": 2, "atomic": True}) == "ATOMIC = True"


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ('{% set a = cfg.define_knob("a", [1]) %}', True),
        ('{% if dtype == "float16" %}{% do cfg.define_knob("a", [1]) %}{% endif %}', True),
        ('{% for d in [1, 2] %}{% do cfg.define_knob("a" ~ d, [1]) %}{% endfor %}', True),
        ('{% set a = cfg.define_knob("a", [1]) %}{% if a > 1 %}{% do cfg.require(False, "no") %}{% endif %}', True),
        ('{% set a = cfg.define_knob("a", [1]) %}{% set b = a + 1 %}{% if b > 1 %}{% do cfg.define_knob("b", [1]) %}{% endif %}', False),
        (
            '{% set a = cfg.define_knob("a", [1]) %}{% set b = 1 %}{% if a %}{% set b = 2 %}{% endif %}{% if b %}{% do cfg.define_knob("b", [1]) %}{% endif %}',
            False,
        ),
        ('{% set n = namespace(x=0) %}{% set n.x = cfg.define_knob("a", [1]) %}{% if n.x %}{% do cfg.define_knob("b", [1]) %}{% endif %}', False),
        ('{% for i in range(cfg.define_knob("a", [1])) %}{% do cfg.define_knob("b", [1]) %}{% endfor %}', False),
        ('{% macro m(x) %}{% do cfg.define_knob(x, [1]) %}{% endmacro %}{% if cfg.define_knob("a", [1]) %}{{ m("b") }}{% endif %}', False),
        ('{% set a = cfg.define_knob("a", [1]) and cfg.define_knob("b", [1]) %}', False),
    ],
)
def test_the_syntax_tree_tells_whether_every_pass_meets_the_same_knobs(text, fixed):
    assert template(text).space(WORKLOAD, TARGET)._schedules["plain"].fixed_path is fixed


def test_declarations_count_wherever_they_stand():
    text = """
x = {{ cfg.define_knob("printed", [1, 2]) }}
{% macro tile(name) %}{% set t = cfg.define_knob(name, [16, 32]) %}{{ t }}{% endmacro %}
y = {{ tile("in_macro") }}
{% for axis in ["m", "n"] %}{% do cfg.define_knob("loop_" ~ axis, [1]) %}{% endfor %}
{% if dtype == "float16" %}z = {{ cfg.define_knob("chosen", [3]) }}{% else %}{% do cfg.define_knob("other", [3]) %}{% endif %}
{% set late = cfg.define_knob("late", [7]) %}"""
    assert knobs(text) == {"printed": [1, 2], "in_macro": [16, 32], "loop_m": [1], "loop_n": [1], "chosen": [3], "late": [7]}
    shown = render(text, {"printed": 2, "in_macro": 32, "loop_m": 1, "loop_n": 1, "chosen": 3, "late": 7})
    assert re.findall(r"\w = .*", shown) == ["x = 2", "y = 32", "z = 3"]


def test_a_split_filter_is_an_expression_over_size():
    assert knobs('{% do cfg.define_split("t", N, policy="factors", filter="size[-1] % 5 == 0 and size[0] > 4") %}') == {"t": [[20, 5], [10, 10], [5, 20]]}


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("dtype", "'float16'"),
        ("dtype | ident", "float16"),
        ("'a' ~ \"'\"", '"a\'"'),
        ("M", "64"),
        ("1.5", "1.5"),
        ("M > 1", "True"),
        ("[M, 'x']", "[64, 'x']"),
        ("(M,)", "(64,)"),
        ("cdiv(N, M) + next_power_of_2(N) + min(M, N)", "194"),
    ],
)
def test_expressions_render_as_literals(expression, shown):
    assert render("x = {{ " + expression + " }}") == f"x = {shown}"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ('cfg.define_split("t", M)', "Split(size=(64, 1)), which has no literal text; render a part of it, such as .size[-1]"),
        ('cfg.define_reorder("t", ["a", "b"])', "render its .perm or .axes"),
        ('cfg.define_annotate("t", ["a"])', "render its .anns"),
        ("none", "None, which has no literal text"),
        ("target", "has no literal text"),
        ("cfg.define_knob", "has no literal text"),
        ("[none]", "has no literal text"),
        ("{'a': 1}", "has no literal text"),
        ("BLOK", "'BLOK' is undefined; did you mean 'BLOCK'?"),
        ("target.sm_counts", "target has no 'sm_counts'; did you mean 'sm_count'?"),
        ("1 // 0", "ZeroDivisionError"),
        ("dtype.__class__", "unsafe"),
        ("target._x", "target has no '_x'; one of: arch"),
        ("('a b') | ident", "'a b' | ident: not a Python identifier"),
        ("'class' | ident", "'class' | ident: not a Python identifier"),
        ("lipsum()", "'lipsum' is undefined"),
    ],
)
def test_what_cannot_be_rendered_is_an_error_with_file_and_line(expression, message):
    text = "{% set BLOCK = 16 %}\n\nx = {{ " + expression + " }}\n"
    loaded = template(text + LAUNCH)
    with pytest.raises((TemplateError, SpaceError)) as caught:
        loaded.render(WORKLOAD, TARGET, loaded.space(WORKLOAD, TARGET).default())
    assert str(caught.value).startswith("plain.py.jinja:3: ") and message in str(caught.value)


@pytest.mark.parametrize(
    ("declaration", "error", "message"),
    [
        ('cfg.define_knob("a", [])', SpaceError, "knob 'a' has an empty list of candidates"),
        ('cfg.define_knob("a", [none])', SpaceError, "candidate None must be"),
        ('cfg.define_knob("first", [1])', SpaceError, "knob 'first' is declared twice"),
        ('cfg.define_knob("a", [first, 7])', SpaceError, "knob 'a' has other candidates at another point"),
        ('cfg.define_split("a", M, policy="powers")', SpaceError, "unknown policy 'powers'"),
        ('cfg.define_split("a", 7, min_factor=2, max_factor=3)', SpaceError, "no split of extent 7"),
        ('cfg.define_split("a", M, plicy="factors")', TemplateError, "TypeError"),
        ('cfg.define_knb("a", [1])', TemplateError, "cfg has no 'define_knb'; did you mean 'define_knob'"),
        ("cfg.require(True)", TemplateError, "TypeError"),
        ('cfg.define_split("a", M, filter="size[")', TemplateError, "unexpected"),
        ('cfg.define_split("a", M, filter="sise[0] > 1")', TemplateError, "'sise' is undefined"),
        ("cfg.require(BLOCK > 1, 'x')", TemplateError, "'BLOCK' is undefined"),
    ],
)
def test_bad_declarations_name_file_and_line(declaration, error, message):
    text = '{% set first = cfg.define_knob("first", [1, 2]) %}\ntext\n{% do ' + declaration + " %}\n"
    with pytest.raises(error) as caught:
        template(text).space(WORKLOAD, TARGET)
    assert str(caught.value).startswith("plain.py.jinja:3: ") and message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n{% if %}", "plain.py.jinja:2: "),
        ("\n{% include 'x' %}", "plain.py.jinja:2: include is not for templates"),
        ("{% block b %}{% endblock %}", "plain.py.jinja:1: block is not for templates"),
        ("\n\n{% set cfg = 1 %}", "plain.py.jinja:3: cfg is for declarations alone, written as cfg.define_knob(...)"),
        ("\n{% set c = cfg %}", "plain.py.jinja:2: cfg is for declarations alone"),
        ("\n{% do cfg['define_knob']('a', [1]) %}", "plain.py.jinja:2: cfg is for declarations alone"),
        ("\n{{ cfg._config }}", "plain.py.jinja:2: cfg has no '_config'; one of: define_knob"),
        ("{{ x | random }}", "No filter named 'random'"),
    ],
)
def test_what_is_no_template_does_not_load(text, message):
    with pytest.raises(TemplateError) as caught:
        template(text)
    assert message in str(caught.value)


def test_an_error_behind_a_failed_require_does_not_spoil_the_space():
    text = '{% set a = cfg.define_knob("a", [0, 2]) %}{% do cfg.require(a > 0, "zero") %}{% set b = 8 // a %}{% do cfg.define_knob("c", [1, 2]) %}'
    assert list(template(text).space(WORKLOAD, TARGET)) == [{"a": 2, "c": 1}, {"a": 2, "c": 2}]


@pytest.mark.parametrize("value", ["{{ 7 * 7 }}", "'); import os; ('", "../../etc/passwd", "fast ", {"a": 1}, ["fast"], None])
def test_values_from_a_log_are_never_rendered_unless_declared(value):
    loaded = template('{% set a = cfg.define_knob("a", ["fast", "slow"]) %}x = {{ a }}' + LAUNCH)
    with pytest.raises(SpaceError, match="is no candidate"):
        loaded.render(WORKLOAD, TARGET, {"a": value})


def test_a_refused_config_is_not_rendered():
    loaded = template('{% set a = cfg.define_knob("a", [1, 2]) %}{% do cfg.require(a == 1, "only one") %}' + LAUNCH)
    with pytest.raises(SpaceError, match="only one"):
        loaded.render(WORKLOAD, TARGET, {"a": 2})


def test_text_is_canonical_and_comments_stale_nothing():
    first = template('{# one #}{% set a = cfg.define_knob("a", [1, 2]) %}\n\nx = {{ a }}   \n' + LAUNCH + "\n\n")
    second = template('{% set a = cfg.define_knob("a", [1, 2]) -%}x = {{ a }}\n' + LAUNCH)
    one, two = (t.render(WORKLOAD, TARGET, {"a": 1}) for t in (first, second))
    assert one.text == two.text == "x = 1\n\ndef launch(x, y):\n    pass\n"
    assert one.hash == two.hash == sha256_text(one.text)
    assert one.template_hash != two.template_hash and one.schedule == "plain"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = (\n" + LAUNCH, "plain.py.jinja: the rendered module is not valid Python"),
        ("import os\n" + LAUNCH, "imports 'os'; it may import only torch and triton"),
        ("from . import x\n" + LAUNCH, "imports '.'"),
        ("x = 1\n", "defines no launch"),
    ],
)
def test_what_is_rendered_must_be_a_standalone_module(text, message):
    with pytest.raises(TemplateError) as caught:
        template(text).render(WORKLOAD, TARGET, {})
    assert message in str(caught.value)


def test_dims_that_leak_into_the_text_are_named():
    text = """
    {%- set t = cfg.define_split("t", M, policy="power2", min_factor=16, max_factor=64) -%}
x = {{ t.size[-1] }}
{% if N % 4 == 0 %}EVEN = True{% endif %}
"""
    config = {"t": [4, 16]}
    assert template(text + LAUNCH).leaking_dims(WORKLOAD, TARGET, config) == ("N",)
    assert template(text.replace("t.size[-1]", "t.size[0]") + LAUNCH).leaking_dims(WORKLOAD, TARGET, config) == ("M", "N")
    assert template(text.replace("N % 4", "4 % 4") + LAUNCH).leaking_dims(WORKLOAD, TARGET, config) == ()


@pytest.mark.parametrize(("extent", "config"), [(64, {"t": 32, "turns": 2}), (32, {"t": 32})])
def test_a_knob_that_other_extents_lack_or_have_is_no_leak(extent, config):
    text = """
    {%- set t = cfg.define_knob("t", [16, 32]) -%}
    {%- set turns = 1 -%}
    {%- if cdiv(N, t) > 1 -%}{%- set turns = cfg.define_knob("turns", [1, 2]) -%}{%- endif -%}
x = {{ t }} * {{ turns }}
{% if cdiv(N, t) > 1 %}MANY = True{% endif %}
"""
    workload = replace(WORKLOAD, dims={**WORKLOAD.dims, "N": extent})
    assert template(text + LAUNCH).leaking_dims(workload, TARGET, config) == ()
    # What the text holds besides is seen at the extents that have the same knobs.
    assert template(text + "n = {{ N }}" + LAUNCH).leaking_dims(workload, TARGET, config) == ("N",)
    assert template(text.replace("turns = cfg", "other = cfg") + "n = {{ M }}" + LAUNCH).leaking_dims(workload, TARGET, config) == ("M",)


def test_load_reads_a_file_and_names_the_schedule_after_it(tmp_path):
    path = tmp_path / "tiled.py.jinja"
    path.write_text("x = 1\n" + LAUNCH)
    loaded = Template.load(path)
    assert (loaded.name, loaded.path, loaded.hash) == ("tiled", path, sha256_text(path.read_text()))
    with pytest.raises(TemplateError, match="cannot be read"):
        Template.load(tmp_path / "other.py.jinja")
    with pytest.raises(TemplateError, match="named <schedule>.py.jinja"):
        Template.load(tmp_path / "other.txt")
    bad = tmp_path / "not-a-name.py.jinja"
    bad.write_text("")
    with pytest.raises(TemplateError, match="schedule name 'not-a-name'"):
        Template.load(bad)
