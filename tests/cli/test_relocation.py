"""A workspace that was copied or moved works where it is, and never reaches back to where it was."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from mlflow import MlflowClient

from knockout.ledger.process import this_process
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import open_workspace
from knockout.services import state, status
from knockout.services.catalog import SERVERS
from knockout.services.processes import identify
from knockout.services.relocation import artifact_root, elsewhere, relocate
from knockout.tracking.store import connect, import_mlflow
from knockout.upkeep.doctor import Diagnosis, diagnose


def test_a_copy_whose_original_is_gone_runs_a_study_and_opens_its_artifacts(finished, tmp_path: Path):
    original, copy = tmp_path / "original", tmp_path / "a copy"
    shutil.copytree(finished.folder, original)
    Ledger(open_workspace(original)).close()
    relocate(original)
    shutil.copytree(original, copy)
    shutil.rmtree(original)

    code, said = finished.knockout("run", "small", "--set", "tokens=1280", "--no-prefect", "--workspace", str(copy))
    assert code == 0, said
    assert "not mirrored" not in said
    assert not original.exists()

    client = connect(copy)
    experiments = client.search_experiments()
    assert {one.name for one in experiments} == {"Default", "small", "other"}
    runs = client.search_runs([one.experiment_id for one in experiments])
    assert all(run.info.artifact_uri.startswith(f"{artifact_root(copy)}/") for run in runs)
    trained = [run for run in runs if "knockout.identity" in run.data.tags]
    assert len(trained) == 6  # two of each study, two with fewer tokens
    for run in trained:
        path = client.download_artifacts(run.info.run_id, "meaning.json")
        assert json.loads(Path(path).read_text())["seed"] == 0
    assert diagnose(open_workspace(copy)) == Diagnosis((), ())


def test_a_copy_frees_what_the_original_holds_and_the_original_keeps_it(finished, tmp_path: Path):
    shutil.copytree(finished.folder, tmp_path / "original")
    original = Ledger(open_workspace(tmp_path / "original"))
    held = next(run for item in original.submissions() for run in original.runs([original.asked(item.submission)[0][0]]))
    original.reopen(held.identity, reason="x")
    assert original.claim(held.identity, owner=this_process())
    original.submit("now", study="x", plan="", owner=this_process(), runs=[])
    shutil.copytree(tmp_path / "original", tmp_path / "copy")

    copy = Ledger(open_workspace(tmp_path / "copy"))
    assert copy.moved_from == str(tmp_path / "original")
    freed = copy.run(held.identity)
    assert freed is not None
    assert (freed.state, freed.owner) == ("failed", None)
    assert freed.reason == f"belongs to {tmp_path / 'original'}, of which this workspace is a copy"
    assert {item.submission: item.state for item in copy.submissions()}["now"] == "failed"
    assert copy.claim(held.identity, owner=this_process())
    kept = original.run(held.identity)
    assert kept is not None
    assert (kept.state, kept.owner) == ("leased", this_process())
    assert Ledger(open_workspace(tmp_path / "copy")).moved_from is None
    original.close()
    copy.close()


def test_a_moved_workspace_keeps_its_leases(tmp_path: Path):
    ledger = Ledger(open_workspace(tmp_path / "before"))
    ledger.submit("now", study="x", plan="", owner=this_process(), runs=[])
    ledger.close()
    (tmp_path / "before").rename(tmp_path / "after")
    moved = Ledger(open_workspace(tmp_path / "after"))
    assert moved.moved_from == str(tmp_path / "before")
    assert [item.state for item in moved.submissions()] == ["running"]
    moved.close()


def test_a_copy_takes_no_server_of_its_original_for_its_own(tmp_path: Path):
    guard = identify(os.getpid())
    assert guard is not None
    path = SERVERS["prefect"].state(tmp_path / "original")
    path.parent.mkdir(parents=True)
    state.write(state.Service("prefect", "http://127.0.0.1:1", 1, 0.0, path, guard), path=path)
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    assert [server.running for server in status(tmp_path / "original") if server.name == "prefect"] == [True]
    assert [server.running for server in status(tmp_path / "copy") if server.name == "prefect"] == [False]


def test_addresses_that_a_person_chose_elsewhere_stay(finished, tmp_path: Path):
    shutil.copytree(finished.folder, tmp_path / "copy")
    import_mlflow()
    client = MlflowClient(f"sqlite:///{tmp_path / 'copy' / 'mlflow' / 'mlflow.db'}")
    made = client.create_experiment("mine", "file:///data/mlflow/artifacts/mine")
    found = relocate(tmp_path / "copy")
    assert found is not None
    assert found.root == artifact_root(finished.folder)
    assert client.get_experiment(made).artifact_location == "file:///data/mlflow/artifacts/mine"
    assert elsewhere(tmp_path / "copy") is None
