"""When a schedule is due, over changes of the clock and after downtime; and that each due time is taken once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from knockout.ledger.process import Owner, host_name, start_time, this_process
from knockout.ledger.store import Ledger
from knockout.ledger.ticks import end_requested, end_tick, last_ticks, request_end, take_tick
from knockout.ledger.workspace import open_workspace

BERLIN = ZoneInfo("Europe/Berlin")
CHANGES = (datetime(2026, 3, 27, tzinfo=BERLIN), datetime(2026, 10, 23, tzinfo=BERLIN))
"""Two days before Berlin's clocks change: on 2026-03-29 and on 2026-10-25."""
DAILY = ((0, 30), (1, 59), (2, 0), (2, 30), (3, 0), (23, 45))
DAYS = 5
CALCULATE = """if True:
    import json, sys
    from datetime import datetime
    from knockout import project
    sys.path.insert(0, str(project.root() / "flows"))
    from knockout.declare.schedules import Schedule
    from schedules.scheduling import last_due, next_dates
    answers = []
    for cron, after, until, count in json.loads(sys.argv[1]):
        asked = Schedule(schedule="s", cron=cron, timezone="Europe/Berlin", studies=["x"])
        begin = datetime.fromisoformat(after)
        if count:
            answers.append([date.isoformat() for date in next_dates(asked, after=begin, count=count)])
        else:
            answers.append(last_due(asked, scheduled=begin, now=datetime.fromisoformat(until)).isoformat())
    print(json.dumps(answers))"""
TAKE = """if True:
    import sys
    from pathlib import Path
    from knockout.ledger.process import this_process
    from knockout.ledger.store import Ledger
    from knockout.ledger.ticks import take_tick
    from knockout.ledger.workspace import Workspace
    ledger = Ledger(Workspace(Path(sys.argv[1])))
    print("ready", flush=True)
    sys.stdin.readline()
    print(take_tick(ledger, schedule="nightly", due=1000.0, owner=this_process()), flush=True)
    sys.stdin.readline()"""


