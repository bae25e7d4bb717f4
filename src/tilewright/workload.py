"""A workload: one operator at one shape, in one set of dtypes and layouts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tilewright.errors import UsageError

# Bytes an element, by torch's dtype names; also the set of dtypes a workload may name.
DTYPE_BYTES: Final[Mapping[str, int]] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}

# What the same dtypes are called elsewhere.
DTYPE_ALIASES: Final[Mapping[str, str]] = {
    "fp64": "float64",
    "f64": "float64",
    "double": "float64",
    "fp32": "float32",
    "f32": "float32",
    "float": "float32",
    "fp16": "float16",
    "f16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp8e4nv": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
    "fp8_e5m2": "float8_e5m2",
}
# guess: no tensor's extent, nor its number of elements, passes what a 64-bit integer holds.
MOST_EXTENT: Final = 2**63 - 1

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# What stands in a value where the comma before the next parameter was left out.
_ANOTHER: Final = re.compile(r"[\s;]\s*[A-Za-z_][A-Za-z0-9_]*\s*=")
# Layout values are plain words, so that a key text never needs quoting.
_WORD: Final = re.compile(r"[A-Za-z0-9_.\-]+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One operator at one shape.

    Everything that can change which code is right is in here, and in `key`.

    Attributes:
        operator: the operator's name.
        dims: extents by dim name, each at least 1.
        dtypes: torch dtype names by dtype parameter name (`{"dtype": "bfloat16"}`).
        layout: layout words by layout parameter name (`{"b_layout": "col"}`).
    """

    operator: str
    dims: Mapping[str, int]
    dtypes: Mapping[str, str]
    layout: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [*self.dims, *self.dtypes, *self.layout]
        for name in (self.operator, *names):
            if not isinstance(name, str) or not NAME.match(name):
                raise UsageError(f"workload: {name!r} is not a name (letters, digits and _, not starting with a digit)")
        if len(set(names)) != len(names):
            raise UsageError(f"workload: a name stands for two things in {names}; dims, dtypes and layout share one set of names")
        for name, extent in self.dims.items():
            if type(extent) is not int or extent < 1:
                raise UsageError(f"workload: dim {name}={extent!r} must be an integer of 1 or more")
        for name, dtype in self.dtypes.items():
            if dtype not in DTYPE_BYTES:
                raise UsageError(f"workload: {name}={dtype!r} is no dtype; one of: {', '.join(DTYPE_BYTES)}")
        for name, word in self.layout.items():
            if not isinstance(word, str) or not _WORD.match(word) or word.lstrip("-").isdecimal() or word in DTYPE_BYTES:
                raise UsageError(f"workload: layout {name}={word!r} must be a plain word such as 'row'")

    @property
    def parameters(self) -> dict[str, int | str]:
        """All of dims, dtypes and layout in one mapping: dims first, each group sorted by name."""
        merged: dict[str, int | str] = {}
        for group in (self.dims, self.dtypes, self.layout):
            merged.update(sorted(group.items()))
        return merged

    @property
    def key(self) -> str:
        """The canonical key text, e.g. `matmul:K=64,M=16,N=32,dtype=float16,b_layout=col`."""
        return f"{self.operator}:" + ",".join(f"{name}={value}" for name, value in self.parameters.items())

    @property
    def shown(self) -> str:
        """The key's text for people: parameters in the order that the operator's spec declares them, where the workload comes of one."""
        return f"{self.operator}:" + ",".join(f"{name}={value}" for group in (self.dims, self.dtypes, self.layout) for name, value in group.items())

    def __getitem__(self, name: str) -> int | str:
        """The value of a dim, dtype or layout parameter."""
        return self.parameters[name]

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Workload) else NotImplemented


def parse_parameters(text: str) -> dict[str, int | str]:
    """Read `M=16,N=32,dtype=float16` into a mapping: integers as int, the rest as text.

    Raises:
        UsageError: a part is not `name=value`, or a name stands twice.
    """
    values: dict[str, int | str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not NAME.match(name) or not value:
            raise UsageError(f"workload {text!r}: {part!r} is not name=value, as in M=4096,N=4096,K=4096,dtype=float16")
        if name in values:
            raise UsageError(f"workload {text!r}: {name} is given twice")
        if _ANOTHER.search(value):
            raise UsageError(f"workload {text!r}: use commas between parameters, as in {','.join(re.split('[ ;]+', text.strip()))}")
        values[name] = int(value) if re.fullmatch(r"[+-]?\d+", value) else value
    return values


def parse_weighted(text: str) -> tuple[str, float]:
    """Take `:weight` off the end of a workload's parameters; the weight is 1 where there is none.

    Raises:
        UsageError: what follows the colon is no number above 0.
    """
    parameters, colon, weight = text.rpartition(":")
    if not colon:
        return text, 1.0
    try:
        number = float(weight)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise UsageError(f"workload {text!r}: what follows the colon is its weight, a number above 0, as in M=4096,N=4096,K=4096:2.5")
    return parameters, number


def parse_key(text: str) -> Workload:
    """Read a canonical key text (or one with its parts in any order) back into a workload, without its operator's spec.

    Raises:
        UsageError: the text is not of the form `operator:name=value,...`.
    """
    operator, colon, rest = text.partition(":")
    if not colon:
        raise UsageError(f"workload key {text!r} must be of the form operator:name=value,...")
    values = parse_parameters(rest)
    return Workload(
        operator=operator,
        dims={n: v for n, v in values.items() if isinstance(v, int)},
        dtypes={n: v for n, v in values.items() if isinstance(v, str) and v in DTYPE_BYTES},
        layout={n: v for n, v in values.items() if isinstance(v, str) and v not in DTYPE_BYTES},
    )
