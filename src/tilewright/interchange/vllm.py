"""vLLM's files of fused-MoE configs: `E=8,N=7168,device_name=NVIDIA_H200.json`, which maps numbers of tokens to configs.

Source: vLLM's `fused_moe.get_config_file_name`, `get_moe_configs` and `benchmarks/kernels/benchmark_moe.py`: the file is looked up by
the number of experts E, the intermediate size N of one shard, the device and, for quantised or fp32 weights, dtype and block_shape; the
config taken is that of the nearest M.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tilewright.errors import UsageError
from tilewright.interchange.chosen import Chosen
from tilewright.interchange.names import Names, Plain, config_names
from tilewright.knobs import SCHEDULE
from tilewright.record import Value

# What a config must have, in the order of vLLM's files, and what it may have.
REQUIRED: Final = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
OPTIONAL: Final = ("SPLIT_K", "num_ctas", "waves_per_eu", "matrix_instr_nonkdim", "kpack")
# Parts of the file's name that a workload may not say, and which `--set` can.
FILE_PARTS: Final = ("E", "N", "dtype", "block_shape")
# Words that vLLM has for what its weights are; half-precision weights have none.
DTYPES: Final = ("fp8_w8a8", "int8_w8a8", "int8_w8a16", "int4_w4a16", "mxfp4_w4a4", "float32")

_DEVICE: Final = re.compile(r"[A-Za-z0-9 ()+._\-]+")
_BLOCK_SHAPE: Final = re.compile(r"\[\d+,\d+\]")


def parse_set(texts: Iterable[str]) -> dict[str, int | str]:
    """Read `--set NAME=VALUE`: what neither workload nor config says, the same for all.

    Raises:
        UsageError: the name is none that vLLM has, or the value none that it takes.
    """
    given: dict[str, int | str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or name not in (*FILE_PARTS, *REQUIRED, *OPTIONAL):
            raise UsageError(f"--set {text!r} is not NAME=VALUE with a name of: {', '.join((*FILE_PARTS, *REQUIRED, *OPTIONAL))}")
        if name == "dtype":
            if value not in DTYPES:
                raise UsageError(f"--set dtype={value}: vLLM has {', '.join(DTYPES)}; leave it out for half-precision weights")
            given[name] = value
        elif name == "block_shape":
            if not _BLOCK_SHAPE.fullmatch(value.replace(" ", "")):
                raise UsageError(f"--set block_shape={value}: it must be of the form [128,128]")
            given[name] = value.replace(" ", "")
        elif not value.isascii() or not value.isdigit() or int(value) < 1:
            raise UsageError(f"--set {text!r}: {name} must be an integer of 1 or more")
        else:
            given[name] = int(value)
    return given


def vllm_files(chosen: Sequence[Chosen], names: Names, given: Mapping[str, int | str]) -> dict[str, str]:
    """Texts of vLLM's files, by file name.

    Args:
        chosen: the schedules; one for each workload and device.
        names: what vLLM calls knobs and dims.
        given: values that neither has, as of `parse_set`.

    Raises:
        UsageError: the operator does not fit: the message says what is missing, or has no place in vLLM's config.
    """
    if not chosen:
        raise UsageError("nothing to export: no schedule here is both correct and timed; `tilewright log stats` sums up the failures")
    names.check(config_names(one.config for one in chosen) | {name for one in chosen for name in one.workload.parameters})
    files: dict[str, dict[int, tuple[Chosen, dict[str, int]]]] = defaultdict(dict)
    for one in chosen:
        parameters: dict[str, Value] = dict(one.workload.parameters)
        named = {**names.apply(parameters), **{name: given[name] for name in FILE_PARTS if name in given}}
        rows = _dim(one, named, "M")
        file = _file_name(one, named)
        if rows in files[file]:
            other = files[file][rows][0].workload.key
            raise UsageError(f"{one.workload.key} and {other} would both be M={rows} of {file}, which knows no other dims; choose one with -w")
        files[file][rows] = (one, _config(one, names, given))
    return {name: json.dumps({str(rows): config for rows, (_, config) in sorted(entries.items())}, indent=4) + "\n" for name, entries in sorted(files.items())}


def _dim(one: Chosen, named: Mapping[str, Plain], name: str) -> int:
    value = named.get(name)
    if type(value) is not int:
        hint = "" if name == "M" else f", or --set {name}=..."
        raise UsageError(
            f"operator {one.workload.operator} does not fit vLLM's fused-MoE files: {one.workload.key} has no dim {name}; "
            f"say which stands for it: --map DIM={name}{hint}"
        )
    return value


def _file_name(one: Chosen, named: Mapping[str, Plain]) -> str:
    device = one.target.name.replace(" (published limits)", "")
    if not _DEVICE.fullmatch(device):
        raise UsageError(f"device name {device!r} cannot be part of a file's name; it must be what torch.cuda.get_device_name() says")
    device = device.replace(" ", "_")
    if "H200" in device.split("_"):  # as vLLM does: the H200's kinds share one file
        device = "NVIDIA_H200"
    dtype = named.get("dtype") if named.get("dtype") in DTYPES else _dtype(one)
    block_shape = named.get("block_shape", "")
    parts = [f"E={_dim(one, named, 'E')}", f"N={_dim(one, named, 'N')}", f"device_name={device}"]
    parts += [f"dtype={dtype}"] if dtype else []
    parts += [f"block_shape={block_shape}"] if block_shape else []
    return ",".join(parts) + ".json"


def _dtype(one: Chosen) -> str:
    dtypes = set(one.workload.dtypes.values())
    if dtypes <= {"float16", "bfloat16"}:
        return ""
    if dtypes == {"float32"}:
        return "float32"
    raise UsageError(f"{one.workload.key}: vLLM has its own word for these dtypes; say which: --set dtype=... (one of: {', '.join(DTYPES)})")


def _config(one: Chosen, names: Names, given: Mapping[str, int | str]) -> dict[str, int]:
    config = {name: value for name, value in one.config.items() if name != SCHEDULE}
    named: dict[str, Plain | int] = {name: value for name, value in given.items() if name not in FILE_PARTS}
    named |= names.apply(config)
    where = f"operator {one.workload.operator} does not fit vLLM's fused-MoE config: {one.workload.key}"
    missing = [name for name in REQUIRED if name not in named]
    if missing:
        raise UsageError(
            f"{where} has no {', '.join(missing)}; its knobs are {', '.join(config)}: say which stands for it (--map KNOB={missing[0]}) or what it is "
            f"(--set {missing[0]}=...)"
        )
    extra = [name for name in named if name not in (*REQUIRED, *OPTIONAL)]
    if extra:
        raise UsageError(
            f"{where} has {', '.join(extra)}, which vLLM's kernel does not; say which of its names that is (--map KNOB=NAME; it has "
            f"{', '.join((*REQUIRED, *OPTIONAL))}), or leave the knob out (--map KNOB=)"
        )
    found: dict[str, int] = {}
    for name in (*REQUIRED, *OPTIONAL):
        if name in named:
            value = named[name]
            if type(value) is not int:
                raise UsageError(f"{where}: {name}={value!r} must be an integer")
            found[name] = value
    return found
