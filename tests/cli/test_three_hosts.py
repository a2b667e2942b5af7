"""Three hosts that share a database, Prefect's server and an object store, and no disk: studies that go over all of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from commands import ALONE, TINY, Home, opened, until, write_files
from hosts import Host, Hosts, hosts_at_work

from knockout.ledger.leases import VARIABLE as LEASE
from knockout.ledger.process import TOLD
from knockout.ledger.store import Ledger, LedgerRun, Submission
from knockout.ledger.workspace import open_workspace
from knockout.services.database import VARIABLE as DATABASE
from knockout.services.database import Database
from knockout.services.objects import VARIABLE as STORE
from knockout.tracking.naming import IDENTITY, SUBMISSION

LEASE_SECONDS = 12
SECONDS = 600.0
"""On a machine with much else to do."""
POOL = "hosts"
BASELINE = """question: Does a tiny stack learn a chain without its residual path, whatever host trains it?
corpus: tiny
size: pico
baseline:
  {width: 16, heads: 2, depth: 2, context: 16, vocabulary: 32, batch: 4, tokens: 6400, warmup_steps: 10, evaluations: 20}
variants:
  no-residual: {residual: {kind: none}}
controls: {aa: false}
competence: {floor: none}
claims:
  - id: one
    says: It learns less without
    expect: {variant: no-residual, is: worse, than: baseline, by: 0.01}
"""
SPREAD = "study: spread\n" + BASELINE
SEARCHED = f"""study: searched
{BASELINE.replace("tokens: 6400", "tokens: 32000")}seeds: 2
tune:
  learning_rate: {{low: 1.0e-3, high: 1.0e-1}}
  trials: 4
  pruner: {{kind: median, startup: 2, after: 0.25}}
"""
ENDLESS = "study: endless\nseeds: 1\n" + BASELINE.partition("claims:")[0].replace(
    "tokens: 6400", "tokens: 64000000"
).replace("variants:\n", "variants:\n  no-norm: {norm: {kind: none}}\n")
"""As many runs as there are hosts."""
LIMIT_SECONDS = 4
"""Less than the search takes on warm workers."""
FOUND = ("claim", "size", "outcome", "effect", "interval", "p", "num_seeds")
"""Of a verdict what does not say what it cost."""
KEYS = ("number", "values", "state", "loss", "reason", "last", "extends")
"""The same of a trial."""
STOPPED = "stopped by `knockout stop`"
OPEN = ["SCHEDULED", "PENDING", "RUNNING", "CANCELLING"]


@pytest.fixture(scope="module")
def project_of_hosts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    studies = {"spread": SPREAD, "searched": SEARCHED, "endless": ENDLESS}
    files = {f"ablations/{name}.yaml": text for name, text in studies.items()}
    return write_files(tmp_path_factory.mktemp("project-of-hosts"), files={**files, "data/tiny.yaml": TINY})


@pytest.fixture(scope="module")
def laboratory(postgres_server, project_of_hosts: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Three hosts, and what they share."""
    moto = pytest.importorskip("moto.server", reason="moto's server is not installed")
    boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")
    keys = {
        "AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "open-sesame", "AWS_DEFAULT_REGION": "us-east-1",
    }  # fmt: skip
    database, s3 = postgres_server.new_database(), moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    s3.start()
    port = s3.get_host_and_port()[1]
    with closing(boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1",
                              aws_access_key_id="someone", aws_secret_access_key="open-sesame")) as client:  # fmt: skip
        client.create_bucket(Bucket="lab")
    shared = {**keys, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", STORE: "s3://lab/knockout", LEASE: str(LEASE_SECONDS),
              DATABASE: database.address}  # fmt: skip
    services = (int(database.address.rpartition(":")[2].partition("/")[0]), port)
    folder = tmp_path_factory.mktemp("hosts")
    with hosts_at_work(
        "anna", "bela", "cora", pool=POOL, folder=folder, shared=shared, services=services, hidden=(project_of_hosts,)
    ) as found:
        yield found
    s3.stop()


