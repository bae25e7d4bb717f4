"""One line of a log as bytes, and back: JSON, checked both ways, old schemas brought up to date."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from tilewright.errors import LogDamaged, LogError, SchemaTooNew, UsageError
from tilewright.record import SCHEMA, Line

# From a schema to the function that turns a line of it, as plain JSON values, into a line of the next schema.
Upcast = Callable[[dict[str, Any]], dict[str, Any]]
UPCASTS: Final[Mapping[int, Upcast]] = MappingProxyType({})  # schema 1 is the first

# How every line that `encode_line` writes begins; anything else takes the slow path, which looks for the schema properly.
_HEAD: Final = re.compile(rb'\{"kind":"[a-z]+","schema":%d,' % SCHEMA)
_LINE: Final = msgspec.json.Decoder(Line)


class _Header(msgspec.Struct, frozen=True):
    schema: int
    kind: str


_HEADER: Final = msgspec.json.Decoder(_Header)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a log line cannot hold a {type(value).__name__}")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_plain)


def _reject_non_finite(value: Any, path: str) -> None:
    # msgspec writes NaN and infinity as null, which would be read back as a missing value.
    if isinstance(value, float):
        if not math.isfinite(value):
            raise LogError(f"a log line cannot hold {path} = {value!r}: only finite numbers; a failed candidate has a status and no measurement")
    elif isinstance(value, Mapping):
        for name, item in value.items():
            _reject_non_finite(item, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _reject_non_finite(item, f"{path}[{index}]")


def _clean_text(value: Any) -> Any:
    # Output of a crashed compiler, decoded with surrogateescape, has no UTF-8 form.
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_clean_text(name): _clean_text(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean_text(item) for item in value]
    return value


def encode_line(line: Line) -> bytes:
    """One line as UTF-8 JSON with its newline.

    Characters that have no UTF-8 form (lone surrogates from a child's output) become `?`.

    Raises:
        LogError: the line holds NaN or infinity, or a value of the wrong type.
    """
    builtins = msgspec.to_builtins(line, enc_hook=_plain)
    _reject_non_finite(builtins, builtins["kind"])
    try:
        raw = _ENCODER.encode(line)
    except UnicodeEncodeError:
        line = msgspec.convert(_clean_text(builtins), Line)
        raw = _ENCODER.encode(line)
    # What is acknowledged must be readable: a wrong type in a field shows here, not when the log is needed.
    try:
        return _ENCODER.encode(decode_line(raw)) + b"\n"
    except LogDamaged as error:
        raise LogError(f"a log cannot hold this {builtins['kind']} line: {error}") from error


def encode_lines(lines: Iterable[Line]) -> bytes:
    """Lines as the bytes of a log.

    Raises:
        LogError: as `encode_line`.
    """
    return b"".join(map(encode_line, lines))


def decode_line(raw: bytes, upcasts: Mapping[int, Upcast] = UPCASTS) -> Line:
    """A line from its bytes, with or without the newline.

    Args:
        raw: the line.
        upcasts: by schema, the function that turns a line of it into one of the next schema.

    Raises:
        LogDamaged: it is not a line of a known schema; the message says why.
        SchemaTooNew: its schema is newer than this Tilewright's.
    """
    try:
        schema = schema_of(raw)
        if schema == SCHEMA:
            return _LINE.decode(raw)
        return _upcast(msgspec.json.decode(raw), schema, upcasts)
    except LogError:
        raise
    # UsageError: a workload that breaks its own rules. RecursionError: nesting as no writer produces it.
    except (msgspec.MsgspecError, UsageError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise LogDamaged(str(error) or type(error).__name__) from error


def schema_of(raw: bytes) -> int:
    """The schema of a line.

    Raises:
        SchemaTooNew: it is newer than this Tilewright's.
        msgspec.MsgspecError, ValueError, RecursionError: this is not a line.
    """
    if _HEAD.match(raw):
        return SCHEMA
    schema = _HEADER.decode(raw).schema
    if schema > SCHEMA:
        raise SchemaTooNew(
            f"schema {schema}, and this Tilewright reads schemas up to {SCHEMA}: upgrade Tilewright to the version that wrote it; the log is left as it is"
        )
    return schema


def _upcast(value: dict[str, Any], schema: int, upcasts: Mapping[int, Upcast]) -> Line:
    for number in range(schema, SCHEMA):
        if number not in upcasts:
            raise LogDamaged(f"schema {schema} is not known; this Tilewright reads {min(upcasts, default=SCHEMA)} to {SCHEMA}")
        try:
            value = upcasts[number](value)
        except (KeyError, TypeError, AttributeError) as error:
            raise LogDamaged(f"not a line of schema {number}: {error!r}") from error
    line: Line = msgspec.convert({**value, "schema": SCHEMA}, Line)
    return line
