"""How a study's command ends: killed, stopped, too slow, diverged; and what the next command makes of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from commands import ENDLESS

LONG = ("--set", "tokens=51200")
"""800 steps: some seconds a run, a checkpoint every 40 steps."""


def test_after_kill_nothing_lives_and_the_next_command_finishes(home, until):
    process = home.begin("small", *LONG)
    until(lambda: home.newest_step() or process.poll() is not None)
    assert len(home.alive()) == 4, home.alive()  # the command, the warm parent, two runs
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: home.alive() == {}, seconds=15)
    code, said = home.run("small", *LONG)
    assert code == 0, said
    assert "Traceback" not in said
    assert sorted((run.state, run.attempts, run.step) for run in home.runs()) == [("done", 2, 800)] * 2
    assert home.submission_states() == ["failed", "done"]
    assert [run["state"] for run in home.facts("small", *LONG)["runs"]] == ["done"] * 2


def test_ctrl_c_and_sigterm_stop_with_a_checkpoint_and_the_next_command_goes_on(home, until):
    steps = 0
    for number in (signal.SIGINT, signal.SIGTERM):
        process = home.begin("small", *LONG)
        until(lambda steps=steps, process=process: home.newest_step() > steps or process.poll() is not None)
        process.send_signal(number)
        code, said = home.finish(process)
        assert code == 130, said
        assert "Traceback" not in said
        assert said.strip().endswith("knockout: stopped; the same command goes on from here")
        assert home.alive() == {}
        assert {run.state for run in home.runs()} <= {"cancelled", "done"}
        assert max(run.step for run in home.runs()) == home.newest_step() > steps
        steps = home.newest_step()
    assert home.submission_states() == ["cancelled", "cancelled"]


def test_a_diverging_variant_is_a_result_that_wins_nothing(home):
    code, said = home.run("hot")
    assert code == 0, said
    assert "hot · pico · s0, s1, s2 diverged at step" in said
    facts = home.facts("hot")
    hot = [run for run in facts["runs"] if run["variant"] == "hot"]
    assert {run["state"] for run in hot} == {"diverged"}
    assert all("is not finite at step" in run["reason"] for run in hot)
    assert facts["verdicts"][0]["outcome"] != "supported"
    assert "diverged" in (home.folder / "reports" / "hot" / "report.html").read_text()
    code, said = home.run("hot")
    assert code == 0
    assert "9 reused, nothing to train" in said  # the baseline twice
    assert {run.attempts for run in home.runs()} == {1}


def test_a_run_that_takes_too_long_is_named_and_the_exit_code_says_so(home):
    code, said = home.run("small", *ENDLESS, "--run-seconds", "2", "--slots", "2")
    assert code == 1, said
    assert "timed-out: longer than 2 seconds" in said
    assert "Traceback" not in said
    assert {run.state for run in home.runs()} == {"timed-out"}
    assert home.submission_states() == ["failed"]


def test_kill_under_prefect_leaves_neither_server_nor_runs_and_the_next_command_says_crashed(home, until):
    process = home.start("run", "small", "--no-mlflow", *LONG)
    until(lambda: home.newest_step() or process.poll() is not None)
    assert any("prefect" in line for line in home.alive().values()), home.alive()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: home.alive() == {}, seconds=15)
    code, said = home.knockout("run", "small", "--no-mlflow", *LONG)
    assert code == 0, said
    assert home.flow_runs() == [(item.submission, *ended) for item, ended in zip(
        home.submissions(), [("Crashed", home.submissions()[0].reason), ("Completed", None)], strict=True,
    )]  # fmt: skip


def test_losing_prefects_server_costs_neither_verdicts_nor_runs(home, until):
    process = home.start("run", "small", "--no-mlflow", "--set", "tokens=64000")
    until(lambda: home.newest_step() > 0)
    kill_servers("prefect server start", home=home)
    code, said = home.finish(process)
    assert code == 0, said
    assert "Going on without Prefect." in said
    assert "Traceback" not in said
    assert [run.attempts for run in home.runs()] == [1, 1]
    assert home.submission_states() == ["done"]


def kill_servers(line: str, *, home) -> None:
    """Kill -9 every process of the home whose command line holds these words."""
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if line in words and f"KNOCKOUT_HOME={home.folder}\0".encode() in environment:
            os.kill(int(entry.name), signal.SIGKILL)