@pytest.fixture
def in_full(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--hosts"):
        pytest.skip("takes two minutes: pytest tests/cli/test_three_hosts.py --hosts")


@pytest.fixture
def hosts(laboratory: Hosts) -> Hosts:
    """All three at work, whatever was done to them before."""
    for host in laboratory.all:
        host.mend()
        host.work(pool=POOL)
    return laboratory


def machine(folder: Path, *, hosts: Hosts | None, project: Path) -> Iterator[Home]:
    """Somebody's machine, on which no worker runs: in the hosts' network, or alone."""
    for home in opened(folder, project=project):
        if hosts is not None:
            folder.mkdir()
            home.environment |= {**hosts.shared, "no_proxy": "127.0.0.1"}
            (folder / "database").write_text(hosts.shared[DATABASE])
        yield home


@pytest.fixture
def user(hosts: Hosts, project_of_hosts: Path, tmp_path: Path) -> Iterator[Home]:
    yield from machine(tmp_path / "user", hosts=hosts, project=project_of_hosts)


@pytest.fixture
def visitor(hosts: Hosts, tmp_path: Path) -> Iterator[Home]:
    """A machine that has neither the project nor a file of the workspace."""
    (tmp_path / "nowhere").mkdir()
    yield from machine(tmp_path / "visitor", hosts=hosts, project=tmp_path / "nowhere")


@pytest.fixture
def alone(project_of_hosts: Path, tmp_path: Path) -> Iterator[Home]:
    yield from machine(tmp_path / "alone", hosts=None, project=project_of_hosts)


@pytest.fixture
def ledger(user: Home) -> Iterator[Ledger]:
    """The ledger of all hosts, as the user sees it."""
    opened = Ledger(open_workspace(user.folder))
    yield opened
    opened.close()


def submit(user: Home, study: str, *arguments: str) -> str:
    """The name of the submission."""
    code, said = user.knockout("submit", study, "--pool", POOL, *arguments)
    assert code == 0, said
    return said.split("submitted ")[1].split()[0]


def known(ledger: Ledger, name: str) -> Submission:
    found = ledger.submission(name)
    assert found is not None
    return found


def runs_of(ledger: Ledger, name: str) -> dict[str, LedgerRun]:
    return {run.identity: run for run in ledger.runs({identity for identity, *_ in ledger.asked(name)})}


def said_by(of: Home, *words: str) -> dict[str, Any]:
    """What a command says as JSON; it is a process of its own, which leaves no connection behind."""
    code, said = of.knockout(*words, "--json")
    assert code == 0, said
    return json.loads(said[said.index("{") :])


def verdicts(facts: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [tuple(verdict[key] for key in FOUND) for verdict in facts["verdicts"]]


def held_by(host: Host, name: str, *, ledger: Ledger) -> LedgerRun | None:
    held = [run for run in runs_of(ledger, name).values() if run.state == "running" and run.owner is not None]
    return next((run for run in held if run.owner is not None and host.has(run.owner.pid)), None)


def begun_on(host: Host, name: str, *, ledger: Ledger) -> LedgerRun:
    """A run that a host has begun to train just now; waits for one."""
    before, found = held_by(host, name, ledger=ledger), list[LedgerRun]()

    def begun() -> bool:
        held = held_by(host, name, ledger=ledger)
        if held is not None and (before is None or held.identity != before.identity):
            found.append(held)
        return bool(found)

    until(begun, seconds=SECONDS, every=0.1)
    return found[0]


def walking(hosts: Hosts, name: str, *, ledger: Ledger) -> Host:
    """The host whose process walks a submission; waits for one."""

    def walker() -> Host | None:
        one = ledger.submission(name)
        return next((h for h in hosts.all if one and one.owner and h.has(one.owner.pid)), None)

    until(walker, seconds=SECONDS, every=0.1)
    found = walker()
    assert found is not None
    return found


def mirrored(address: str, study: str, *, tag: str) -> tuple[Counter[tuple[str, str]], list[tuple[Any, ...]]]:
    """How many MLflow runs there are for each value of a tag in a study, with their status, and the points that curves have
    twice."""
    of = "JOIN mlflow.runs USING (run_uuid) JOIN mlflow.experiments USING (experiment_id) WHERE experiments.name = %s"
    with Database(address).connection() as connection:
        tags = connection.execute(f"SELECT value, status FROM mlflow.tags {of} AND key = %s".encode(), [study, tag])
        shown = Counter((str(value), status) for value, status in tags)
        twice = connection.execute(
            f"SELECT run_uuid, key, step, count(*) FROM mlflow.metrics {of} GROUP BY 1, 2, 3 HAVING count(*) > 1".encode(),
            [study],
        )
        return shown, list(twice)


def test_a_study_over_three_hosts_of_which_one_is_cut_off_and_the_one_that_walks_it_dies_has_the_verdict_of_one_machine(
    request: pytest.FixtureRequest, hosts: Hosts, user: Home, visitor: Home, alone: Home, ledger: Ledger
):
    whole = request.config.getoption("--hosts")
    seeds = ("--seeds", "12" if whole else "6")
    name = submit(user, "spread", *seeds)
    dying = walking(hosts, name, ledger=ledger)
    first, last = (host for host in hosts.all if host is not dying)
    late = begun_on(first, name, ledger=ledger)
    first.cut()
    lost = begun_on(dying, name, ledger=ledger)
    dying.kill()
    seen = said_by(visitor, "status", "spread")
    assert (seen["submission"], len(seen["of"])) == (name, 24 if whole else 12)
    until(lambda: walking(hosts, name, ledger=ledger) is last, seconds=SECONDS)  # another worker goes on with the study
    until(lambda: runs_of(ledger, name)[late.identity].finished, seconds=SECONDS)
    kept = runs_of(ledger, name)[late.identity]
    first.mend()
    until(lambda: known(ledger, name).state != "running", seconds=SECONDS)

    assert (known(ledger, name).state, known(ledger, name).reason) == ("done", None)
    runs = runs_of(ledger, name)
    assert (len(runs), {run.state for run in runs.values()}) == (24 if whole else 12, {"done"})
    again = {identity: run.attempts - 1 for identity, run in runs.items() if run.attempts > 1}
    assert again == Counter([late.identity, lost.identity]), "nothing but what was lost is trained again"
    assert runs[late.identity] == kept, "what the host that was cut off had to say of it came too late"
    said_by(user, "status", name)  # a command tells MLflow what the hosts had no time for
    shown, twice = mirrored(hosts.shared[DATABASE], "spread", tag=IDENTITY)
    wanted = Counter((identity, "FINISHED") for identity in runs)
    assert (shown - wanted, wanted - shown, twice) == (Counter(), Counter(), [])
    above, _ = mirrored(hosts.shared[DATABASE], "spread", tag=SUBMISSION)
    assert above == Counter([(name, "FINISHED")])
    until(lambda: hosts.flow_runs(state={"type": {"any_": OPEN}}) == [], seconds=60, every=1.0)
    died, ended = (one["state_name"] for one in hosts.flow_runs(name={"any_": [name]}))
    assert (died in ("Crashed", "Completed"), ended) == (True, "Completed")

    code, said = alone.run("spread", *seeds)
    assert code == 0, said
    assert {run.identity: run.metrics["val_loss"] for run in alone.runs()} == {
        name: run.metrics["val_loss"] for name, run in runs.items()
    }
    assert verdicts(said_by(alone, "report", "spread", *seeds)) == verdicts(said_by(user, "report", "spread", *seeds))


def test_a_host_that_is_shut_down_leaves_its_work_to_the_others_and_a_visitor_sees_and_stops_it(
    hosts: Hosts, user: Home, visitor: Home, ledger: Ledger
):
    name = submit(user, "endless")
    leaving = walking(hosts, name, ledger=ledger)
    left = begun_on(leaving, name, ledger=ledger)
    until(lambda: min((run.step for run in runs_of(ledger, name).values() if run.owner), default=0), seconds=SECONDS)
    seen = {run["identity"]: run for run in said_by(visitor, "status", name)["of"]}
    assert seen[left.identity]["state"] == "running"
    assert seen[left.identity]["step"] > 0, "each host tells how far it is"
    leaving.leave()
    gone = hosts.flow_runs(name={"any_": [name]})[0]["state"]
    assert (gone["name"], gone["message"].endswith(TOLD)) == ("Crashed", True), gone
    until(lambda: known(ledger, name).state == "running" and walking(hosts, name, ledger=ledger) is not leaving)
    leaving.work(pool=POOL)
    until(lambda: runs_of(ledger, name)[left.identity].attempts == 2, seconds=SECONDS, every=0.1)
    assert sorted(run.attempts for run in runs_of(ledger, name).values()) == [1, 1, 2], "the others went on meanwhile"

    code, said = visitor.knockout("stop", "endless")
    assert (code, said.splitlines()[-1]) == (0, f"endless {name}: cancelled: {STOPPED}"), said
    runs = runs_of(ledger, name).values()
    assert {(run.state, run.reason) for run in runs if run.attempts} == {("cancelled", STOPPED)}
    until(lambda: hosts.flow_runs(state={"type": {"any_": OPEN}}) == [], seconds=60, every=1.0)
    assert hosts.flow_runs(name={"any_": [name]})[-1]["state_name"] == "Cancelled"


def searched(facts: dict[str, Any]) -> dict[str, list[tuple[Any, ...]]]:
    """What the search of each variant came to, apart from its cost."""
    found = facts["study"]["tuned"]
    return {one["variant"]: [tuple(trial[key] for key in KEYS) for trial in one["trials"]] for one in found}


def trials(address: str) -> Counter[str]:
    database = Database(address)
    if not database.has("trials", schema="optuna"):
        return Counter()
    with database.connection() as connection:
        return Counter(state for (state,) in connection.execute("SELECT state::text FROM optuna.trials"))


def test_a_search_over_hosts_stops_at_its_limit_goes_on_later_and_finds_what_one_machine_finds(
    in_full: None, hosts: Hosts, user: Home, alone: Home, ledger: Ledger
):
    name = submit(user, "searched", "--study-seconds", str(LIMIT_SECONDS))
    limit = f"the study's limit of {LIMIT_SECONDS} s"
    until(lambda: ledger.submission(name) is not None and known(ledger, name).state != "running", seconds=SECONDS)
    assert (known(ledger, name).state, known(ledger, name).reason) == ("timed-out", limit)
    until(lambda: not any(run.owner for run in runs_of(ledger, name).values()))
    cut = {(run.state, run.reason) for run in runs_of(ledger, name).values() if run.state not in ("done", "pruned")}
    assert cut <= {("timed-out", limit), ("planned", None)}
    until(lambda: hosts.flow_runs(state={"type": {"any_": OPEN}}) == [], seconds=60, every=1.0)
    (flow_run,) = hosts.flow_runs(name={"any_": [name]})
    assert (flow_run["state_name"], flow_run["state"]["message"]) == ("TimedOut", limit)
    assert set(trials(hosts.shared[DATABASE])) <= {"COMPLETE", "PRUNED", "RUNNING"}, "what was cut off has not failed"

    again = submit(user, "searched")
    until(lambda: ledger.submission(again) is not None and known(ledger, again).state != "running", seconds=SECONDS)
    assert (known(ledger, again).state, known(ledger, again).reason) == ("done", None)
    code, said = alone.knockout("run", "searched", *ALONE)
    assert code == 0, said
    mine, theirs = (said_by(one, "report", "searched") for one in (alone, user))
    assert (searched(theirs), verdicts(theirs)) == (searched(mine), verdicts(mine))
    assert trials(hosts.shared[DATABASE])["RUNNING"] == 0
    ended = {run.identity: run.state for run in runs_of(ledger, again).values()}
    shown = {one["parameters"].get("run"): one["state_name"] for one in hosts.flow_runs(tags={"all_": [again]})}
    assert {shown[run] for run, state in ended.items() if state == "pruned" and run in shown} <= {"Pruned"}
