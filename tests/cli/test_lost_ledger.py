"""A workspace whose ledger was lost: what lies in it is taken up, and not believed blindly."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from knockout.ledger.workspace import open_workspace, write_json
from knockout.upkeep.doctor import diagnose


def test_results_are_reused_but_for_one_that_was_altered_and_is_trained_again(finished, tmp_path: Path):
    shutil.copytree(finished.folder, tmp_path / "home", symlinks=True)
    for path in (tmp_path / "home").glob("ledger.db*"):
        path.unlink()
    workspace = open_workspace(tmp_path / "home")
    meanings = {path.parent: json.loads(path.read_text()) for path in workspace.folder.glob("runs/*/meaning.json")}
    (folder,) = [one for one, said in meanings.items() if said["architecture"]["residual"]["kind"] == "none"]
    true = json.loads((folder / "result.json").read_text())
    lie = {**true, "metrics": {**true["metrics"], "val_loss": 0.5}}
    write_json(folder / "result.json", data=lie)
    (workspace.folder / "reports" / "small" / "report.html").unlink()
    (workspace.folder / "reports" / "small" / "report.html").mkdir()

    told = [finding for finding in diagnose(workspace).findings if finding.kind == "damaged run"]
    assert [(one.where, "val_loss is 0.5" in one.what) for one in told] == [(f"runs/{folder.name}", True)]
    for path in (tmp_path / "home").glob("ledger.db*"):
        path.unlink()
    code, said = finished.knockout("run", "small", "--no-prefect", "--no-mlflow", "--workspace", str(workspace.folder))
    assert code == 0, said
    assert "2 runs: 1 reused, 1 to train" in said
    assert "no-residual · pico · s0: its result says that val_loss is 0.5, its metrics" in said
    again = json.loads((folder / "result.json").read_text())
    assert again["metrics"]["val_loss"] == true["metrics"]["val_loss"]
    assert json.loads((workspace.folder / "lost+found" / f"runs-{folder.name}" / "result.json").read_text()) == lie
    assert (workspace.folder / "reports" / "small" / "report.html").is_file()
    assert not [finding for finding in diagnose(workspace).findings if finding.kind == "damaged run"]
