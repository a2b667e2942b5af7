"""Workers of a pool are counted once, however many queues they serve."""

from __future__ import annotations

import subprocess
import sys

COUNT = """if True:
    import sys
    from uuid import uuid4
    from knockout import project
    sys.path.insert(0, str(project.root() / "flows"))
    from prefect.client.schemas.objects import Worker
    from pools.inventory import num_workers
    names = ["host 7 studies", "host 7 training", "host 8 training", "other 7 studies", "KubernetesWorker 1", "studies"]
    print(num_workers([Worker(name=name, work_pool_id=uuid4()) for name in names]), num_workers([]))"""


def test_a_worker_that_serves_two_queues_is_one():
    done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "5 0\n"), done.stderr
