"""The examples of the README, as they stand there, and their types."""

import pathlib
import re
import subprocess
import sys

import pytest

README = (pathlib.Path(__file__).parents[1] / "README.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_there_are_examples():
    assert len(EXAMPLES) == 2


@pytest.mark.parametrize(
    ("example", "told"),
    [
        (
            0,
            [
                r"video H264 1",
                r"1 source, 25 frames, 3 of them key frames",
                r"DepacketizerStats\(frames=25, dropped=0, .*",
            ],
        ),
        (
            1,
            [
                r"PMT on PID 4096 \[\(256, 'h264'\), \(257, 'aac'\)\]",
                r"\d+ avc1\.\S+ \(320, 180\)",
                r"\('onMetaData', .*",
                r"0 H264 sequence_header key \d+",
            ],
        ),
    ],
)
def test_an_example_says_what_is_in_the_files(flv_file, ts_file, capture, folder, example, told):
    command = [sys.executable, "-c", EXAMPLES[example]]
    lines = subprocess.run(
        command, cwd=folder, check=True, timeout=60, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()
    for line in told:
        assert any(re.fullmatch(line, one) for one in lines), f"no line {line} in {lines[:8]}"


@pytest.mark.parametrize("example", [0, 1])
def test_the_types_of_an_example_are_right(tmp_path, example):
    (tmp_path / "example.py").write_text(EXAMPLES[example])
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--ignore-missing-imports",
        "--disable-error-code",
        "no-untyped-call",
        "example.py",
    ]
    told = subprocess.run(command, cwd=tmp_path, timeout=60, stdout=subprocess.PIPE, text=True)
    assert told.returncode == 0, told.stdout


def test_the_stubs_are_those_of_the_module(tmp_path):
    command = [sys.executable, "-m", "mypy.stubtest", "millstream"]
    told = subprocess.run(command, cwd=tmp_path, timeout=60, stdout=subprocess.PIPE, text=True)
    assert told.returncode == 0, told.stdout
