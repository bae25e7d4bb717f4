"""Lists of `triton.Config` as data: read from Python text, which is parsed and never run, or from JSON."""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tilewright.errors import HostError, UsageError
from tilewright.interchange.names import Plain
from tilewright.interchange.triton_configs import OPTIONS

# guess: more configs than this in one file are a space, not suggestions.
MAX_CONFIGS: Final = 4096
MAX_FILE_BYTES: Final = 4 << 20

# Where `triton.Config` takes them by position, and what it takes where they are not given (Triton 3.6 to 3.9).
_POSITIONS: Final = ("kwargs", "num_warps", "num_stages", "num_ctas", "maxnreg")
DEFAULTS: Final[Mapping[str, int]] = {"num_warps": 4, "num_stages": 3, "num_ctas": 1}
# Arguments that change a launch and are no choice of a schedule.
_HOOKS: Final = ("pre_hook", "ir_override")


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenConfig:
    """One config as it stands in a file.

    Attributes:
        place: where, for messages: `line 12`.
        values: by name, kernel arguments and options alike; empty where it could not be read.
        refused: why it could not be read; empty where it could.
    """

    place: str
    values: Mapping[str, Plain]
    refused: str = ""


class _Unreadable(Exception):
    """A config that is not made of literals alone; the text says what is not."""


def read_configs(path: Path) -> tuple[GivenConfig, ...]:
    """The configs of a file: Python text with calls of `triton.Config`, or JSON.

    Nothing is executed: of a Python file, calls of `Config` are looked for, whose arguments are literals, or the variables of list
    comprehensions over literals. JSON is a list of objects, or an object of objects such as vLLM's files: `{"kwargs": {...}, "num_warps": 4}`
    or all in one. A split is its innermost part, or a list of all parts, as logs and `cfg.suggest` have it.

    Raises:
        UsageError: there is no such file, it cannot be parsed, or it has no config.
        HostError: it cannot be read.
    """
    text = _text(path)
    found = tuple(itertools.islice(_json(path, text) if path.suffix == ".json" else _python(path, text), MAX_CONFIGS + 1))
    if not found:
        raise UsageError(f"{path} has no triton.Config(...): give a Python file with a list of them, or a .json file with a list of objects")
    if len(found) > MAX_CONFIGS:
        raise UsageError(f"{path} has more than {MAX_CONFIGS} configs; suggestions are a few first candidates, so choose among them")
    return found


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"no file {path} with suggestions; --suggest takes a Python or .json file") from None
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB, and so no list of suggestions")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no UTF-8 text: {error.reason} at byte {error.start}") from error


def _json(path: Path, text: str) -> Iterator[GivenConfig]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no JSON: {error}") from error
    if isinstance(document, dict) and not isinstance(document.get("kwargs"), dict) and all(isinstance(item, dict) for item in document.values()):
        items = [(f"entry {ascii(key)}", item) for key, item in document.items()]
    else:
        items = [(f"config {number}", item) for number, item in enumerate(document if isinstance(document, list) else [document], 1)]
    for place, item in items:
        try:
            yield GivenConfig(place=place, values=_flat(item))
        except _Unreadable as error:
            yield GivenConfig(place=place, values={}, refused=str(error))


def _flat(item: Any) -> dict[str, Plain]:
    if not isinstance(item, dict):
        raise _Unreadable(f"{ascii(item)[:60]} is no object with values by name")
    kwargs = item.get("kwargs", {})
    if not isinstance(kwargs, dict):
        raise _Unreadable(f"kwargs {ascii(kwargs)[:60]} is no object")
    values = {**kwargs, **{name: value for name, value in item.items() if name != "kwargs"}}
    for name in _HOOKS:
        if values.pop(name, None) is not None:
            raise _Unreadable(f"{name} changes the launch, and is no choice of a schedule")
    return {name: _plain(name, value) for name, value in values.items() if not (name in OPTIONS and value is None)}


