"""What `check` finds out: which configs a target can run, which limit the others exceed, which dims prevent shared builds.

Everything here is compiled, and no device is needed: where something is run, that is in Triton's interpreter.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tilewright.builder import Builder, BuildRequest
from tilewright.each_candidate import absent, distinct_sample, each_candidate
from tilewright.library import Operator
from tilewright.prediction import predicted_us, try_predict
from tilewright.record import Config, Resources, Status, config_key
from tilewright.target import Target
from tilewright.tryout import Tryout, Tryouts
from tilewright.workload import Workload

# What a template's own fault makes of a build, whatever the target's limits.
_BROKEN: Final = {Status.COMPILE_ERROR: "does not compile", Status.LAUNCH_ERROR: "launch fails"}
# Threads of one block: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; HIP's limit is the same.
MAX_BLOCK_THREADS: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How one config fared on one target.

    Attributes:
        status: `ok`, or how the build failed.
        exceeds: limits of the target that it exceeds, each with both figures.
        cached: whether the build came from the cache.
        tryout: what came of running it in the interpreter; None where that was not asked for, or the target cannot run it.
    """

    config: Config
    status: Status
    message: str
    resources: Resources | None
    exceeds: tuple[str, ...]
    build_s: float
    cached: bool
    tryout: Tryout | None = None

    @property
    def legal(self) -> bool:
        """Whether the target can run it."""
        return self.status is Status.OK and not self.exceeds

    @property
    def broken(self) -> str:
        """What the template does wrong, in words; empty where it was built, or not within the target's limits or the time allowed."""
        return _BROKEN.get(self.status, "")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "config": dict(self.config),
            "legal": self.legal,
            "status": str(self.status),
            "message": self.message,
            "exceeds": list(self.exceeds),
            "resources": msgspec.to_builtins(self.resources),
            "build_s": round(self.build_s, 3),
            "cached": self.cached,
            "run": None if self.tryout is None else self.tryout.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Legality:
    """Verdicts for one workload on one target.

    Attributes:
        leaks: by dim, how many configs' rendered text changes with its extent, so that each extent is built anew.
        absent: where each candidate was asked for, those that are in no config checked.
        unbuilt: likewise, those that are only in configs which the template itself keeps from being built.
        asked: how many configs were to be drawn, where some were; fewer are checked only where the space has no more that are legal.
    """

    workload: Workload
    target: Target
    verdicts: tuple[Verdict, ...]
    leaks: Mapping[str, int]
    absent: tuple[str, ...] = ()
    unbuilt: tuple[str, ...] = ()
    asked: int | None = None

    @property
    def legal(self) -> int:
        """How many of the configs the target can run."""
        return sum(verdict.legal for verdict in self.verdicts)

    @property
    def statuses(self) -> Counter[Status]:
        """Configs by status."""
        return Counter(verdict.status for verdict in self.verdicts)

    @property
    def broken(self) -> Counter[str]:
        """Configs that fail by a fault of the template, by what it does wrong."""
        return Counter(verdict.broken for verdict in self.verdicts if verdict.broken)

    @property
    def tried(self) -> Counter[str]:
        """Configs that were to be run, by verdict."""
        return Counter(verdict.tryout.verdict for verdict in self.verdicts if verdict.tryout is not None)

    @property
    def faulty(self) -> int:
        """How many configs were run and are not known to be right."""
        return sum(verdict.tryout is not None and verdict.tryout.faulty for verdict in self.verdicts)

    def most(self, resource: str) -> int | None:
        """The largest need of a resource (a field of `Resources`) over the configs that were built."""
        needs = [getattr(verdict.resources, resource) for verdict in self.verdicts if verdict.resources is not None]
        return max((need for need in needs if need is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "workload": self.workload.key,
            "target": self.target.arch,
            "name": self.target.name,
            "asked": self.asked,
            "checked": len(self.verdicts),
            "legal": self.legal,
            "broken": self.broken.total(),
            "run": dict(sorted(self.tried.items())),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "limits": {"shared_memory_bytes": self.target.shared_memory_bytes, "registers_per_sm": self.target.registers_per_sm},
            "leaks": dict(self.leaks),
            "absent": list(self.absent),
            "unbuilt": list(self.unbuilt),
            "configs": [verdict.to_json() for verdict in self.verdicts],
        }


def check(
    operator: Operator,
    workload: Workload,
    target: Target,
    builder: Builder,
    *,
    sample: int | None = None,
    each: bool = False,
    given: Sequence[Config] = (),
    schedule: str = "",
    seed: int = 0,
    tryouts: Tryouts | None = None,
) -> Legality:
    """Compile configs of an operator for a target, and run them where that is asked for.

    Args:
        operator: spec and templates.
        workload: what they are compiled for.
        target: where they would run.
        builder: compiles.
        sample: draw so many configs from the space, each once; all of them where it has fewer. By default the author's suggestions are checked.
        each: instead check a few configs in which every candidate occurs, so that each branch of a template is compiled.
        given: instead check these configs.
        schedule: only configs of this one.
        seed: of the draw.
        tryouts: runs, in the interpreter, those that the target can run.

    Raises:
        SpaceError: the space has no legal config.
        TemplateError: the template does not render.
        UsageError: there is no such schedule; or the author's `predict` fails, for a first candidate of a schedule or for a build; or the spec or
            reference, for a run.
        HostError: this machine cannot build, or cannot run the interpreter.
    """
    space = operator.space(workload, target, schedule)
    try_predict(operator.spec, workload, target, space)
    if given:
        drawn = [dict(config) for config in given]
    elif each:
        drawn = each_candidate(space, seed)
    elif sample is not None:
        drawn = distinct_sample(space, sample, random.Random(seed))
    else:
        drawn = space.suggestions() or [space.default()]
    configs = list({config_key(config): config for config in drawn}.values())
    inputs, outputs = operator.spec.inputs(workload), operator.spec.outputs(workload)
    arguments = (*(inputs[name] for name in operator.spec.arguments), *outputs.values())
    sources = [operator.render(workload, target, config) for config in configs]
    futures = [builder.submit(BuildRequest(source=source, arguments=arguments, target=target, outputs=len(outputs))) for source in sources]
    verdicts = []
    for config, source, future in zip(configs, sources, futures, strict=True):
        outcome = future.result()
        limits = outcome.exceeds or exceeded(outcome.resources, target)
        if outcome.status is Status.OK and outcome.resources is not None:
            predicted_us(operator.spec, workload, target, config, outcome.resources)
        verdicts.append(
            Verdict(
                config=config,
                status=outcome.status,
                message=outcome.message,
                resources=outcome.resources,
                exceeds=limits,
                build_s=outcome.build_s,
                cached=outcome.cached,
                tryout=tryouts.of(workload, target, config, source) if tryouts and outcome.status is Status.OK and not limits else None,
            )
        )
    never = tuple(absent(space, configs)) if each else ()
    built = [verdict.config for verdict in verdicts if not verdict.broken]
    unbuilt = tuple(name for name in absent(space, built) if name not in never) if each and built else ()
    leaks = Counter(dim for config in configs for dim in operator.leaking_dims(workload, target, config))
    return Legality(workload=workload, target=target, verdicts=tuple(verdicts), leaks=leaks, absent=never, unbuilt=unbuilt, asked=sample)


def exceeded(resources: Resources | None, target: Target) -> tuple[str, ...]:
    """The limits of a target that a binary exceeds, by what is known of it as a whole: shared memory, threads and registers of one block.

    Those who build judge each kernel by itself. Threads and registers are of one and the same kernel here too: docs/decisions/0026.
    """
    if resources is None:
        return ()
    found = []
    if resources.shared_memory_bytes > target.shared_memory_bytes:
        found.append(f"shared memory of a block: {resources.shared_memory_bytes:,} of {target.shared_memory_bytes:,} bytes")
    threads = (resources.num_warps or 0) * target.warp_size
    if threads > MAX_BLOCK_THREADS:
        found.append(f"threads of a block: {threads:,} of {MAX_BLOCK_THREADS:,}")
    # AMD's registers are counted by lane of a SIMD, not by thread of a pool; there the compiler itself keeps to the limit.
    registers = (resources.registers or 0) * threads
    if target.compile_backend == "cuda" and registers > target.registers_per_sm:
        found.append(f"registers of a block: {registers:,} of {target.registers_per_sm:,}")
    return tuple(found)


def summarize(verdicts: Sequence[Verdict]) -> Mapping[str, int]:
    """Reasons of the configs that are not legal, with how many each, the most frequent first: the limit exceeded, what is wrong, else the status."""
    reasons: Counter[str] = Counter()
    for verdict in verdicts:
        if not verdict.legal:
            reasons.update([limit.partition(":")[0] for limit in verdict.exceeds] or [verdict.broken or str(verdict.status)])
    return dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))  # whatever order the configs were drawn in