def calculate(*asked: tuple[str, str, str, int]) -> list:
    done = subprocess.run([sys.executable, "-c", CALCULATE, json.dumps(asked)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_due_times_keep_the_local_hour_over_changes_of_the_clock_and_late_runs_stand_for_the_newest():
    spring, autumn = "2027-03-26T12:00+01:00", "2027-10-29T12:00+02:00"
    daily = [(hour, minute, begin) for hour, minute in DAILY for begin in CHANGES]
    at_two, gap, fold, late, fresh, *each = calculate(
        ("0 2 * * *", autumn, "", 4),
        ("30 2 * * *", spring, "", 3),
        ("30 1 * * *", autumn, "", 3),
        ("0 2 * * *", "2027-03-26T02:00+01:00", "2027-04-02T10:00+02:00", 0),
        ("0 2 * * *", "2027-03-26T02:00+01:00", "2027-03-26T02:00:07+01:00", 0),
        *((f"{minute} {hour} * * *", begin.isoformat(), "", DAYS) for hour, minute, begin in daily),
    )
    # Berlin's clocks: 2027-03-28 02:00 -> 03:00, 2027-10-31 03:00 -> 02:00 (Directive 2000/84/EC).
    assert [datetime.fromisoformat(text).astimezone(BERLIN).strftime("%d %H:%M") for text in at_two] == [
        "30 02:00", "31 02:00", "01 02:00", "02 02:00",
    ]  # fmt: skip
    days = [datetime.fromisoformat(text).astimezone(UTC) for text in at_two]
    assert [later - sooner for sooner, later in pairwise(days)] == [
        timedelta(hours=24), timedelta(hours=25), timedelta(hours=24),
    ]  # fmt: skip
    assert [datetime.fromisoformat(text).astimezone(BERLIN).strftime("%d %H:%M") for text in gap] == [
        "27 02:30", "28 03:30", "29 02:30",  # 02:30 does not exist on the 28th
    ]  # fmt: skip
    assert len({datetime.fromisoformat(text).date() for text in fold}) == 3
    assert datetime.fromisoformat(late) == datetime(2027, 4, 2, 2, 0, tzinfo=BERLIN)
    assert datetime.fromisoformat(fresh) == datetime(2027, 3, 26, 2, 0, tzinfo=BERLIN)
    for (hour, minute, begin), found in zip(daily, each, strict=True):
        # The zone's own data: once on each day of the calendar; later by the gap where there is no such time, and the first
        # of two where there are two (PEP 495, fold=0).
        days = [begin + timedelta(days=number) for number in range(DAYS)]
        wanted = [datetime(day.year, day.month, day.day, hour, minute, tzinfo=BERLIN).astimezone(UTC) for day in days]
        assert [datetime.fromisoformat(text).astimezone(UTC) for text in found] == wanted


def test_of_processes_that_take_a_due_time_at_once_one_has_it(tmp_path):
    workspace = open_workspace(tmp_path / "home")
    ledger = Ledger(workspace)
    taking = [
        subprocess.Popen(
            [sys.executable, "-c", TAKE, str(workspace.folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    try:
        for process in taking:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in taking:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [process.stdout.readline().strip() for process in taking if process.stdout is not None]
    finally:
        for process in taking:
            process.kill()
            process.communicate()
    assert answers.count("None") == 1
    assert all("still works on the sweep before" in answer for answer in answers if answer != "None")
    assert take_tick(ledger, schedule="nightly", due=1000.0, owner=this_process()) == "this due time was taken before"
    assert take_tick(ledger, schedule="nightly", due=2000.0, owner=this_process()) is None  # the one that had it is dead
    ledger.close()


def test_a_sweep_in_work_keeps_others_out_and_its_end_is_told(tmp_path):
    ledger = Ledger(open_workspace(tmp_path / "home"))
    here, elsewhere = this_process(), Owner("elsewhere", 7, "x")
    assert take_tick(ledger, schedule="a", due=1.0, owner=elsewhere) is None
    assert take_tick(ledger, schedule="a", due=2.0, owner=here) == "process 7 on elsewhere still works on the sweep before"
    assert take_tick(ledger, schedule="b", due=2.0, owner=here) is None
    end_tick(ledger, schedule="a", due=1.0, state="failed", reason="a claim flipped")
    assert take_tick(ledger, schedule="a", due=0.5, owner=here) == "this due time was taken before"
    assert take_tick(ledger, schedule="a", due=2.0, owner=here) is None
    end_tick(ledger, schedule="a", due=2.0, state="done", reason=None)
    found = last_ticks(ledger)
    assert {name: (tick.due, tick.state, tick.reason) for name, tick in found.items()} == {
        "a": (2.0, "done", None), "b": (2.0, "running", None),
    }  # fmt: skip
    ledger.close()


def test_a_sweep_on_a_host_that_is_gone_holds_a_schedule_for_a_week(tmp_path, monkeypatch: pytest.MonkeyPatch):
    ledger = Ledger(open_workspace(tmp_path / "home"))
    assert take_tick(ledger, schedule="a", due=1.0, owner=Owner("elsewhere", 7, "x")) is None
    later = time.time() + 8 * 86_400
    monkeypatch.setattr("knockout.ledger.ticks.time.time", lambda: later)
    assert take_tick(ledger, schedule="a", due=2.0, owner=this_process()) is None
    ledger.close()


def test_a_sweep_is_asked_to_stop_by_its_schedule_and_one_whose_process_died_has_failed(tmp_path):
    ledger = Ledger(open_workspace(tmp_path / "home"))
    assert not request_end(ledger, schedule="a")
    assert take_tick(ledger, schedule="a", due=1.0, owner=this_process()) is None
    assert not end_requested(ledger, schedule="a", due=1.0)
    assert request_end(ledger, schedule="a")
    assert end_requested(ledger, schedule="a", due=1.0)
    assert "still works on the sweep before" in str(take_tick(ledger, schedule="a", due=2.0, owner=this_process()))
    end_tick(ledger, schedule="a", due=1.0, state="cancelled", reason="stopped by `knockout stop`")
    assert not request_end(ledger, schedule="a")

    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        owner = Owner(host_name(), process.pid, start_time(process.pid) or "")
        assert take_tick(ledger, schedule="b", due=1.0, owner=owner) is None
        assert last_ticks(ledger)["b"].state == "running"
        process.communicate()
    assert last_ticks(ledger)["b"].state == "failed"
    assert f"process {process.pid}" in str(last_ticks(ledger)["b"].reason)
    assert last_ticks(ledger)["a"].state == "cancelled"
    ledger.close()
