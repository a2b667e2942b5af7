"""Tables on terminals of any width: whole columns, or each row in lines of its own, and nothing cut off."""

from __future__ import annotations

import pytest
from rich.console import Console

from knockout.services import ServiceStatus
from knockout.submission.tables import minute, service_table, submission_table
from knockout.submission.watching import SubmissionState

SERVICES = [
    ServiceStatus("prefect", running=True, healthy=True, url="http://127.0.0.1:4200", pid=1, since=86_400.0),
    ServiceStatus("worker", running=False, healthy=False, url=None, pid=None, since=None),
]
ADDRESS = SERVICES[0].url or ""


def drawn(table: object, *, width: int) -> list[str]:
    console = Console(width=width)
    with console.capture() as taken:
        console.print(table)
    return taken.get().splitlines()


@pytest.mark.parametrize("width", [80, 40, 30])
def test_nothing_is_cut_off_and_no_line_is_longer_than_the_terminal(width: int):
    lines = drawn(service_table(SERVICES), width=width)
    assert max(map(len, lines)) <= width
    told = "".join("".join(lines).split())  # an address may go over two lines
    assert all(word in told for word in ("prefect", "worker", "running", "notrunning", ADDRESS, "1970-01-0"))


def test_a_narrow_terminal_has_lines_instead_of_columns():
    assert drawn(service_table(SERVICES), width=40)[1:5] == [
        "prefect", "  state    running", f"  address  {ADDRESS}", f"  since    {minute(86_400.0)}",
    ]  # fmt: skip
    assert any("prefect" in line and ADDRESS in line for line in drawn(service_table(SERVICES), width=80))


@pytest.mark.parametrize("width", [120, 40])
def test_words_in_brackets_stay(width: int):
    one = SubmissionState("20261130-030332-40b7af", "small", "failed", "no room [bold] for [x]", 0.0, 0, 1)
    assert "[bold] for [x]" in " ".join(" ".join(drawn(submission_table([one]), width=width)).split())
