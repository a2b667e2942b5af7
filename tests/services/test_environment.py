"""The environment of children: quiet, and with nothing in it that could redirect or betray."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from knockout.services import quiet_environment

SECRETS = (
    "HF_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "DB_PASSWORD",
    "PREFECT_API_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "my_token",
)
REDIRECTIONS = (
    "MLFLOW_RUN_ID",
    "MLFLOW_EXPERIMENT_NAME",
    "MLFLOW_TRACKING_URI",
    "_MLFLOW_SERVER_FILE_STORE",
    "PREFECT_PROFILE",
)


def test_secrets_and_other_programs_runs_are_not_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SECRETS, *REDIRECTIONS, "ORDINARY", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, "x")
    environment = quiet_environment(tmp_path)
    assert set(environment).isdisjoint({*SECRETS, *REDIRECTIONS})
    assert environment["ORDINARY"] == environment["TOKENIZERS_PARALLELISM"] == "x"
    assert quiet_environment(tmp_path, keep=["HF_TOKEN"])["HF_TOKEN"] == "x"


def test_engines_keep_their_state_in_the_workspace_and_make_no_calls(tmp_path: Path) -> None:
    environment = quiet_environment(tmp_path)
    expected = {
        "DO_NOT_TRACK": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }
    assert expected.items() <= environment.items()


def test_a_user_without_a_home_has_a_folder_for_fonts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPLCONFIGDIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "MPLCONFIGDIR" not in quiet_environment(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    assert quiet_environment(tmp_path)["MPLCONFIGDIR"] == str(tmp_path / "matplotlib")
    monkeypatch.setenv("MPLCONFIGDIR", "/mine")
    assert quiet_environment(tmp_path)["MPLCONFIGDIR"] == "/mine"


def test_the_engines_themselves_read_these_settings(tmp_path: Path) -> None:
    code = """
from mlflow.environment_variables import MLFLOW_SERVER_ENABLE_JOB_EXECUTION
from mlflow.telemetry.utils import is_telemetry_disabled
from prefect._internal.analytics.enabled import is_telemetry_enabled
from prefect.settings import get_current_settings
server = get_current_settings().server
print(is_telemetry_disabled(), MLFLOW_SERVER_ENABLE_JOB_EXECUTION.get(), is_telemetry_enabled(),
      server.analytics_enabled, server.ephemeral.enabled, server.ui.show_promotional_content)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=quiet_environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["True", "False", "False", "False", "False", "False"]


def test_a_proxy_is_kept_away_from_local_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("no_proxy", "intranet.example")
    assert quiet_environment(tmp_path)["NO_PROXY"] == "intranet.example,127.0.0.1,localhost"


def test_this_process_can_be_made_quiet_too(tmp_path: Path) -> None:
    code = f"""
import os; from pathlib import Path
from knockout.services import apply_quiet_environment, quiet_environment
os.environ["MLFLOW_RUN_ID"] = "x"
apply_quiet_environment(Path({str(tmp_path)!r}))
missing = [name for name, value in quiet_environment(Path({str(tmp_path)!r})).items() if os.environ.get(name) != value]
raise SystemExit(str(missing) if missing or "MLFLOW_RUN_ID" in os.environ else 0)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
