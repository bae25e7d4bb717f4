"""Operators, each a folder: `spec.py`, `reference.py`, and one `<schedule>.py.jinja` for each schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tilewright.canonical import sha256_text
from tilewright.errors import TemplateError, TilewrightError, UsageError, nearest
from tilewright.folders import SPEC_FILE, VARIABLE, operator_folders, shipped_templates
from tilewright.inference import call_tensors
from tilewright.knobs import SCHEDULE, Config, listing
from tilewright.operator import OperatorSpec, Tolerance
from tilewright.space import Space
from tilewright.spec_file import load_spec
from tilewright.target import Target
from tilewright.template import SUFFIX, Source, Template
from tilewright.workload import NAME, Workload

REFERENCE_FILE: Final = "reference.py"
# Spaces kept, one for each workload and target lately asked for. A session that comes round to more workloads than this makes each space
# anew at every turn (60 ms; 72 workloads, 2026-11). guess: hundreds of workloads are tuned in several sessions.
_SPACES_KEPT: Final = 256

__all__ = ["Operator", "Survey", "find_operator", "find_operators", "known_operator", "shipped_templates", "survey"]


class Operator:
    """One operator class. Its spec and its templates are loaded when first asked for.

    Attributes:
        name: the folder's name.
        folder: absolute.
    """

    def __init__(self, folder: Path) -> None:
        """Name an operator's folder, without reading any of its files.

        Raises:
            UsageError: the folder has no spec.py, or its name is no plain name.
        """
        self.folder: Final = folder.resolve()
        self.name: Final = self.folder.name
        self._spec: OperatorSpec | None = None
        self._templates: dict[str, Template] | None = None
        self._loaded: dict[Path, Template] = {}  # alone, before all are asked for
        self._spaces: dict[tuple[Workload, Target, str], Space] = {}
        if not NAME.match(self.name):
            raise UsageError(f"{self.folder}: an operator's folder is named after it: letters, digits and _, not starting with a digit")
        if not (self.folder / SPEC_FILE).is_file():
            raise UsageError(f"{self.folder}: no {SPEC_FILE}; an operator's folder holds {SPEC_FILE}, {REFERENCE_FILE} and <schedule>{SUFFIX}")

    def __repr__(self) -> str:
        return f"Operator({str(self.folder)!r})"

    @property
    def reference(self) -> Path:
        """The file with inputs, reference and vendor candidates; it imports torch, so only a child process loads it."""
        return self.folder / REFERENCE_FILE

    @property
    def spec(self) -> OperatorSpec:
        """What `spec.py` declares as SPEC, with the `predict` of `predict.py` where there is one.

        Raises:
            UsageError: it does not load, or declares no SPEC of this name.
        """
        if self._spec is None:
            self._spec = load_spec(self.folder)
        return self._spec

    def workload(self, parameters: Mapping[str, int | str] | str) -> Workload:
        """The workload of the given parameters, with what the spec says of it tried out: a fault of the spec is told here, once.

        Raises:
            UsageError: as `OperatorSpec.workload`; or one of the spec's functions fails, or gives what it must not.
        """
        workload = self.spec.workload(parameters)
        inputs = self._asked("inputs", workload)
        if tuple(inputs) != self.spec.arguments:
            raise UsageError(f"{self.folder / SPEC_FILE}: inputs are named {tuple(inputs)}, and arguments {self.spec.arguments}; make them the same")
        for field, kind in (("outputs", Mapping), ("flops", (int, float)), ("bytes_moved", (int, float)), ("tolerance", Tolerance)):
            value = self._asked(field, workload)
            if not isinstance(value, kind):
                raise UsageError(f"{self.folder / SPEC_FILE}: {field} gives {value!r}, of the wrong type; docs/authoring.md says which it must be")
        self._asked("infer", call_tensors(self.spec, workload))
        return workload

    def _asked(self, field: str, argument: Any) -> Any:
        try:
            return getattr(self.spec, field)(argument)
        except TilewrightError as error:
            raise type(error)(f"{self.folder / SPEC_FILE}: {field}: {error}") from error
        except (Exception, SystemExit) as error:
            raise UsageError(f"{self.folder / SPEC_FILE}: {field} raises {type(error).__name__}: {error}; correct it") from error

    @property
    def templates(self) -> Mapping[str, Template]:
        """Templates by schedule name, sorted.

        Raises:
            TemplateError: there is none, or one does not load.
        """
        if self._templates is None:
            loaded = [self._loaded.get(path) or Template.load(path) for path in self.folder.glob(f"*{SUFFIX}")]
            if not loaded:
                raise TemplateError(f"{self.folder}: no template; add <schedule>{SUFFIX}, such as tiled{SUFFIX}")
            self._templates = {template.name: template for template in sorted(loaded, key=lambda template: template.name)}
        return self._templates

    @property
    def template_hashes(self) -> frozenset[str]:
        """SHA-256 of each template's text as its file is now, without parsing it; of a file that cannot be read, none."""
        found = set()
        for path in self.folder.glob(f"*{SUFFIX}"):
            with suppress(OSError, UnicodeDecodeError):
                found.add(sha256_text(path.read_text(encoding="utf-8")))
        return frozenset(found)

    def space(self, workload: Workload, target: Target, schedule: str = "") -> Space:
        """The space of all schedules, raced as one, or of one of them alone.

        Raises:
            SpaceError: a template's declarations break the rules.
            TemplateError: a template's knob section fails.
            UsageError: there is no such schedule, or the spec orders schedules that are not there.
        """
        key = (workload, target, schedule)
        space = self._spaces.pop(key, None)
        if space is None:
            names = self.schedules
            if schedule and schedule not in names:
                raise UsageError(f"operator {self.name}: no schedule {schedule!r}; {nearest(schedule, names)}")
            programs = {name: self.templates[name].program(workload, target) for name in names if schedule in ("", name)}
            where = f"{workload.shown} for {target.arch}" + (f" with schedule {schedule!r} alone" if schedule and len(names) > 1 else "")
            space = Space(programs, origin=self._origin, where=where, named=len(names) > 1)
        self._spaces[key] = space
        if len(self._spaces) > _SPACES_KEPT:
            del self._spaces[next(iter(self._spaces))]
        return space

    @property
    def schedules(self) -> list[str]:
        """Names of the schedules in the order that their suggestions take turns: as the spec has them, those that it does not name by name.

        Raises:
            TemplateError: there is none, or one does not load.
            UsageError: the spec orders schedules that are not there.
        """
        names = list(self.templates)
        for name in self.spec.schedules:
            if name not in names:
                raise UsageError(f"{self.folder / SPEC_FILE}: schedules names {name!r}, of which there is no template; {nearest(name, names)}")
        return list(dict.fromkeys((*self.spec.schedules, *names)))

    @property
    def _origin(self) -> str:
        templates = list(self.templates.values())
        return str(templates[0].path if len(templates) == 1 else self.folder)

    def template(self, config: Config) -> Template:
        """The template that a config is for.

        Raises:
            UsageError: the config names no schedule of this operator.
        """
        alone = self._alone(config)
        if alone is not None:
            return alone
        names = list(self.templates)
        name = config.get(SCHEDULE, names[0] if len(names) == 1 else None)
        if not isinstance(name, str):
            raise UsageError(f"operator {self.name}: config {dict(config)!r} does not say which schedule; {listing(list(names))}")
        if name not in self.templates:
            raise UsageError(f"operator {self.name}: no schedule {name!r}; {nearest(name, names)}")
        return self.templates[name]

    def _alone(self, config: Config) -> Template | None:
        """The template of the schedule that a config names, where it has a file, loaded without the others: each takes some 0.1 s."""
        if self._templates is not None:
            return None
        wanted = f"{config.get(SCHEDULE)}{SUFFIX}"
        path = next((path for path in self.folder.glob(f"*{SUFFIX}") if path.name == wanted), None)
        if path is not None and path not in self._loaded:
            self._loaded[path] = Template.load(path)
        return None if path is None else self._loaded[path]

    def template_hash(self, config: Config) -> str:
        """SHA-256 of the text of the template that a config is for."""
        return self.template(config).hash

    def render(self, workload: Workload, target: Target, config: Config) -> Source:
        """The module of a config, after matching it against what its template declares.

        Raises:
            SpaceError: the config is not in the space of this workload and target.
            TemplateError: the template fails, or what it renders is no standalone Python module with a `launch`.
        """
        return self.template(config).render(workload, target, config)

    def instantiate(self, workload: Workload, target: Target, config: Config, *, built: str = "") -> Source:
        """The module of a config by one pass through its template's declarations; see `Template.instantiate`.

        Raises:
            SpaceError, TemplateError, UsageError: as `render`.
        """
        return self.template(config).instantiate(workload, target, config, built=built)

    def leaking_dims(self, workload: Workload, target: Target, config: Config) -> tuple[str, ...]:
        """Dims whose extent changes the rendered text, and so keeps workloads from sharing one Source."""
        return self.template(config).leaking_dims(workload, target, config)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What is found where operators are looked for.

    Attributes:
        operators: by name, sorted; none of their files is read yet.
        faults: why a folder is no operator, by folder.
        clashes: where an operator's name is found a second time, and is passed over.
    """

    operators: Mapping[str, Operator]
    faults: Mapping[Path, str]
    clashes: Mapping[Path, str]


def survey(folders: Sequence[Path] = ()) -> Survey:
    """Look for operators, and for what is wrong with those that cannot be had.

    Args:
        folders: looked into beside TILEWRIGHT_TEMPLATES, entry points and the shipped ones; each holds operators' folders, or is one.

    Raises:
        UsageError: a folder is missing, or holds no operator.
    """
    found: dict[str, Operator] = {}
    faults: dict[Path, str] = {}
    clashes: dict[Path, str] = {}
    for folder in operator_folders(folders):
        try:
            operator = Operator(folder)
        except UsageError as error:
            faults[folder.resolve()] = str(error)
            continue
        known = found.setdefault(operator.name, operator)
        if known.folder != operator.folder:
            clashes[operator.folder] = f"operator {operator.name!r} is in two places: {known.folder} and {operator.folder}; rename one, or leave its folder out"
    return Survey(operators=dict(sorted(found.items())), faults=faults, clashes=clashes)


def find_operators(folders: Sequence[Path] = ()) -> dict[str, Operator]:
    """All operators, by name: those of the given folders, of TILEWRIGHT_TEMPLATES, of entry points, and the shipped ones.

    A folder holds operators' folders, or is one itself. One that is no operator for want of a spec or of a plain name is passed over:
    `survey` names it.

    Raises:
        UsageError: a folder is missing or holds no operator, or two different folders hold an operator of one name.
    """
    return dict(_unambiguous(survey(folders)).operators)


def known_operator(name: str, folders: Sequence[Path] = ()) -> Operator | None:
    """The operator of that name, or None where no folder is named so.

    Raises:
        UsageError: as `find_operators`, or a folder of that name is no operator.
    """
    found = _unambiguous(survey(folders))
    for folder, reason in found.faults.items():
        if folder.name == name and name not in found.operators:
            raise UsageError(reason)
    return found.operators.get(name)


def find_operator(name: str, folders: Sequence[Path] = ()) -> Operator:
    """The operator of that name.

    Raises:
        UsageError: there is none, or two, or it is faulty.
    """
    operator = known_operator(name, folders)
    if operator is None:
        raise UsageError(f"no operator {name!r}; {nearest(name, find_operators(folders))}. More are found with --templates DIR or {VARIABLE}")
    return operator


def _unambiguous(found: Survey) -> Survey:
    for reason in found.clashes.values():
        raise UsageError(reason)
    return found
