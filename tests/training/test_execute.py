"""How runs end, as their owner and the ledger see it."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import Bench

from knockout.ledger.speeds import Speed, recall, shape
from knockout.training.execute import Early, Execution, Limits
from knockout.training.metrics import read_metrics
from knockout.training.progress import read_progress
from knockout.training.result import checkpoint_files
from knockout.training.spec import LOG, METRICS, RESULT, WEIGHTS
from knockout.training.stop import BY_USER, Ending

LONG = 64_000_000
COST = ("peak_memory_bytes", "tokens_per_second")


def test_a_run_is_trained_once_and_then_reused(bench: Bench):
    run = bench.ask()
    first, second = bench.execute(run), bench.execute(run)
    assert (first.reused, second.reused) == (False, True)
    said = bench.said(run)
    assert (said.state, said.attempts, said.step, said.owner) == ("done", 1, 100, None)
    assert set(said.metrics) == {"val_loss", "generation_loss", "bits_per_byte", "train_loss", *COST}


def test_what_a_run_took_is_remembered_for_plans_of_its_shape(bench: Bench):
    run, other = bench.ask(), bench.ask(seed=1, tokens=3200)
    bench.execute(run)
    timing = json.loads((run.folder / RESULT).read_text())["timing"]
    assert shape(other.meaning) == shape(run.meaning)
    assert recall(bench.ledger, shapes=[shape(other.meaning)]) == {shape(run.meaning): Speed(**timing)}
    stopped = bench.ask(depth=3)
    bench.execute(stopped, limits=Limits(run_seconds=0.0))
    assert recall(bench.ledger, shapes=[shape(stopped.meaning)]) == {}


def test_train_loss_of_a_result_is_the_mean_of_the_last_fifty_steps(bench: Bench):
    run = bench.ask()
    bench.execute(run)
    losses = [row["value"] for row in read_metrics(run.folder).to_pylist() if row["metric"] == "train_loss"]
    assert bench.said(run).metrics["train_loss"] == pytest.approx(sum(losses[50:]) / 50, rel=1e-12)


@pytest.mark.parametrize(("name", "damage"), [(RESULT, "cut"), (METRICS, "cut"), (WEIGHTS, "removed")])
def test_a_result_whose_files_are_damaged_is_trained_again(bench: Bench, name: str, damage: str):
    run = bench.ask()
    before = {name: value for name, value in bench.execute(run).run.metrics.items() if name not in COST}
    path = run.folder / name
    content = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    again = bench.execute(run)
    assert (again.reused, again.run.state, again.run.attempts) == (False, "done", 2)
    assert {name: value for name, value in again.run.metrics.items() if name not in COST} == before
    assert bench.execute(run).reused


def test_a_run_that_becomes_nan_is_a_result_with_its_step(bench: Bench):
    run = bench.ask(learning_rate=1e6, clip=None, norm={"kind": "none"}, accumulate=1)
    ended = bench.execute(run).run
    assert ended.state == "diverged"
    assert ended.reason == f"the training loss is not finite at step {ended.step}"
    assert 1 < ended.step < 100
    assert ended.metrics == {}
    steps = read_metrics(run.folder)["step"].to_pylist()
    assert max(steps) == ended.step - 1
    again = bench.execute(run)
    assert (again.reused, again.run.attempts) == (True, 1)


def test_why_a_run_does_not_go_on_from_its_newest_checkpoint_is_told_while_it_is_trained(bench: Bench):
    run = bench.ask(tokens=64 * 800, evaluations=8)
    bench.execute(run, early=too_high(run, at=100))
    newest = checkpoint_files(run.folder)[-1]
    newest.write_bytes(b"cut")
    ended = bench.execute(run, early=lambda: "told" if bench.notes else None).run
    assert (ended.state, ended.reason) == ("pruned", "told")
    (note,) = bench.notes
    assert str(newest) in note
    assert note.startswith(("goes on from step", "is trained from its start"))


def test_weights_that_the_last_step_ruins_are_found_by_the_last_evaluation(bench: Bench):
    run = bench.ask(
        learning_rate=1e38, clip=None, norm={"kind": "none"}, tokens=64, evaluations=1, warmup_steps=0, accumulate=1
    )
    ended = bench.execute(run).run
    assert (ended.state, ended.reason) == ("diverged", "the evaluation loss is not finite at step 1")


def too_high(run, *, at: int) -> Early:
    """Prunes a run once its evaluation at a step is there."""

    def early() -> str | None:
        rows = read_metrics(run.folder).to_pylist()
        seen = any(row["metric"] == "val_loss" and row["step"] >= at for row in rows)
        return f"too high at step {at}" if seen else None

    return early


def test_a_run_is_pruned_once_there_is_a_reason_and_goes_on_for_who_has_none(bench: Bench):
    run = bench.ask(tokens=64 * 800, evaluations=8)
    pruned = bench.execute(run, early=too_high(run, at=100)).run
    assert (pruned.state, pruned.reason, pruned.finished) == ("pruned", "too high at step 100", False)
    assert 100 <= pruned.step < 800
    assert (pruned.metrics, (run.folder / RESULT).exists()) == ({}, False)

    again = bench.execute(run, early=too_high(run, at=100))
    assert (again.reused, again.run.state, again.run.attempts) == (True, "pruned", 1)
    later = bench.execute(run, early=too_high(run, at=10_000)).run
    assert (later.state, later.step, later.attempts) == ("done", 800, 2)
    steps = [row["step"] for row in read_metrics(run.folder).to_pylist() if row["metric"] == "train_loss"]
    assert steps == list(range(1, 801))


def test_a_run_that_has_ended_before_there_is_a_reason_is_done(bench: Bench):
    run = bench.ask()
    bench.execute(run)
    ended = bench.execute(run, early=lambda: "too late")
    assert (ended.reused, ended.run.state) == (True, "done")


def test_a_run_that_there_is_a_reason_against_is_not_started(bench: Bench):
    run = bench.ask()
    ended = bench.execute(run, early=lambda: "known already").run
    assert (ended.state, ended.step) == ("pruned", 0)
    assert not (run.folder / LOG).exists()


def test_a_run_that_takes_too_long_is_timed_out_and_goes_on_later(bench: Bench):
    run = bench.ask(tokens=LONG)
    ended = bench.execute(run, limits=Limits(run_seconds=2.0)).run
    assert (ended.state, ended.reason, ended.owner) == ("timed-out", "longer than 2 seconds", None)
    again = bench.execute(run, limits=Limits(run_seconds=2.0)).run
    assert (again.state, again.attempts) == ("timed-out", 2)
    assert again.step > ended.step > 0


@pytest.mark.parametrize("ending", [BY_USER, Ending("timed-out", "the study's limit of 5 s")], ids=lambda one: one.state)
def test_a_stopped_run_says_why_and_has_a_checkpoint_of_its_last_step(bench: Bench, until, ending: Ending):
    run, limits = bench.ask(tokens=LONG), Limits()
    ends: list[Execution] = []
    thread = threading.Thread(target=lambda: ends.append(bench.execute(run, limits=limits)))
    thread.start()
    until(lambda: read_progress(run.folder))
    limits.stop.end(ending)
    limits.stop.end(Ending("cancelled", "too late to say why"))
    thread.join(60)
    assert (ends[0].run.state, ends[0].run.reason) == (ending.state, ending.reason)
    (checkpoint, *_) = sorted((run.folder / "checkpoints").glob("*.pt"), reverse=True)
    assert int(checkpoint.stem) == read_metrics(run.folder)["step"].to_pylist()[-1] >= ends[0].run.step > 0


def test_a_run_that_had_not_started_when_all_was_stopped_costs_no_attempt(bench: Bench):
    run, limits = bench.ask(), Limits()
    limits.stop.set()
    assert bench.execute(run, limits=limits).run.state == "planned"
    assert bench.said(run).attempts == 0


def test_a_process_that_is_killed_leaves_a_failed_run_that_can_be_claimed_again(bench: Bench, until):
    run, ends = bench.ask(tokens=LONG), []
    thread = threading.Thread(target=lambda: ends.append(bench.execute(run)))
    thread.start()
    until(lambda: read_progress(run.folder))
    newest = bench.laboratory.nursery.children[max(bench.laboratory.nursery.children)]
    bench.laboratory.nursery.signal(newest, signal.SIGKILL)
    thread.join(60)
    assert ends[0].run.state == "failed"
    assert (
        ends[0].run.reason
        == f"its process was ended by SIGKILL (out of memory?); see runs/{run.identity}/{LOG} in the workspace"
    )


def test_a_corrupted_shard_fails_the_run_and_is_named(bench: Bench, tmp_path: Path):
    corpus = tmp_path / "corpus"
    shutil.copytree(bench.laboratory.corpus.folder, corpus)
    shard = corpus / "train-00000.arrow"
    shard.chmod(0o644)
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    run = bench.ask()
    ended = bench.execute(run, corpus=corpus).run
    assert ended.state == "failed"
    assert ended.reason is not None
    assert "\n" not in ended.reason
    assert "train-00000.arrow" in ended.reason
    assert ended.reason.endswith(f"see runs/{run.identity}/{LOG} in the workspace")
    assert bench.execute(run).run.state == "done"


@pytest.fixture
def limit(laboratory) -> Iterator:
    """Lower a resource limit of the nursery, and so of the runs that it forks."""
    process, before = laboratory.nursery.process.pid, {}

    def lower(what: int, amount: int) -> None:
        before[what] = resource.prlimit(process, what)
        resource.prlimit(process, what, (amount, before[what][1]))

    laboratory.nursery.num_gpus()
    yield lower
    for what, limits in before.items():
        resource.prlimit(process, what, limits)


def test_a_run_that_needs_more_memory_than_there_is_fails_in_one_line(bench: Bench, limit):
    run = bench.ask(batch=1_000_000, tokens=16_000_000, accumulate=1, warmup_steps=0)
    limit(resource.RLIMIT_AS, 3 * 2**30)
    ended = bench.execute(run).run
    assert ended.state == "failed"
    assert ended.reason is not None
    assert "memory" in ended.reason.lower()
    assert "\n" not in ended.reason
    assert f"see runs/{run.identity}/{LOG} in the workspace" in ended.reason


def test_a_full_disk_at_a_checkpoint_fails_the_run_and_loses_nothing(bench: Bench, limit):
    run = bench.ask()
    limit(resource.RLIMIT_FSIZE, 50_000)
    ended = bench.execute(run).run
    assert ended.state == "failed"
    assert ended.reason is not None
    assert "cannot be written: File too large; see " in ended.reason
    resource.prlimit(bench.laboratory.nursery.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    assert bench.execute(run).run.state == "done"
    assert json.loads((run.folder / RESULT).read_text())["step"] == 100
