from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from knockout.corpus.preparing.workers import Processes
from knockout.corpus.shards import map_shard, write_shard

PROGRAM = """
import sys
from pathlib import Path
import numpy as np
from knockout.corpus.shards import map_shard, write_shard

entry = write_shard(Path(sys.argv[1], "a.arrow"), tokens_N=np.arange(1000, dtype=np.uint16))
print(int(map_shard(Path(sys.argv[1]), entry=entry).sum()), "pandas" in sys.modules)
"""


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_a_shard_is_read_back_as_it_was_written_by_arrow_too(tmp_path, dtype):
    tokens = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, 10_001, dtype=dtype, endpoint=True)
    entry = write_shard(tmp_path / "a.arrow", tokens_N=tokens[1:])
    mapped = map_shard(tmp_path, entry=entry)
    assert (mapped.dtype, mapped.flags.writeable) == (dtype, False)
    assert np.array_equal(mapped, tokens[1:])
    assert pa.ipc.open_file(tmp_path / "a.arrow").read_all()["tokens"].to_pylist() == tokens[1:].tolist()


def test_neither_writing_nor_mapping_a_shard_starts_pandas(tmp_path):
    said = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], check=True, capture_output=True, text=True)
    assert said.stdout.split() == [str(999 * 1000 // 2), "False"]


def test_workers_have_one_thread_each():
    workers = Processes(1)
    names = ["OMP_NUM_THREADS", "POLARS_MAX_THREADS"]
    assert list(workers.map(os.getenv, names)) == ["1", "1"]
    workers.close()
