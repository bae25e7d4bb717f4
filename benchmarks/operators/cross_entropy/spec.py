"""Cross-entropy, forward: loss[r] = logsumexp(logits[r, :]) - logits[r, labels[r]]."""

from tilewright.errors import UsageError
from tilewright.operator import OperatorSpec, TensorSpec, Tolerance
from tilewright.workload import DTYPE_BYTES


def inputs(w):
    rows, vocab = w.dims["rows"], w.dims["vocab"]
    return {
        "logits": TensorSpec(shape=(rows, vocab), dtype=w.dtypes["dtype"]),
        "labels": TensorSpec(shape=(rows,), dtype="int64"),
    }


def outputs(w):
    return {"loss": TensorSpec(shape=(w.dims["rows"],), dtype="float32")}


def flops(w):
    # compare, multiply-subtract, exponentiate, add
    return 4.0 * w.dims["rows"] * w.dims["vocab"]


def bytes_moved(w):
    rows, vocab = w.dims["rows"], w.dims["vocab"]
    return float(rows * vocab * DTYPE_BYTES[w.dtypes["dtype"]] + rows * (8 + 4))


def tolerance(w):
    # The loss is a difference of numbers up to some 20, each rounded to fp32: 2 * 20 * 2**-25 absolute. exp2's argument is rounded
    # likewise, the sum is one of vocab / block terms a lane, then a tree: some 16 * 2**-24 of the sum, which is absolute in its logarithm.
    # Losses have an rms of log(vocab) + 2: 6 and more for all but toy vocabularies.
    return Tolerance(
        rel_norm=12 * 2.0**-24,
        max_error=40 * 2.0**-24,
        reason="fp32 exponentials, sums and logarithm: under 2e-6 absolute, of losses of 6 to 14",
    )


def infer(args):
    logits, labels = args["logits"], args["labels"]
    if len(logits.shape) != 2:
        raise UsageError(f"cross_entropy: logits has shape {list(logits.shape)}; it must be [rows, vocab] (flatten leading dims with .reshape)")
    rows, vocab = logits.shape
    if (vocab > 1 and logits.strides[1] != 1) or (rows > 1 and logits.strides[0] != vocab):
        raise UsageError(f"cross_entropy: logits has strides {list(logits.strides)}; pass logits.contiguous()")
    if labels.shape != (rows,) or (rows > 1 and labels.strides != (1,)) or labels.dtype != "int64":
        raise UsageError(f"cross_entropy: labels is {labels.dtype} {list(labels.shape)}; it must be contiguous int64 [{rows}]")
    return {"rows": rows, "vocab": vocab, "dtype": logits.dtype}


SPEC = OperatorSpec(
    name="cross_entropy",
    summary="cross-entropy loss of each row of logits, in fp32",
    dims=("rows", "vocab"),
    dtypes={"dtype": ("bfloat16", "float16", "float32")},
    arguments=("logits", "labels"),
    inputs=inputs,
    outputs=outputs,
    flops=flops,
    bytes_moved=bytes_moved,
    tolerance=tolerance,
    infer=infer,
    workload_sets={
        "smoke": [{"rows": 5, "vocab": 2500, "dtype": "float16"}],
        "llm": [{"rows": r, "vocab": v} for v in (32000, 50257, 128256) for r in (256, 1024, 4096)],
    },
    schedules=("online", "split_vocab"),
)
