"""Machines without a shared disk: workspaces of their own that have only a ledger and a store in common."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from knockout.corpus.prepare import Prepared, prepare
from knockout.declare.corpus import Corpus
from knockout.errors import CorpusError, WorkspaceError
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import Workspace, open_workspace
from knockout.services.environment import quiet_environment
from knockout.services.objects import FILE, VARIABLE, find_store, kept_credentials
from knockout.submission.requests import Request, waiting_requests, withdraw, write_request
from knockout.submission.shared_corpora import fetch_corpora, share_corpus, shared_by_digest
from knockout.training.result import read_result, write_result
from knockout.training.sharing import FollowedMetrics, SharedCheckpoints, fetch_checkpoint, fetch_result, share_result
from knockout.training.spec import METRICS, RESULT, WEIGHTS

CORPUS = """{"corpus": "tiny", "tokenizer": {"kind": "identity"}, "validation": 0.2,
"evaluation": {"tokens": 256, "segments": 8},
"source": {"kind": "markov", "order": 1, "alphabet": 16, "documents": 60, "length": 60}}"""
RUN = "0123456789abcdef0123"


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """An S3-compatible server on a free port."""
    server = pytest.importorskip("moto.server", reason="moto's server is not installed").ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["s3", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty store, which every workspace of the test uses."""
    address = f"file://{tmp_path / 'disk'}"
    if request.param == "s3":
        import boto3

        for name, value in {
            "AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "open-sesame", "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": request.getfixturevalue("s3_server"),
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        bucket = f"lab-{abs(hash(tmp_path))}"
        boto3.client("s3").create_bucket(Bucket=bucket)
        address = f"s3://{bucket}/knockout"
    monkeypatch.setenv(VARIABLE, address)
    return address


@pytest.fixture
def machines(tmp_path: Path) -> tuple[Workspace, Workspace]:
    return open_workspace(tmp_path / "one"), open_workspace(tmp_path / "other")


@pytest.fixture
def small_corpus(tmp_path: Path) -> Callable[[Workspace], Prepared]:
    """Prepares a small corpus in a workspace, or finds it there."""
    declared = Corpus.model_validate_json(CORPUS)
    return lambda workspace: prepare(declared, vocabulary=32, folder=workspace.corpora, base=tmp_path)


def seal(workspace: Workspace, *, loss: float = 1.5) -> None:
    folder = workspace.run(RUN)
    folder.mkdir(parents=True, exist_ok=True)
    for name in (METRICS, WEIGHTS):
        (folder / name).write_bytes(name.encode() * 1000)
    write_result(folder, result={"outcome": "done", "metrics": {"val_loss": loss}}, files=(METRICS, WEIGHTS))


def checkpoint(workspace: Workspace, *, step: int, segments: tuple[int, ...]) -> None:
    """What a training process leaves after a step: segments first, then the checkpoint, of which two are kept."""
    folder = workspace.run(RUN)
    for name in ("metrics", "checkpoints"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for last in segments:
        (folder / "metrics" / f"{last:010d}.parquet").write_text(f"rows up to {last}")
    (folder / "checkpoints" / f"{step:010d}.pt").write_text(f"state after {step}")


def left(workspace: Workspace) -> list[str]:
    folder = workspace.run(RUN)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_result_that_one_machine_sealed_is_read_on_another(store: str, machines: tuple[Workspace, Workspace]):
    one, other = machines
    fetch_result(other, RUN)
    assert read_result(other.run(RUN)) is None
    seal(one)
    share_result(one, RUN)
    fetch_result(other, RUN)
    result = read_result(other.run(RUN))
    assert result is not None
    assert result["metrics"] == {"val_loss": 1.5}
    (other.run(RUN) / WEIGHTS).write_bytes(b"damaged")
    assert read_result(other.run(RUN)) is None, "what comes from a store is checked as what lies here"


def test_a_machine_that_was_taken_for_dead_and_puts_its_own_files_there_spoils_no_result(store: str, machines, tmp_path):
    one, other = machines
    seal(one, loss=1.5)
    share_result(one, RUN)
    late = other.run(RUN)
    late.mkdir(parents=True)
    for name in (METRICS, WEIGHTS):
        (late / name).write_bytes(b"the same run at another speed")
    write_result(late, result={"outcome": "done", "metrics": {"val_loss": 1.5}}, files=(METRICS, WEIGHTS))
    (late / WEIGHTS).unlink()  # it is cut off between the files: a file that vanished is passed over
    sealed = (one.run(RUN) / RESULT).read_text()
    share_result(other, RUN)
    found = find_store(one.folder)
    assert found is not None
    found.put_text(f"runs/{RUN}/{RESULT}", text=sealed)  # and the result stays the first one's
    third = open_workspace(tmp_path / "third")
    fetch_result(third, RUN)
    result = read_result(third.run(RUN))
    assert result is not None
    assert (third.run(RUN) / METRICS).read_bytes() == (one.run(RUN) / METRICS).read_bytes()


def test_a_run_goes_on_elsewhere_from_the_newest_checkpoint_with_exactly_its_metrics(store, machines):
    one, other = machines
    checkpoint(one, step=50, segments=(25, 50))
    with SharedCheckpoints(one, RUN):
        pass
    checkpoint(one, step=75, segments=(60, 75))  # and its machine dies before this is shared
    fetch_checkpoint(other, RUN)
    assert left(other) == ["checkpoints/0000000050.pt", "metrics/0000000025.parquet", "metrics/0000000050.parquet"]
    checkpoint(other, step=80, segments=(80,))
    with SharedCheckpoints(other, RUN):
        pass
    fetch_checkpoint(one, RUN)
    assert (one.run(RUN) / "metrics" / "0000000080.parquet").exists()
    assert not (one.run(RUN) / "metrics" / "0000000060.parquet").exists(), "its steps are in another segment there"
    fetch_checkpoint(other, RUN)
    assert (other.run(RUN) / "checkpoints" / "0000000080.pt").exists()


def test_a_coordinator_follows_the_metrics_of_a_run_that_another_machine_trains(store, machines, monkeypatch):
    one, other = machines
    monkeypatch.setattr("knockout.training.sharing.FOLLOW_SECONDS", 0.0)
    with FollowedMetrics(other, RUN) as followed:
        assert list(followed.look().rglob("*.parquet")) == []
        checkpoint(one, step=50, segments=(25, 50))
        with SharedCheckpoints(one, RUN):
            pass
        found = sorted(path.name for path in followed.look().rglob("*.parquet"))
        assert found == ["0000000025.parquet", "0000000050.parquet"]
        checkpoint(one, step=75, segments=(75,))
        with SharedCheckpoints(one, RUN):
            pass
        assert (followed.look() / "metrics" / "0000000075.parquet").read_text() == "rows up to 75"
    assert left(other) == [], "the run's own folder here is for who trains it here"


def test_every_machine_knows_what_was_handed_over_and_not_what_was_taken_back(store, machines):
    one, other = machines
    request = Request("20260101-000000-abc", study="small", project="/nowhere", pool="p", handed=0.0)
    write_request(request, workspace=one)
    ledgers = Ledger(one), Ledger(other)
    assert [waiting_requests(ledger, known=frozenset()) for ledger in ledgers] == [[request], [request]]
    assert waiting_requests(ledgers[1], known=frozenset({request.submission})) == []
    withdraw(request.submission, ledger=ledgers[1])
    assert waiting_requests(ledgers[1], known=frozenset()) == []
    for ledger in ledgers:
        ledger.close()


def test_a_corpus_is_prepared_on_one_machine_only(store: str, machines, small_corpus):
    one, other = machines
    made = small_corpus(one)
    with pytest.raises(CorpusError):
        shared_by_digest(made.manifest.digest, workspace=other)
    share_corpus(made, workspace=one)
    assert shared_by_digest(made.manifest.digest, workspace=other).manifest == made.manifest
    shutil.rmtree(other.corpora / made.folder.name)
    fetch_corpora("tiny", vocabulary=32, workspace=other)
    assert small_corpus(other).reused


def test_keys_reach_who_shares_and_no_training_process(store: str, tmp_path: Path):
    if store.startswith("s3"):
        assert kept_credentials(tmp_path)["AWS_SECRET_ACCESS_KEY"] == "open-sesame"
    assert "AWS_SECRET_ACCESS_KEY" not in quiet_environment(tmp_path)


def test_an_address_may_lie_in_the_workspace_and_a_store_that_is_not_there_says_so(machines, monkeypatch):
    one, _ = machines
    monkeypatch.delenv(VARIABLE, raising=False)
    assert find_store(one.folder) is None
    assert kept_credentials(one.folder) == {}
    (one.folder / FILE).write_text("nowhere\n")
    with pytest.raises(WorkspaceError, match="is not the address of a store"):
        find_store(one.folder)
    (one.folder / FILE).write_text("file:///proc/nothing\n")
    seal(one)
    with pytest.raises(WorkspaceError, match=r"the store file:///proc/nothing does not take or give"):
        share_result(one, RUN)
    assert os.path.exists(one.run(RUN) / RESULT)
