"""Comparing outputs with their reference, and the guard zones around them. In process, on CPU tensors."""

import pytest

torch = pytest.importorskip("torch")

from tilewright.children.buffers import ALIGNMENT, Guarded, copy_exact, differs, torch_dtype  # noqa: E402
from tilewright.children.check import compare  # noqa: E402
from tilewright.children.device import describe  # noqa: E402
from tilewright.children.failure import CandidateFailed, classify  # noqa: E402
from tilewright.record import Status  # noqa: E402

NAN, INF = float("nan"), float("inf")
DTYPES = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int16", "int8", "uint8", "bool"]


def guarded(shape=(5, 7), dtype="float32", strides=None):
    return Guarded("output 'c'", shape, torch_dtype(dtype), strides, torch.device("cpu"))


def test_the_two_errors_are_those_of_their_definitions():
    expected = torch.tensor([3.0, 4.0, 0.0, 0.0])
    relative, largest = compare("c", torch.tensor([3.0, 4.0, 0.5, 0.0]), expected)
    assert relative == pytest.approx(0.5 / 5.0)
    assert largest == pytest.approx(0.5 / (5.0 / 2.0))
    assert compare("c", torch.tensor([0.25, 0.0]), torch.zeros(2)) == (0.25, 0.25)
    assert compare("c", torch.zeros(0), torch.zeros(0)) == (0.0, 0.0)


def test_integers_and_booleans_compare_as_numbers():
    assert compare("c", torch.tensor([2**40, 3]), torch.tensor([2**40, 3])) == (0.0, 0.0)
    assert compare("c", torch.tensor([True, False]), torch.tensor([True, True]))[0] > 0.5


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_what_is_not_finite_never_passes(value):
    with pytest.raises(CandidateFailed, match=r"1 of 3 elements are NaN or infinite.*first at \[1\]") as failed:
        compare("c", torch.tensor([1.0, value, 3.0]), torch.tensor([1.0, 2.0, 3.0]))
    assert failed.value.status is Status.WRONG_RESULT
    with pytest.raises(CandidateFailed):
        compare("c", torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, value, 3.0]))


def test_what_the_reference_has_too_passes():
    expected = torch.tensor([1.0, NAN, INF, -INF])
    assert compare("c", expected.clone(), expected) == (0.0, 0.0)
    with pytest.raises(CandidateFailed):
        compare("c", torch.tensor([1.0, NAN, INF, INF]), expected)
    relative, _ = compare("c", torch.tensor([1.5, NAN, INF, -INF]), expected)
    assert relative == pytest.approx(0.5)


def test_a_nan_that_nobody_wrote_is_not_the_references():
    output = guarded((4,))
    output.poison(0)
    output.tensor[:2] = torch.tensor([1.0, NAN])
    expected = torch.tensor([1.0, NAN, NAN, NAN])
    with pytest.raises(CandidateFailed, match="2 of 4 elements were never written"):
        compare("c", output.tensor, expected, output.pattern(0))
    output.tensor[2:] = NAN
    assert compare("c", output.tensor, expected, output.pattern(0)) == (0.0, 0.0)


def test_large_values_do_not_overflow_the_norm():
    expected = torch.full((4,), 1e30)
    assert compare("c", expected * 1.01, expected)[0] == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_shows_in_every_dtype(dtype):
    buffer = guarded(dtype=dtype)
    buffer.poison(0)
    first = buffer.bits.clone()
    if buffer.tensor.dtype.is_floating_point:
        assert buffer.tensor.float().isnan().all()
    buffer.poison(1)
    assert buffer.tensor.dtype.is_floating_point == bool((buffer.bits == first).all())
    assert (buffer.bits == buffer.pattern(1)).all()
    assert not buffer.damage()


def test_the_tensor_is_aligned_and_shaped_as_asked():
    buffer = guarded((3, 5), "float16", (8, 1))
    assert buffer.tensor.data_ptr() % ALIGNMENT == 0
    assert tuple(buffer.tensor.shape) == (3, 5) and buffer.tensor.stride() == (8, 1)
    assert guarded((), "float32").tensor.shape == () and guarded((0, 4)).tensor.numel() == 0


@pytest.mark.parametrize(
    ("element", "said"),
    [
        (35, "4 bytes past its end, the first 0 bytes after it"),
        (135, "the first 400 bytes after it"),
        (-2, "4 bytes before its start, the first 8 bytes ahead"),
    ],
)
def test_a_stray_write_is_found_and_placed(element, said):
    buffer = guarded()
    buffer.poison(0)
    buffer._raw.view(torch.float32)[buffer._start // 4 + element] = 1.0
    assert buffer.damage() and said in buffer.describe_damage()


def test_a_write_between_rows_is_found():
    buffer = guarded((3, 5), "float32", (8, 1))
    buffer.poison(0)
    buffer.tensor.fill_(1.0)
    assert not buffer.damage()
    buffer.tensor.as_strided((3, 8), (8, 1), buffer.tensor.storage_offset())[0, 6] = 1.0
    assert buffer.damage() and "between its rows" in buffer.describe_damage()


def test_a_row_past_the_end_falls_into_the_guard_zone():
    buffer = guarded((2, 4), "float32", (2**20, 1))
    buffer.tensor.as_strided((3, 4), (2**20, 1), buffer.tensor.storage_offset())[2, 3] = 1.0
    assert buffer.damage()


def test_copies_keep_strides_gaps_and_broadcasts():
    padded = torch.arange(24.0).view(3, 8)[:, :5]
    copy = copy_exact(padded)
    assert copy.stride() == padded.stride() and not differs(copy, padded) and copy.data_ptr() != padded.data_ptr()
    assert copy_exact(torch.ones(1, 3).expand(4, 3)).stride() == (0, 1)
    copy[1, 1] = NAN
    assert differs(copy, padded)


class OutOfResources(Exception):
    """Named as Triton's."""


def _fine():
    pass


def _broken():
    raise RuntimeError("CUDA error: unspecified launch failure")


@pytest.mark.parametrize(
    ("error", "synchronize", "status", "poisoned"),
    [
        (RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"), _fine, Status.CRASH, True),
        (RuntimeError("CUDA error: misaligned address"), _fine, Status.CRASH, True),
        (RuntimeError("CUDA error: device-side assert triggered"), _fine, Status.CRASH, True),
        (ValueError("anything"), _broken, Status.CRASH, True),
        (OutOfResources("out of resource: shared memory, Required: 320000"), _fine, Status.OUT_OF_RESOURCES, False),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 TiB"), _fine, Status.OUT_OF_RESOURCES, False),
        (RuntimeError("Triton Error [CUDA]: too many resources requested for launch"), _fine, Status.OUT_OF_RESOURCES, False),
        (RuntimeError("Triton Error [CUDA]: invalid argument"), _fine, Status.LAUNCH_ERROR, False),
        (TypeError("launch() takes 3 positional arguments"), _fine, Status.LAUNCH_ERROR, False),
    ],
)
def test_exceptions_have_their_status(error, synchronize, status, poisoned):
    failed = classify(error, "first launch", synchronize)
    assert (failed.status, failed.poisoned) == (status, poisoned)
    assert failed.message.startswith(f"first launch: {type(error).__name__}: {error}")


def test_a_child_without_a_device_says_why():
    if torch.cuda.is_available():
        assert "numbered from 0" in describe(f"cuda:{torch.cuda.device_count()}")["absent"]
    else:
        told = describe("cuda:0")
        assert "target" not in told and told["absent"].startswith(f"torch {torch.__version__} ")
    assert describe("interpreter")["toolchain"]["torch"] == torch.__version__
