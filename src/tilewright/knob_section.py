"""A template's knob section: the part of its syntax tree that declares the space, cut out, compiled once, and run for each point."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from jinja2 import nodes

from tilewright.declare import Cfg
from tilewright.errors import TemplateError, nearest

CFG: Final = "cfg"
_METHODS: Final = tuple(name for name in vars(Cfg) if not name.startswith("_"))
# Nodes that need other files, or that Jinja compiles apart from the template's own body.
_REFUSED: Final = (nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport, nodes.Block)
# Nodes whose output is text on its way out, and not a value that a later declaration could read.
_BODIES: Final = (nodes.Template, nodes.If, nodes.For, nodes.With, nodes.Scope, nodes.ScopedEvalContextModifier)
# Nodes that evaluate only some of their children, or evaluate them when called.
_BRANCHES: Final = (nodes.CondExpr, nodes.And, nodes.Or, nodes.Compare, nodes.Macro, nodes.CallBlock)


def knob_section(tree: nodes.Template) -> tuple[nodes.Template, bool]:
    """Cut a parsed template down to its declarations.

    Kept is everything up to the last top-level node that uses `cfg`, without the text and expressions that would be printed.

    Args:
        tree: the parsed template; it is changed in place.

    Returns:
        The section, and whether every pass over it meets the same knobs.

    Raises:
        TemplateError: the template uses other templates, or `cfg` for anything but calling its declarations.
    """
    for refused in tree.find_all(_REFUSED):
        raise TemplateError(f"line {refused.lineno}: {type(refused).__name__.lower()} is not for templates; a schedule is one file, read from top to bottom")
    declarations = {id(use.node): use for use in tree.find_all(nodes.Getattr) if isinstance(use.node, nodes.Name) and use.node.name == CFG}
    for name in tree.find_all(nodes.Name):
        if name.name == CFG and id(name) not in declarations:
            raise TemplateError(f"line {name.lineno}: {CFG} is for declarations alone, written as {CFG}.{_METHODS[0]}(...): it cannot be assigned or passed on")
    for use in declarations.values():
        if use.attr not in _METHODS:
            raise TemplateError(f"line {use.lineno}: {CFG} has no {use.attr!r}; {nearest(use.attr, _METHODS)}")
    declaring = _declaring_names(tree)
    fixed = not _varies(tree, _depending_names(tree, declaring), declaring)
    statements = _statements(tree.body)
    last = max((position for position, node in enumerate(statements) if _uses(node, declaring)), default=-1)
    tree.body = _silent(statements[: last + 1], declaring)
    return tree, fixed


def _statements(body: list[nodes.Node]) -> list[nodes.Node]:
    """A body with each expression that Jinja gathers into one output node on its own, so that what follows can be cut."""
    flat: list[nodes.Node] = []
    for node in body:
        if isinstance(node, nodes.Output):
            flat += [nodes.Output([part], lineno=part.lineno) for part in node.nodes]
        else:
            flat.append(node)
    return flat


def _silent(body: list[nodes.Node], declaring: set[str]) -> list[nodes.Node]:
    """A body that prints nothing: its declarations are run for their effect, and the rest of its output is dropped."""
    kept: list[nodes.Node] = []
    for node in _statements(body):
        if isinstance(node, nodes.Output):
            if _uses(node, declaring):
                kept.append(nodes.ExprStmt(node.nodes[0], lineno=node.lineno))
            continue
        if isinstance(node, _BODIES):
            for field in ("body", "else_"):
                if hasattr(node, field):
                    setattr(node, field, _silent(getattr(node, field), declaring))
            if isinstance(node, nodes.If):
                for branch in node.elif_:
                    branch.body = _silent(branch.body, declaring)
            if isinstance(node, nodes.For) and _suggests_alone(node, declaring):
                node = nodes.If(nodes.Getattr(nodes.Name(CFG, "load"), "_collecting", "load"), [node], [], [], lineno=node.lineno)
        kept.append(node)
    return kept


def _suggests_alone(loop: nodes.For, declaring: set[str]) -> bool:
    """Whether a loop only states suggestions: what it sets ends with it, so that passes which collect none may leave it out."""
    methods = {use.attr for use in loop.find_all(nodes.Getattr) if isinstance(use.node, nodes.Name) and use.node.name == CFG}
    macros = declaring - {CFG}
    return methods == {"suggest"} and not _uses(loop, macros) and loop.find(nodes.NSRef) is None


def _names(node: nodes.Node) -> Iterator[str]:
    if isinstance(node, nodes.Name):
        yield node.name
    if isinstance(node, nodes.NSRef):
        yield node.name
    for name in node.find_all((nodes.Name, nodes.NSRef)):
        assert isinstance(name, (nodes.Name, nodes.NSRef))  # find_all promises no more than an expression
        yield name.name


def _uses(node: nodes.Node, names: set[str]) -> bool:
    return any(name in names for name in _names(node))


def _declaring_names(tree: nodes.Template) -> set[str]:
    """`cfg`, and the names of macros that use it, directly or through another."""
    found = {CFG}
    while True:
        more = {macro.name for macro in tree.find_all(nodes.Macro) if _uses(macro, found)} - found
        if not more:
            return found
        found |= more


def _depending_names(tree: nodes.Template, declaring: set[str]) -> set[str]:
    """All names whose value may differ from point to point."""
    found = set(declaring)
    while True:
        before = len(found)
        _spread(tree, found, inside=False)
        if len(found) == before:
            return found


def _spread(node: nodes.Node, found: set[str], *, inside: bool) -> None:
    """Add the names that are assigned from names already found, or under a condition on them."""
    if isinstance(node, (nodes.Assign, nodes.AssignBlock, nodes.For, nodes.With, nodes.Macro, nodes.CallBlock)) and (inside or _uses(node, found)):
        found.update(name.name for name in node.find_all(nodes.NSRef))
        found.update(name.name for name in node.find_all(nodes.Name) if name.ctx in ("store", "param"))
        if isinstance(node, nodes.Macro):
            found.add(node.name)
    inside = inside or (isinstance(node, nodes.If) and _uses(node.test, found)) or (isinstance(node, nodes.For) and _uses(node.iter, found))
    for child in node.iter_child_nodes():
        _spread(child, found, inside=inside)


def _varies(node: nodes.Node, depending: set[str], declaring: set[str]) -> bool:
    """Whether a declaration stands where some points reach it and others do not."""
    branching = (
        (isinstance(node, nodes.If) and _uses(node.test, depending))
        or (isinstance(node, nodes.For) and (_uses(node.iter, depending) or (node.test is not None and _uses(node.test, depending))))
        or isinstance(node, _BRANCHES)
    )
    if branching and _declares(node, declaring):
        return True
    return any(_varies(child, depending, declaring) for child in node.iter_child_nodes())


def _declares(node: nodes.Node, declaring: set[str]) -> bool:
    """Whether a knob may be declared below this node; a `require` or `suggest` alone changes no path."""
    methods = {use.attr for use in node.find_all(nodes.Getattr) if isinstance(use.node, nodes.Name) and use.node.name == CFG}
    macros = declaring - {CFG}
    return bool(methods - {"require", "suggest"}) or (bool(macros) and _uses(node, macros))
