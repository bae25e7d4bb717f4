"""`-w @FILE`: workloads from a text file, wherever `-w` is taken; what is wrong with a line is told with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewright.cli import main, make_parser
from tilewright.errors import ExitCode, HostError, UsageError
from tilewright.workload import parse_weighted
from tilewright.workload_file import MAX_FILE_BYTES, FileLine, each_workload, naming_line, read_workloads


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    path = tmp_path / "shapes.txt"
    path.write_bytes("\ufeff# what the model calls\r\n\r\nM=16,N=64,K=64:2.5   # often\r\n  M=32,N=64,K=64 \n\t\n#M=1\n".encode())
    return path


def test_blank_lines_and_comments_say_nothing(shapes: Path) -> None:
    lines = read_workloads(shapes)
    assert lines == ["M=16,N=64,K=64:2.5", "M=32,N=64,K=64"] and [line.place for line in lines] == [f"{shapes}:3", f"{shapes}:4"]


def test_the_command_line_mixes_both(shapes: Path) -> None:
    for command in (["space", "matmul"], ["check", "matmul"], ["tune", "matmul"], ["render", "matmul"], ["log", "export", "x.jsonl", "--format", "csv"]):
        args = make_parser().parse_args([*command, "-w", "M=1,N=1,K=1", "-w", f"@{shapes}", "-w", "M=2,N=1,K=1"])
        assert args.workloads == ["M=1,N=1,K=1", "M=16,N=64,K=64:2.5", "M=32,N=64,K=64", "M=2,N=1,K=1"]
    assert make_parser().parse_args(["check", "matmul"]).workloads == [], "the default is not what was added to"


def test_space_and_tune_take_the_file_and_tune_goes_by_its_weights(shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["space", "matmul", "-w", f"@{shapes}", "--json"]) == ExitCode.OK
    keys = [space["workload"] for space in json.loads(capsys.readouterr().out)["spaces"]]
    assert [key.partition(",dtype")[0] for key in keys] == ["matmul:K=64,M=16,N=64", "matmul:K=64,M=32,N=64"]
    argv = ["tune", "matmul", "-w", f"@{shapes}", "--device", "interpreter", "--dry-run", "--json", "--log", str(tmp_path / "log.jsonl")]
    assert main(argv) == ExitCode.OK
    assert [workload["workload"] for workload in json.loads(capsys.readouterr().out)["workloads"]] == keys


def test_weights_arrive(shapes: Path) -> None:
    from tilewright.device import Device
    from tilewright.tuner import parse_workloads
    from tilewright.workload import parse_key

    class Known:
        spec = None
        operator = "toy"

        def make_workload(self, text: str) -> object:
            return parse_key(f"toy:{text}")

    device: Device = Known()  # type: ignore[assignment]
    found = parse_workloads(device, [*read_workloads(shapes), "M=32,N=64,K=64:3"], None)
    assert list(found.values()) == [2.5, 4.0]
    with pytest.raises(UsageError, match=rf"{shapes.name}:7: workload 'M=1:0': what follows the colon is its weight"):
        parse_workloads(device, [FileLine.at("M=1:0", shapes, 7)], None)


@pytest.mark.parametrize("command", [["space"], ["check"], ["render"], ["tune", "--device", "interpreter", "--dry-run"]])
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("M=16,N=64", "operator matmul: missing dim K"),
        ("M=16,N=64,Q=1", "unknown workload parameter 'Q'"),
        ("M=16 N=64 K=1", "use commas between parameters"),
        ("M=16,N=64,K=64:heavy", "its weight, a number above 0"),
    ],
)
def test_an_error_names_file_and_line(command: list[str], line: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "shapes.txt"
    path.write_text(f"M=16,N=64,K=64\n\n{line}\n")
    assert main([command[0], "matmul", "-w", f"@{path}", *command[1:]]) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert f"tilewright: error: {path}:3: " in err and said in err


def test_a_faulty_text_of_the_command_line_has_no_place() -> None:
    with pytest.raises(UsageError, match="^no such$"), naming_line("M=1"):
        raise UsageError("no such")
    assert each_workload(["M=1:2", "M=1"], str.lower) == ["m=1", "m=1"]
    assert parse_weighted("M=1:2") == ("M=1", 2.0)


def test_a_file_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["space", "matmul", "-w", f"@{tmp_path / 'none.txt'}"]) == ExitCode.USAGE
    assert "no file" in capsys.readouterr().err
    for name, data, said in (
        ("empty.txt", b"# nothing\n", "has no workload"),
        ("binary.txt", b"M=1\xff", "no UTF-8 text"),
        ("large.txt", b"M=1\n" * (MAX_FILE_BYTES // 4 + 1), "larger than 4 MiB"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UsageError, match=said):
            read_workloads(tmp_path / name)
    with pytest.raises(UsageError, match="is a folder"):
        read_workloads(tmp_path)
    with pytest.raises(UsageError, match="is a device"):
        read_workloads(Path("/dev/zero"))
    with pytest.raises(HostError, match="cannot read"):
        read_workloads(tmp_path / "empty.txt" / "below")
