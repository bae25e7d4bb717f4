"""What calls of one workload are made on: inputs, the reference's outputs, guarded outputs, and copies to rotate through."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from math import ceil
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch

from tilewright.canonical import sha256_text
from tilewright.children.arena import packed_copies
from tilewright.children.buffers import Guarded, copy_exact, differs, finite, torch_dtype
from tilewright.children.draw_cost import DrawCost
from tilewright.children.failure import HostFault, OperatorFault, is_device_memory_error, operator_fault
from tilewright.children.modules import operator_module
from tilewright.operator import OperatorSpec, TensorSpec, Tolerance, instead_of
from tilewright.roofline import operand_sets, set_bytes
from tilewright.workload import Workload

# Fresh inputs and their reference may take this long for each candidate; where they take longer, as many candidates share them.
# Of 25 ms a candidate; a 4096³ product in single precision takes about 3 ms (H200, 2026-11).
FRESH_S: Final = 0.004
REFERENCE: Final = "the reference"
_SETS_BYTES: Final = 4 * 2**30  # guess: two copies of operands of 2 GiB, which are cold at one copy anyway


def _reference_module(operator: str, folder: Path) -> ModuleType:
    path, wanted = folder / "reference.py", "make_inputs(workload, specs, generator, device)"
    if not path.is_file():
        raise OperatorFault(f"operator {operator}: {path} is missing; write it, with {wanted} and reference(workload, inputs)")
    module = operator_module(folder, "reference.py")
    if not callable(getattr(module, "make_inputs", None)):
        raise OperatorFault(f"operator {operator}: {path} defines no function make_inputs; define {wanted}")
    return module


class Operands:
    """Everything that candidates of one workload share.

    Args:
        operator: the operator's name.
        folder: its folder.
        workload: shape and dtypes.
        seed: of all random data.
        device: torch's.
        l2_bytes: second-level cache of the device, 0 where timing does not rotate.
        fresh_s: what fresh inputs and their reference may cost each candidate.
        default: gives the outputs of the author's default schedule on these operands; asked only where there is no reference.

    Attributes:
        spec: the operator's spec.
        inputs: tensors and numbers by name, fresh ones after each `draw`.
        expectations: outputs by name: the reference's, or where the operator declares none, those of each trusted candidate.
        tolerance: how far an output may be from them.
        fresh: whether the present candidate is the first on these inputs, none having run since they were drawn.
        disturbed: whether candidates of other workloads ran since they were drawn.
        outputs: guarded tensors, in the order that `launch` takes them.

    Raises:
        OperatorFault: the operator's own code fails.
    """

    def __init__(
        self,
        *,
        operator: str,
        folder: Path,
        workload: Workload,
        seed: int,
        device: Any,
        l2_bytes: int,
        fresh_s: float = FRESH_S,
        default: Callable[[Operands], Any] | None = None,
    ) -> None:
        self.operator, self.workload, self.seed = operator, workload, seed
        self._device, self._l2_bytes, self._fresh_s, self._default = device, l2_bytes, fresh_s, default
        self.spec: OperatorSpec = self._guarded("loading spec.py", lambda: operator_module(folder, "spec.py").SPEC)
        self.reference: Any = self._guarded("loading reference.py", lambda: _reference_module(operator, folder))
        self._input_specs = self._guarded("SPEC.inputs", lambda: dict(self.spec.inputs(workload)))
        self._output_specs = self._guarded("SPEC.outputs", lambda: dict(self.spec.outputs(workload)))
        self.tolerance: Tolerance = self._guarded("SPEC.tolerance", lambda: self.spec.tolerance(workload))
        if not hasattr(self.reference, "reference"):
            reason = f"two results of the operator's precision are compared: twice {self.tolerance.reason}"
            self.tolerance = Tolerance(rel_norm=2 * self.tolerance.rel_norm, max_error=2 * self.tolerance.max_error, reason=reason)
        self._refuse_dtypes()
        self.outputs: list[Guarded] = []
        self.inputs: dict[str, Any] = {}
        self.expectations: dict[str, dict[str, Any]] = {}
        self.fresh = self.disturbed = False
        self._used = False
        self._pristine: dict[str, Any] = {}
        self._sets: list[list[Any]] = []
        self._epoch = 0
        self._uses_left = 0
        self._cost: DrawCost | None = None
        self.draw()

    def _guarded(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (OperatorFault, HostFault):
            raise
        except BaseException as error:  # SystemExit among them: it is the operator's all the same
            if is_device_memory_error(error):
                advice = "end what else runs there, or take a smaller workload"
                raise OperatorFault(f"{self.workload.key} needs more device memory than is free ({error}); {advice}") from error
            raise operator_fault(self.operator, what, error) from error

    def _refuse_dtypes(self) -> None:
        named = {**self._input_specs, **self._output_specs}
        wrong = [name for name, spec in named.items() if isinstance(spec, TensorSpec) and spec.dtype == "bfloat16"]
        if wrong and self._device.type == "cpu":
            fault = f"Triton's interpreter computes bfloat16 wrongly, and {', '.join(wrong)} is of it"
            raise OperatorFault(f"{self.workload.key}: {fault}; {instead_of('bfloat16', self.spec.dtypes)}")

    def advance(self) -> None:
        """Fresh inputs for the next candidate, where their cost allows it; anyway after `spoil`."""
        self.draw_ahead()
        self.fresh = not self._used and not self.disturbed
        self._used = True
        self._uses_left -= 1

    def draw_ahead(self) -> None:
        """Draw what the next candidate needs, while nobody waits; nothing where it shares the present inputs."""
        if self._uses_left <= 0 and self._cost is not None:
            self._uses_left += max(0, ceil(self._cost.seconds() / self._fresh_s) - 1)
            self._cost = None  # where it cost more than a candidate may pay, some more share it
        if self._uses_left <= 0:
            self.draw()

    def spoil(self) -> None:
        """A candidate may have written anywhere: have everything made again before the next one."""
        self._uses_left, self._cost = 0, None
        self._sets = []
        self.outputs = []

    def draw(self) -> None:
        """New inputs from the next seed, and the reference's outputs for them; on a device, without waiting for them."""
        cost = DrawCost(self._device)
        self._epoch += 1
        self.inputs, self.expectations, self._pristine = {}, {}, {}  # freed before as much is allocated again
        self.inputs = self._guarded("make_inputs", self._make_inputs)
        self._pristine = self._guarded("copying inputs", lambda: {name: copy_exact(value) for name, value in self._tensors()})
        if not self.outputs:
            self.outputs = self._guarded("allocating outputs", self._make_outputs)
        self.expectations = self._guarded("reference", self._make_expectations)
        self.restore(self.spec.mutates)
        cost.end()
        # The first one also pays for what libraries set up once: its cost says nothing.
        self._uses_left, self._cost = 1, cost if self._epoch > 1 else None
        self._used = self.disturbed = False

    def _make_inputs(self) -> dict[str, Any]:
        digest = sha256_text(f"{self.seed}:{self.workload.key}:{self._epoch}")
        generator = torch.Generator(device=self._device).manual_seed(int(digest[:15], 16))
        made = dict(self.reference.make_inputs(self.workload, self._input_specs, generator, self._device))
        if set(made) != set(self.spec.arguments) or set(self._input_specs) != set(self.spec.arguments):
            raise ValueError(f"names differ: SPEC.arguments {list(self.spec.arguments)}, SPEC.inputs {list(self._input_specs)}, make_inputs {list(made)}")
        for name, spec in self._input_specs.items():
            if isinstance(spec, TensorSpec):
                self._compare_spec(name, made[name], spec, strides=True)
        return made

    def _tensors(self) -> list[tuple[str, Any]]:
        return [(name, value) for name, value in self.inputs.items() if isinstance(value, torch.Tensor)]

    def _make_expectations(self) -> dict[str, dict[str, Any]]:
        if hasattr(self.reference, "reference"):
            return {REFERENCE: self._make_expected()}
        # No reference: candidates are clustered around those that are trusted, the vendors and the author's default.
        calls = {f"vendor {name}": functools.partial(vendor, self.workload, self.inputs) for name, vendor in getattr(self.reference, "VENDORS", {}).items()}
        if self._default is not None:
            calls["the default schedule"] = functools.partial(self._default, self)
        found: dict[str, dict[str, Any]] = {}
        failed = []
        for name, call in calls.items():
            try:
                outputs = call()
                self.synchronize()
            except HostFault:
                raise
            except Exception as error:
                failed.append(f"{name}: {type(error).__name__}: {error}")
                continue
            finally:
                self.restore(self.spec.mutates)
            named = dict(zip(self._output_specs, outputs if isinstance(outputs, tuple | list) else [outputs], strict=False))
            if [tuple(tensor.shape) for tensor in named.values()] != [tuple(spec.shape) for spec in self._output_specs.values()]:
                failed.append(f"{name}: outputs of other shapes than SPEC.outputs says")
            elif not all(bool(finite(tensor).all()) for tensor in named.values()):
                failed.append(f"{name}: NaN or infinity")
            else:
                found[name] = {key: copy_exact(tensor) for key, tensor in named.items()}
        if not found:
            raise ValueError(f"there is no reference(), and no candidate to trust instead ({'; '.join(failed) or 'no vendor, no default schedule'})")
        return found

    def _make_expected(self) -> dict[str, Any]:
        expected = dict(self.reference.reference(self.workload, self.inputs))
        if set(expected) != set(self._output_specs):
            raise ValueError(f"names differ: SPEC.outputs {list(self._output_specs)}, reference {list(expected)}")
        for name, spec in self._output_specs.items():
            if tuple(expected[name].shape) != tuple(spec.shape):
                raise ValueError(f"output {name!r} has shape {tuple(expected[name].shape)}, SPEC.outputs says {tuple(spec.shape)}")
            # Whatever a candidate computes, there is nothing to compare with. At the first draw alone: it waits for the device.
            if self._epoch == 1 and expected[name].numel() and not bool(finite(expected[name]).any()):
                raise ValueError(f"output {name!r} has no finite element, only NaN or infinity")
        return expected

    @staticmethod
    def _compare_spec(name: str, tensor: Any, spec: TensorSpec, *, strides: bool) -> None:
        if tuple(tensor.shape) != tuple(spec.shape) or tensor.dtype != torch_dtype(spec.dtype):
            raise ValueError(f"input {name!r} is {tensor.dtype} {tuple(tensor.shape)}, SPEC.inputs says {spec.dtype} {tuple(spec.shape)}")
        if strides and spec.strides is not None and tuple(tensor.stride()) != tuple(spec.strides):
            raise ValueError(f"input {name!r} has strides {tuple(tensor.stride())}, SPEC.inputs says {tuple(spec.strides)}")

    def _make_outputs(self) -> list[Guarded]:
        return [
            Guarded(f"output {name!r}", tuple(spec.shape), torch_dtype(spec.dtype), spec.strides, self._device) for name, spec in self._output_specs.items()
        ]

    @property
    def input_values(self) -> list[Any]:
        """The inputs, in the order that `launch` takes them."""
        return [self.inputs[name] for name in self.spec.arguments]

    @property
    def arguments(self) -> list[Any]:
        """A checked call's inputs and outputs, in the order that `launch` takes them."""
        return [*self.input_values, *(output.tensor for output in self.outputs)]

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs, in the order that `launch` takes them."""
        return list(self._output_specs)

    def restore(self, names: tuple[str, ...]) -> None:
        """Give inputs their values back."""
        for name in names:
            if name in self._pristine:
                self.inputs[name].copy_(self._pristine[name])

    def mutations(self) -> Mapping[str, Any]:
        """For each input that must not change, a bool tensor on the device: whether it did."""
        return {name: differs(self.inputs[name], kept) for name, kept in self._pristine.items() if name not in self.spec.mutates}

    def synchronize(self) -> None:
        """Wait for the device."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    @property
    def set_bytes(self) -> int:
        """Bytes of one call's inputs and outputs."""
        return set_bytes(self.spec, self.workload)

    def sets(self) -> list[list[Any]]:
        """Inputs and outputs for each of the calls to rotate through, made at first use; without rotation the checked call's own.

        Outputs rotate with the inputs: written over and over, one output would stay in L2, and a kernel bound by memory would
        seem up to twice as fast as the roofline, which counts reads and writes, allows.
        """
        if not self._l2_bytes:
            return [self.arguments]
        if not self._sets:
            free, _ = torch.cuda.mem_get_info(self._device)
            count = operand_sets(self.set_bytes, self._l2_bytes, min(_SETS_BYTES, free // 4))
            self._sets = self._guarded("allocating operands to rotate through", lambda: packed_copies(self.arguments, count, self._device))
        return self._sets

    def input_sets(self) -> list[dict[str, Any]]:
        """The rotating sets' inputs by name, for vendors."""
        return [dict(zip(self.spec.arguments, arguments, strict=False)) for arguments in self.sets()]

    def refresh_sets(self) -> None:
        """Give the rotating sets the present inputs."""
        for index in range(len(self.sets())):
            self.ready_set(index)

    def ready_set(self, index: int) -> list[Any]:
        """A rotating set with the present inputs, whatever was written over them; returns its outputs."""
        arguments = self.sets()[index]
        for kept, value in zip(arguments, self.input_values, strict=False):
            if isinstance(value, torch.Tensor) and kept is not value:
                kept.copy_(value)
        return arguments[len(self.spec.arguments) :]

    @property
    def nbytes(self) -> int:
        """Bytes held: inputs and their copies, expected outputs, guarded outputs, rotating sets."""
        expected = [tensor for outputs in self.expectations.values() for tensor in outputs.values()]
        values = [*self.inputs.values(), *self._pristine.values(), *expected, *(value for one in self._sets for value in one)]
        storages = {value.untyped_storage().data_ptr(): value.untyped_storage().nbytes() for value in values if isinstance(value, torch.Tensor)}
        held: int = sum(storages.values())
        return held + sum(output.nbytes for output in self.outputs)
