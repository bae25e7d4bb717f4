"""What an operator's `spec.py` declares: shapes, dtypes, costs and tolerance, without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod

from tilewright.errors import UsageError, nearest
from tilewright.workload import DTYPE_ALIASES, DTYPE_BYTES, MOST_EXTENT, NAME, Workload, parse_parameters

RESERVED_NAMES = frozenset({"cfg", "target", "weight"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Shape, dtype and strides of a tensor.

    Attributes:
        shape: extents.
        dtype: torch dtype name.
        strides: in elements; contiguous where none are given.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_BYTES:
            raise UsageError(f"a tensor of dtype {self.dtype!r}; {nearest(DTYPE_ALIASES.get(self.dtype, str(self.dtype)), DTYPE_BYTES)}")
        if any(extent < 0 for extent in self.shape):
            raise UsageError(f"a tensor of shape {self.shape}: no extent may be below 0")

    @property
    def nbytes(self) -> int:
        """Bytes of its elements, without padding between them."""
        return prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarSpec:
    """A plain number that the operator takes, at the value used for tuning."""

    value: int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorArg:
    """What is known of a call's tensor argument: shape, strides in elements, torch dtype name."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far an output may be from the reference in higher precision.

    Attributes:
        rel_norm: largest allowed ‖out - ref‖₂ / ‖ref‖₂.
        max_error: largest allowed max|out - ref| / rms(ref).
        reason: where the two figures come from.
    """

    rel_norm: float
    max_error: float
    reason: str

    def __post_init__(self) -> None:
        for name, value in (("rel_norm", self.rel_norm), ("max_error", self.max_error)):
            if not 0 <= value < inf:  # no error is over NaN: whatever is wrong would be allowed
                raise UsageError(f"a tolerance whose {name} is {value!r}; it must be a number of 0 or more")


def instead_of(dtype: str, dtypes: Mapping[str, Sequence[str]] | None, parameters: Sequence[str] = ()) -> str:
    """What to do where a dtype cannot be had without a GPU, for the end of a message: only what the operator takes.

    Args:
        dtype: the one that cannot be had.
        dtypes: the operator's words by dtype parameter; None where not known.
        parameters: those that have it; all where not known, and then the words stand alone.
    """
    if dtypes is None:
        return f"use another {' or '.join(parameters) or 'dtype'}, or a GPU"
    named = [f"{name}={word}" for name in parameters for word in dtypes[name] if word != dtype]
    words = named if parameters else [word for word in dict.fromkeys(word for allowed in dtypes.values() for word in allowed) if word != dtype]
    return f"use {' or '.join(words)}, or a GPU" if words else f"use a GPU: the operator takes no other {' or '.join(parameters) or 'dtype'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSpec:
    """One operator class, the same for all its schedules.

    Attributes:
        name: the operator's name, equal to its folder's.
        summary: one line.
        dims: dim names, in the order people write them.
        dtypes: allowed torch dtype names by dtype parameter; the first is the default.
        layouts: allowed words by layout parameter; the first is the default.
        arguments: names of the call's inputs, in order; scalars last.
        inputs: specs of the inputs for a workload, by the names in `arguments`.
        outputs: specs of the outputs for a workload, in the order `launch` takes them.
        flops: floating-point operations of a workload.
        bytes_moved: fewest bytes that must pass through device memory.
        tolerance: allowed error for a workload.
        infer: workload parameters (flat: dims, dtypes, layout) from a call's tensor arguments.
        workload_sets: named lists of workload parameters; `weight` among them says what a microsecond of one is worth (1 where not given).
        buckets: for dims that vary at run time, the extents at which they are tuned.
        mutates: inputs that the operator changes in place.
        schedules: names of templates in the order that their suggestions take turns; those not named follow by name. The first one's is the default.
        predict: analytic time estimate of a config in µs, where the author has one; called as `tilewright.prediction` says.
    """

    name: str
    summary: str
    dims: tuple[str, ...]
    dtypes: Mapping[str, tuple[str, ...]]
    arguments: tuple[str, ...]
    inputs: Callable[[Workload], Mapping[str, TensorSpec | ScalarSpec]]
    outputs: Callable[[Workload], Mapping[str, TensorSpec]]
    flops: Callable[[Workload], float]
    bytes_moved: Callable[[Workload], float]
    tolerance: Callable[[Workload], Tolerance]
    infer: Callable[[Mapping[str, TensorArg]], Mapping[str, int | str]]
    layouts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    workload_sets: Mapping[str, Sequence[Mapping[str, int | str]]] = field(default_factory=dict)
    buckets: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    mutates: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()
    predict: Callable[..., float | None] | None = None

    def __post_init__(self) -> None:
        self._refuse_bare_words()
        if self.predict is not None and not callable(self.predict):
            raise UsageError(f"operator {self.name}: predict is {self.predict!r}; it must be a function of workload, target, config and resources")
        names = [*self.dims, *self.dtypes, *self.layouts]
        for name in names:
            if not NAME.match(name) or name in RESERVED_NAMES or names.count(name) > 1:
                raise UsageError(f"operator {self.name}: {name!r} is not a usable parameter name (a plain name, used once, not cfg, target or weight)")

    def _refuse_bare_words(self) -> None:
        """A word where a tuple of words is meant, as `("float16")`, would be taken for its letters."""
        named = {"dims": self.dims, "arguments": self.arguments, "mutates": self.mutates, "schedules": self.schedules}
        named |= {f"dtypes[{name!r}]": words for name, words in self.dtypes.items()} | {f"layouts[{name!r}]": words for name, words in self.layouts.items()}
        for label, words in named.items():
            if not isinstance(words, (tuple, list)) or not all(isinstance(word, str) for word in words):
                raise UsageError(f"operator {self.name}: {label} is {words!r}; it must be a tuple of names, such as ('a', 'b') or ('a',)")

    def workload(self, parameters: Mapping[str, int | str] | str) -> Workload:
        """The workload of the given parameters, with defaults for dtypes and layouts that are not given.

        Args:
            parameters: a mapping, or text such as `M=16,N=32,K=64,dtype=float16`.

        Raises:
            UsageError: a dim is missing, a name is unknown, or a value is not allowed.
        """
        given = dict(parse_parameters(parameters) if isinstance(parameters, str) else parameters)
        known = [*self.dims, *self.dtypes, *self.layouts]
        for name in given:
            if name not in known:
                raise UsageError(f"operator {self.name}: unknown workload parameter {name!r}; {nearest(name, known)}")
        missing = [name for name in self.dims if name not in given]
        if missing:
            raise UsageError(f"operator {self.name}: missing dim {', '.join(missing)}; give all of {', '.join(f'{d}=...' for d in self.dims)}")
        dims: dict[str, int] = {}
        for name in self.dims:
            extent = given[name]
            if not isinstance(extent, int):
                raise UsageError(f"operator {self.name}: dim {name}={extent!r} must be an integer of 1 or more")
            if extent > MOST_EXTENT:
                raise UsageError(f"operator {self.name}: dim {name}={extent} is more than 64 bits hold, which is {MOST_EXTENT} at most")
            dims[name] = extent
        return Workload(
            operator=self.name,
            dims=dims,
            dtypes={name: self._choice(name, given, allowed) for name, allowed in self.dtypes.items()},
            layout={name: self._choice(name, given, allowed) for name, allowed in self.layouts.items()},
        )

    def _choice(self, name: str, given: Mapping[str, int | str], allowed: tuple[str, ...]) -> str:
        value = str(given.get(name, allowed[0]))
        if value not in allowed:
            raise UsageError(f"operator {self.name}: {name}={value!r} is not supported; {nearest(DTYPE_ALIASES.get(value, value), allowed)}")
        return value

    def workload_set(self, name: str) -> dict[Workload, float]:
        """The workloads of a named set, in order, each with its weight.

        Raises:
            UsageError: there is no such set.
        """
        if name not in self.workload_sets:
            raise UsageError(f"operator {self.name}: no workload set {name!r}; {nearest(name, self.workload_sets)}")
        members: dict[Workload, float] = {}
        for parameters in self.workload_sets[name]:
            plain = {key: value for key, value in parameters.items() if key != "weight"}
            members[self.workload(plain)] = float(parameters.get("weight", 1.0))
        return members
