"""The end of a training process: its exit code, and the last line of its log."""

from __future__ import annotations

import subprocess
import sys

import pytest

WORK = """if True:
    import os, sys
    import torch
    from knockout.training.processes import exit_code_of
    os._exit(exit_code_of(lambda: {work}))"""


@pytest.mark.parametrize(
    ("work", "code", "said"),
    [
        (
            "torch.empty(2**50).numel()",
            71,
            "out of memory: can't allocate memory: you tried to allocate 4503599627370496 bytes",
        ),
        ("len(bytearray(2**60))", 71, "out of memory: "),
        ("os.write(os.open('/dev/full', os.O_WRONLY), b'x')", 74, "OSError: [Errno 28]"),
        ("open('/proc/none')", 1, "FileNotFoundError: "),
        ("1 // 0", 1, "ZeroDivisionError: integer division or modulo by zero"),
    ],
)
def test_an_error_has_its_exit_code_and_the_last_line_says_it(work: str, code: int, said: str):
    done = subprocess.run([sys.executable, "-c", WORK.format(work=work)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1][: len(said)]) == (code, said)
