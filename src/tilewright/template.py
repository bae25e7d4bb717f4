"""A template: one schedule's file, which declares its knobs and renders its kernel."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import jinja2

from tilewright.canonical import sha256_text
from tilewright.declare import Cfg, Cut, Declared, Program, Schedule, run_pass
from tilewright.environment import make_environment, split_filter
from tilewright.errors import SpaceError, TemplateError, nearest
from tilewright.knob_section import knob_section
from tilewright.knobs import SCHEDULE, Config, Split, listing
from tilewright.space import Space
from tilewright.target import Target
from tilewright.template_fault import template_fault
from tilewright.workload import NAME, Workload

SUFFIX: Final = ".py.jinja"
# What a rendered module may import: it has to run where Tilewright is not installed.
ALLOWED_IMPORTS: Final = ("torch", "triton", "__future__")
# Spaces kept, one for each workload and target. With more in a session, each is made anew at every turn (60 ms; 72 workloads, 2026-11). guess.
_SPACES_KEPT: Final = 256

_ENVIRONMENT: Final = make_environment()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A rendered, standalone Python module.

    Attributes:
        text: the module; equal texts are one Source, whichever workloads ask for it.
        hash: SHA-256 of `text`.
        schedule: the template's name.
        template_hash: SHA-256 of the template's text.
    """

    text: str
    hash: str
    schedule: str
    template_hash: str


class _Section:
    """A program that runs a compiled knob section with a workload's and a target's values."""

    __slots__ = ("_names", "_run", "_template", "unconditional")

    def __init__(self, template: Template, run: Callable[[dict[str, Any], Cfg], None], names: dict[str, Any], *, unconditional: bool) -> None:
        self._template = template
        self._run = run
        self._names = names
        self.unconditional: Final = unconditional

    def __call__(self, cfg: Cfg) -> None:
        try:
            self._run(self._names, cfg)
        except Cut:
            raise
        except Exception as error:
            raise self._template.located(error, self._names, cfg) from error


