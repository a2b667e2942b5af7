"""A run's files: metric segments, checkpoints, progress."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from knockout.errors import WorkspaceError
from knockout.training.checkpoints import load_checkpoint, save_checkpoint
from knockout.training.metrics import MetricLog, read_metrics, seal_metrics, segments
from knockout.training.progress import PROGRESS, encode_progress, read_progress
from knockout.training.result import checkpoint_files, remove_checkpoints
from knockout.training.spec import METRICS

PROGRAM = """
import sys
from pathlib import Path
from knockout.training.metrics import MetricLog, evaluations, seal_metrics
from knockout.training.result import final_metrics

log = MetricLog(Path(sys.argv[1]), after_step=0, tokens_per_step=64)
for step in (1, 2):
    log.add(step, {"train_loss": step / 2, "tokens_per_second": 64.0, "peak_memory_bytes": 1.0})
    log.flush()
print(final_metrics(seal_metrics(Path(sys.argv[1])), evaluation={})["train_loss"], "pandas" in sys.modules)
print(evaluations(Path(sys.argv[1]), metric="train_loss"))
"""


def log_steps(folder: Path, *, first: int, last: int, after_step: int = 0) -> None:
    log = MetricLog(folder, after_step=after_step, tokens_per_step=64)
    for step in range(first, last + 1):
        log.add(step, {"train_loss": step / 10, "gradient_norm": 1.0})
        if step % 10 == 0:
            log.flush()
    log.flush()


def steps(folder: Path) -> list[int]:
    return [row["step"] for row in read_metrics(folder).to_pylist() if row["metric"] == "train_loss"]


def test_segments_read_as_one_table_in_order_of_steps(tmp_path: Path):
    log_steps(tmp_path, first=1, last=25)
    assert [path.stem for path in segments(tmp_path)] == ["0000000010", "0000000020", "0000000025"]
    rows = read_metrics(tmp_path).to_pylist()
    assert steps(tmp_path) == list(range(1, 26))
    assert (rows[-1]["tokens"], rows[-2]["value"]) == (25 * 64, 2.5)


def test_neither_writing_nor_reading_metrics_starts_pandas(tmp_path: Path):
    said = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], check=True, capture_output=True, text=True)
    assert said.stdout.splitlines() == ["0.75 False", "((64, 0.5), (128, 1.0))"]


def test_resuming_drops_what_lies_beyond_the_checkpoint(tmp_path: Path):
    log_steps(tmp_path, first=1, last=30)
    log_steps(tmp_path, first=21, last=40, after_step=20)
    assert steps(tmp_path) == list(range(1, 41))


def test_sealing_joins_the_segments_and_reads_the_same(tmp_path: Path):
    log_steps(tmp_path, first=1, last=30)
    before = read_metrics(tmp_path)
    assert seal_metrics(tmp_path).equals(before)
    assert read_metrics(tmp_path).equals(before)
    assert segments(tmp_path) == []


def test_a_run_that_died_while_it_was_sealed_has_each_step_once(tmp_path: Path):
    log_steps(tmp_path, first=1, last=30)
    kept = {path: path.read_bytes() for path in segments(tmp_path)}
    seal_metrics(tmp_path)
    for path, content in list(kept.items())[1:]:  # it had removed only the first of them
        path.write_bytes(content)
    assert steps(tmp_path) == list(range(1, 31))
    MetricLog(tmp_path, after_step=30, tokens_per_step=64)
    assert not (tmp_path / METRICS).exists()
    assert steps(tmp_path) == list(range(1, 31))
    assert seal_metrics(tmp_path).num_rows == 60


def test_a_sealed_file_gives_back_only_what_a_checkpoint_covers(tmp_path: Path):
    log_steps(tmp_path, first=1, last=30)
    seal_metrics(tmp_path)
    log_steps(tmp_path, first=21, last=30, after_step=20)
    assert steps(tmp_path) == list(range(1, 31))


def state_at(value: float) -> dict[str, object]:
    return {"network": {"x": torch.full((3,), value)}, "optimizer": {"state": {0: {"step": torch.tensor(value)}}}}


def test_a_checkpoint_holds_nothing_but_primitives_and_comes_back_whole(tmp_path: Path):
    save_checkpoint(tmp_path, step=7, state=state_at(0.1))
    (path,) = checkpoint_files(tmp_path)
    loaded = load_checkpoint(path)
    assert loaded["step"] == 7
    assert torch.equal(loaded["network"]["x"], torch.full((3,), 0.1))
    assert loaded["optimizer"]["state"][0]["step"].item() == torch.tensor(0.1).item()


def test_two_checkpoints_are_kept_and_a_damaged_one_is_told(tmp_path: Path):
    for step in (8, 9, 10):
        save_checkpoint(tmp_path, step=step, state=state_at(step))
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["0000000009.pt", "0000000010.pt"]
    newest = tmp_path / "checkpoints" / names[1]
    content = newest.read_bytes()
    for damaged in (b"", content[:100], content[: len(content) - 50], b"not a checkpoint"):
        newest.write_bytes(damaged)
        with pytest.raises(WorkspaceError, match=f"{newest} does not load"):
            load_checkpoint(newest)
    assert load_checkpoint(newest.with_name(names[0]))["step"] == 9
    remove_checkpoints(tmp_path)
    assert checkpoint_files(tmp_path) == []


def test_a_file_where_checkpoints_or_metrics_belong_is_told(tmp_path: Path):
    (tmp_path / "checkpoints").write_text("no folder")
    with pytest.raises(WorkspaceError, match=f"{tmp_path / 'checkpoints'} cannot be made: File exists"):
        save_checkpoint(tmp_path, step=1, state=state_at(0.1))
    (tmp_path / "metrics").write_text("no folder")
    with pytest.raises(WorkspaceError, match=f"{tmp_path / 'metrics'} cannot be made: File exists"):
        MetricLog(tmp_path, after_step=0, tokens_per_step=1)


def test_a_flipped_byte_in_a_checkpoint_is_noticed(tmp_path: Path):
    save_checkpoint(tmp_path, step=2, state={"network": {"x": torch.arange(1000.0)}, "optimizer": {}})
    (newest,) = checkpoint_files(tmp_path)
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    with pytest.raises(WorkspaceError, match="is damaged"):
        load_checkpoint(newest)


def test_progress_is_sixteen_bytes_that_read_as_step_and_loss(tmp_path: Path):
    assert read_progress(tmp_path) is None
    (tmp_path / PROGRESS).write_bytes(b"")
    assert read_progress(tmp_path) is None
    data = encode_progress(step=2**40, train_loss=0.1)
    assert len(data) == 16
    (tmp_path / PROGRESS).write_bytes(data)
    assert read_progress(tmp_path) == (2**40, 0.1)
