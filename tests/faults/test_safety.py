"""What a file, a name or the environment may not do."""

from __future__ import annotations

import pickle
import socket
import zipfile
from pathlib import Path

import pytest
from agreeing import invariants
from commands import TINY, Home, until
from studies import RESUMED, write_project
from torch import nn

from knockout.training.starting import find_start

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "s3cr3t-of-the-store",
    "MLFLOW_TRACKING_PASSWORD": "s3cr3t-of-mlflow",
    "PREFECT_API_KEY": "s3cr3t-of-prefect",
    "HF_TOKEN": "s3cr3t-of-the-hub",
}
NAMES = ["../../escaped", "/tmp/escaped", "..", "a/b", "a\\b", "résidu​al", "﻿x", "a\nb", "CON.", "-rf", ""]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("what", ["study", "variant", "corpus"])
def test_a_name_that_could_leave_the_workspace_is_refused(tmp_path: Path, capsys, monkeypatch, name: str, what: str):
    from knockout.cli import main

    folder = write_project(tmp_path / "project") if (tmp_path / "project").mkdir() is None else tmp_path
    quoted = '"' + name.replace("\\", "\\\\").replace("\n", "\\n") + '"'
    text = {
        "study": RESUMED.replace("study: resumed", f"study: {quoted}"),
        "variant": RESUMED.replace("no-residual: {", f"? {quoted}\n  : {{").replace("no-residual,", f"{quoted},"),
        "corpus": RESUMED.replace("corpus: tiny", f"corpus: {quoted}"),
    }[what]  # fmt: skip
    (folder / "ablations" / "bad.yaml").write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("KNOCKOUT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("sys.argv", ["knockout", "check", "bad"])
    with pytest.raises(SystemExit) as ending:
        main()
    said = capsys.readouterr()
    assert ending.value.code == 2, said.out + said.err
    assert "Traceback" not in said.err
    assert not (tmp_path / "escaped").exists()


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system ['touch escaped']", "!!python/name:os.system", "!custom x"]
)
def test_yaml_runs_no_code(tmp_path: Path, capsys, monkeypatch, tag: str):
    from knockout.cli import main

    (tmp_path / "bad.yaml").write_text(RESUMED.replace("question: Does a run", f"question: {tag} # Does a run"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["knockout", "check", "bad.yaml"])
    with pytest.raises(SystemExit) as ending:
        main()
    said = capsys.readouterr()
    assert ending.value.code == 2, said.out + said.err
    assert not (tmp_path / "escaped").exists()


class Payload:
    """Would make a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return open, (str(self.mark), "w")


@pytest.mark.parametrize("packed", [True, False], ids=["in an archive", "bare"])
def test_a_checkpoint_with_code_in_it_is_passed_over_and_not_run(tmp_path: Path, packed: bool):
    path, mark = tmp_path / "checkpoints" / "0000000010.pt", tmp_path / "escaped"
    path.parent.mkdir()
    if packed:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps(Payload(mark), protocol=2))
            archive.writestr("archive/version", "3")
    else:
        path.write_bytes(pickle.dumps(Payload(mark), protocol=2))
    start = find_start(tmp_path, network=nn.Linear(1, 1))
    assert not mark.exists()
    assert (start.step, str(path) in (start.said or "")) == (0, True)


def test_text_that_lies_outside_through_a_link_is_read_but_nothing_is_written_there(home: Home, tmp_path: Path):
    """A workspace that is itself reached through a link stays whole; a run's folder that is one leads nowhere else."""
    real = tmp_path / "real"
    real.mkdir()
    link = tmp_path / "link"
    link.symlink_to(real)
    home.folder = link / "home"
    code, said = home.run("resumed", "--set", "tokens=3200")
    assert code == 0, said
    invariants(home)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


def test_no_secret_of_the_environment_reaches_a_file_or_the_terminal_and_servers_bind_to_loopback(home: Home):
    home.environment |= SECRETS
    process = home.start("run", "resumed", "--set", "tokens=6400")
    listening: set[str] = set()

    def watch() -> bool:
        listening.update(addresses(home))
        return process.poll() is not None

    until(watch, every=0.2)
    code, said = home.finish(process)
    assert code == 0, said
    found = [(name, path) for path in home.folder.rglob("*") if path.is_file() for name, value in SECRETS.items()
             if value.encode() in path.read_bytes()]  # fmt: skip
    assert found == []
    assert not any(value in said for value in SECRETS.values())
    assert listening == {"127.0.0.1"}, "Prefect's server was to listen"
    invariants(home)


def addresses(home: Home) -> set[str]:
    """The addresses on which the processes of a workspace listen."""
    inodes = set[str]()
    for pid in home.alive():
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(str(link.readlink()))
            except OSError:
                continue  # it was closed meanwhile
    found = set[str]()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and f"socket:[{columns[9]}]" in inodes:
                raw = bytes.fromhex(columns[1].partition(":")[0])
                words = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
                found.add(socket.inet_ntop(family, words))
    return found


def test_a_corpus_of_a_name_that_leaves_is_refused_where_it_is_declared(tmp_path: Path):
    from knockout.declare.corpus import Corpus
    from knockout.declare.document import parse_document
    from knockout.declare.load import validate
    from knockout.errors import DeclarationError

    with pytest.raises(DeclarationError):
        validate(parse_document(TINY.replace("corpus: tiny", "corpus: ../tiny"), file="tiny"), model=Corpus)