class Template:
    """One schedule of an operator.

    Attributes:
        name: the schedule's name: the file's, without `.py.jinja`.
        path: where it was loaded from; messages name it.
        text: its text.
        hash: SHA-256 of its text.
    """

    def __init__(self, name: str, path: Path, text: str) -> None:
        """Parse and compile a template.

        Raises:
            TemplateError: the name is no plain name, or the text is not a template; the message names file and line.
        """
        self.name: Final = name
        self.path: Final = path
        self.text: Final = text
        self.hash: Final = sha256_text(text)
        self._spaces: dict[tuple[Workload, Target], Space] = {}
        self._checked: set[str] = set()
        if not NAME.match(name):
            raise TemplateError(f"{path}: schedule name {name!r} must be letters, digits and _, not starting with a digit")
        try:
            self._whole: Final = self._compiled(text)
            tree = _ENVIRONMENT.parse(text, name, str(path))
            self._assigned: Final = frozenset(node.name for node in tree.find_all(jinja2.nodes.Name) if node.ctx != "load")
            section, self._unconditional = knob_section(tree)
            self._section: Final = self._compiled(section)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(f"{path}:{error.lineno}: {error.message}") from error
        except TemplateError as error:
            line, colon, rest = str(error).removeprefix("line ").partition(": ")
            raise TemplateError(f"{path}:{line}: {rest}" if colon and line.isdecimal() else f"{path}: {error}") from error

    @classmethod
    def load(cls, path: Path) -> Template:
        """Read a template from its file.

        Raises:
            TemplateError: the file cannot be read, or is not a template.
        """
        if not path.name.endswith(SUFFIX):
            raise TemplateError(f"{path}: a template's file is named <schedule>{SUFFIX}")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TemplateError(f"{path}: cannot be read: {error}") from error
        return cls(path.name.removesuffix(SUFFIX), path, text)

    def program(self, workload: Workload, target: Target) -> Program:
        """The declarations, for one workload and target."""
        root = self._section.root_render_func
        environment, name, blocks = self._section.environment, self._section.name, self._section.blocks
        context_class = environment.context_class
        names = self._visible(workload, target)
        parent = {**environment.globals, **names}

        def compile_filter(text: str) -> Callable[[Split], object]:
            return split_filter(_ENVIRONMENT, text, names)

        def run(names: dict[str, Any], cfg: Cfg) -> None:
            cfg._compile = compile_filter
            parent["cfg"] = cfg
            for _ in root(context_class(environment, parent, name, blocks)):
                pass

        return _Section(self, run, names, unconditional=self._unconditional)

    def space(self, workload: Workload, target: Target) -> Space:
        """The space of this schedule alone."""
        key = (workload, target)
        space = self._spaces.pop(key, None)
        if space is None:
            space = Space({self.name: self.program(workload, target)}, origin=str(self.path), where=f"{workload.key} for {target.arch}")
        self._spaces[key] = space
        if len(self._spaces) > _SPACES_KEPT:
            del self._spaces[next(iter(self._spaces))]
        return space

    def render(self, workload: Workload, target: Target, config: Config) -> Source:
        """The module of a config.

        Raises:
            SpaceError: the config is not in the space of this workload and target.
            TemplateError: the template fails, or what it renders is no standalone Python module with a `launch`.
        """
        if config.get(SCHEDULE, self.name) != self.name:
            raise SpaceError(f"{self.path}: config is for schedule {config[SCHEDULE]!r}, not {self.name!r}")
        checked = self.space(workload, target).validate({name: value for name, value in config.items() if name != SCHEDULE})
        return self._source(workload, target, checked)

    def instantiate(self, workload: Workload, target: Target, config: Config, *, built: str = "") -> Source:
        """The module of a config, by one pass through the declarations: as `render`, without probing a space that nobody searches.

        Args:
            workload: what it is for.
            target: what it is for.
            config: its values are matched against the candidates; those of other schedules and of knobs not reached are refused.
            built: hash of a source that was built before: where the module is that one, parsing it again would tell nothing (3 ms).

        Raises:
            SpaceError: the config is not in the space of this workload and target.
            TemplateError: as `render`.
        """
        if config.get(SCHEDULE, self.name) != self.name:
            raise SpaceError(f"{self.path}: config is for schedule {config[SCHEDULE]!r}, not {self.name!r}")
        values = {name: value for name, value in config.items() if name != SCHEDULE}

        def pick(declared: Declared) -> int:
            if declared.name not in values:
                raise SpaceError(f"config {values!r} has no value for knob {declared.name!r}; {listing(declared.values)}")
            return declared.knob.index(values[declared.name])

        schedule = Schedule(self.name, self.program(workload, target))
        cfg = run_pass(schedule, pick)
        unknown = [name for name in values if name not in cfg._config]
        if unknown:
            known = sorted(declared.name for declared in schedule.order)
            raise SpaceError(f"{self.path}: config {values!r} has a knob {unknown[0]!r} that is not declared at this point; {nearest(str(unknown[0]), known)}")
        if cfg._violations:
            raise SpaceError(f"{self.path}: config {values!r} is refused by its template: {'; '.join(cfg._violations)}")
        return self._source(workload, target, cfg._config, built)

    def _source(self, workload: Workload, target: Target, checked: Config, built: str = "") -> Source:
        text, _ = self._rendered(workload, target, checked)
        source_hash = sha256_text(text)
        if source_hash != built and source_hash not in self._checked:
            self._check_module(text)
            self._checked.add(source_hash)
        return Source(text=text, hash=source_hash, schedule=self.name, template_hash=self.hash)

    def leaking_dims(self, workload: Workload, target: Target, config: Config) -> tuple[str, ...]:
        """Dims whose extent changes the rendered text, and so keeps workloads from sharing one Source.

        Each dim is changed by itself, and the config carried over: knobs keep their values, splits all parts but the outermost. Extents at which
        the config would have other knobs, as those of a branch for several tiles, say nothing: another config is another text.

        Raises:
            SpaceError: the config is not in the space of this workload and target.
        """
        text = self.render(workload, target, config).text
        return tuple(dim for dim in workload.dims if any(other != text for other in self._variants(workload, target, config, dim)))

    def _variants(self, workload: Workload, target: Target, config: Config, dim: str) -> Iterator[str]:
        extent = workload.dims[dim]
        for changed in sorted({2 * extent, extent + 1, extent + 16, max(1, extent // 2)} - {extent}):
            other = replace(workload, dims={**workload.dims, dim: changed})
            try:
                text, knobs = self._rendered(other, target, config)
            except (SpaceError, TemplateError):  # that extent does not offer these tiles; the others may
                continue
            if knobs == config.keys() - {SCHEDULE}:
                yield text

    def _rendered(self, workload: Workload, target: Target, config: Config) -> tuple[str, Set[str]]:
        """The canonical text of a config that was checked, or carried over from a workload for which it was, and the knobs that it reaches."""

        def pick(declared: Declared) -> int:
            return declared.knob.carried(config.get(declared.name))

        schedule = Schedule(self.name, lambda cfg: None)
        cfg = Cfg(schedule, pick, cutting=False)
        names = self._visible(workload, target)
        cfg._compile = lambda text: split_filter(_ENVIRONMENT, text, names)
        try:
            raw = "".join(self._whole.root_render_func(self._whole.new_context({**names, "cfg": cfg})))
        except Exception as error:
            raise self.located(error, names, cfg) from error
        lines = [line.rstrip() for line in raw.split("\n")]
        return "\n".join(lines).strip("\n") + "\n", cfg._config.keys()

    def _check_module(self, text: str) -> None:
        try:
            tree = ast.parse(text, f"<rendered {self.name}>")
        except SyntaxError as error:
            line = (error.text or "").strip()
            raise TemplateError(f"{self.path}: the rendered module is not valid Python: {error.msg}, in its line {error.lineno}: {line}") from error
        for node in _statements(tree):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or "."] if isinstance(node, ast.ImportFrom) else []
            for module in modules:
                if module.partition(".")[0] not in ALLOWED_IMPORTS:
                    raise TemplateError(f"{self.path}: the rendered module imports {module!r}; it may import only torch and triton")
        if not any(isinstance(node, ast.FunctionDef) and node.name == "launch" for node in tree.body):
            raise TemplateError(f"{self.path}: the rendered module defines no launch(*inputs, *outputs, *scratch)")

    def _compiled(self, source: str | jinja2.nodes.Template) -> jinja2.Template:
        code = _ENVIRONMENT.compile(source, self.name, str(self.path))
        return jinja2.Template.from_code(_ENVIRONMENT, code, _ENVIRONMENT.globals)

    def _visible(self, workload: Workload, target: Target) -> dict[str, Any]:
        return {**workload.parameters, "target": target}

    def located(self, error: Exception, names: Mapping[str, Any], cfg: Cfg) -> SpaceError | TemplateError:
        """The error as a user is shown it."""
        return template_fault(error, self.path, names, self._assigned, cfg._violations)


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements of a module: a walk that leaves out expressions, which are nine nodes in ten and hold no imports."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, None)
            if isinstance(inner, list):
                waiting.extend(inner)