def _plain(name: object, value: Any) -> Plain:
    if not isinstance(name, str):
        raise _Unreadable(f"{ascii(name)[:60]} is no name")
    if isinstance(value, bool | int | float | str):
        return value
    words = isinstance(value, list | tuple) and all(isinstance(word, str) for word in value)
    parts = isinstance(value, list | tuple) and all(isinstance(part, int) and not isinstance(part, bool) for part in value)
    if value and (words or parts):
        return tuple(value)
    raise _Unreadable(f"{name}={ascii(value)[:60]} is neither a number nor a word, nor a list of whole numbers (a split's parts) or of words")


def _python(path: Path, text: str) -> Iterator[GivenConfig]:
    try:
        tree = ast.parse(text)
        yield from _calls(tree, [{}])
    except SyntaxError as error:
        raise UsageError(f"{path}, line {error.lineno}: {error.msg}; --suggest takes Python text (or .json)") from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise UsageError(f"{path} cannot be parsed: {error}") from error


def _calls(node: ast.AST, scopes: Sequence[Mapping[str, Any]]) -> Iterator[GivenConfig]:
    """Calls of `Config` below a node, once for each assignment of the comprehensions around them."""
    if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp):
        try:
            inner = list(itertools.islice(_assignments(node.generators, scopes), MAX_CONFIGS + 1))
        except _Unreadable as error:
            if any(_is_config(below) for below in ast.walk(node.elt)):
                yield GivenConfig(place=f"line {node.lineno}", values={}, refused=str(error))
            return
        yield from _calls(node.elt, inner)
    elif _is_config(node) and isinstance(node, ast.Call):
        for scope in scopes:
            try:
                yield GivenConfig(place=f"line {node.lineno}", values=_arguments(node, scope))
            except _Unreadable as error:
                yield GivenConfig(place=f"line {node.lineno}", values={}, refused=str(error))
    else:
        for child in ast.iter_child_nodes(node):
            yield from _calls(child, scopes)


def _is_config(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    return (function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else "") == "Config"


def _assignments(generators: Sequence[ast.comprehension], scopes: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    if not generators:
        yield from scopes
        return
    first, rest = generators[0], generators[1:]
    if first.ifs:
        raise _Unreadable("its list comprehension has a condition, which is not evaluated; write the configs out")
    for scope in scopes:
        values = _value(first.iter, scope)
        if not isinstance(values, list | tuple):
            raise _Unreadable(f"{ast.unparse(first.iter)[:60]} is no list of literals; write the configs out")
        for value in values:
            yield from _assignments(rest, [{**scope, **_bound(first.target, value)}])


def _bound(target: ast.expr, value: Any) -> dict[str, Any]:
    if isinstance(target, ast.Name):
        return {target.id: value}
    if isinstance(target, ast.Tuple | ast.List) and isinstance(value, list | tuple) and len(target.elts) == len(value):
        return {name: part for element, item in zip(target.elts, value, strict=True) for name, part in _bound(element, item).items()}
    raise _Unreadable(f"{ast.unparse(target)[:60]} does not fit {ascii(value)[:60]}")


def _arguments(call: ast.Call, scope: Mapping[str, Any]) -> dict[str, Plain]:
    if len(call.args) > len(_POSITIONS):
        raise _Unreadable(f"it has {len(call.args)} arguments by position; known are {', '.join(_POSITIONS)}")
    given: dict[str, ast.expr] = dict(zip(_POSITIONS, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg is None:
            raise _Unreadable("**arguments are not evaluated; write the config out")
        given[keyword.arg] = keyword.value
    return _flat({name: _value(node, scope) for name, node in given.items()})


def _value(node: ast.expr, scope: Mapping[str, Any]) -> Any:
    """The value of a literal, or of a comprehension's variable. Nothing is called, looked up or computed."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None):
            return node.value
        case ast.Name(id=name) if name in scope:
            return scope[name]
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_value(element, scope) for element in elements]
        case ast.Dict(keys=keys, values=values) if all(keys):
            return {_key(key, scope): _value(value, scope) for key, value in zip(keys, values, strict=True) if key is not None}
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
    raise _Unreadable(f"{ast.unparse(node)[:60]} is no literal, and nothing is evaluated; write it out")


def _key(node: ast.expr, scope: Mapping[str, Any]) -> str:
    key = _value(node, scope)
    if not isinstance(key, str):
        raise _Unreadable(f"{ascii(key)[:60]} is no name")
    return key
