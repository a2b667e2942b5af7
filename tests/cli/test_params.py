"""`knockout params`, as a user runs it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from knockout.cli.app import app


def params(*arguments: str) -> dict[str, Any]:
    ran = CliRunner().invoke(app, ["params", *arguments, "--json"])
    assert ran.exit_code == 0, ran.output
    return json.loads(ran.stdout)


def test_the_promised_keys_are_there() -> None:
    found = {key: set(value) for key, value in params("gpt3").items()}
    assert found["parameters"] == {"total", "active", "embedding", "position", "attention", "feed_forward", "norm", "head"}
    assert found["flops_per_token"] == {"forward", "training"}
    assert found["kv_cache"] == {"bytes_per_token", "bytes"}
    assert found["bytes"] >= {"weights", "optimizer", "activations"}


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2), ("float16", 2), ("float8", 1)])
def test_a_dtype_scales_weights_and_cache_and_leaves_adams_moments(dtype: str, size: int) -> None:
    found = params("gpt3", "--dtype", dtype)
    assert found["bytes"]["weights"] == size * found["parameters"]["total"]
    assert found["kv_cache"]["bytes_per_token"] == size * 2 * 96 * 12288
    assert found["bytes"]["optimizer"] == 8 * found["parameters"]["total"]


def test_context_and_batch_reach_cache_flops_and_activations() -> None:
    one, more = params("gpt3"), params("gpt3", "--context", "100000", "--batch", "3")
    assert more["kv_cache"]["bytes"] == 3 * 100_000 * one["kv_cache"]["bytes_per_token"]
    assert more["flops_per_token"]["forward"] - one["flops_per_token"]["forward"] == 96 * 4 * 12288 * (100_000 - 2048)
    assert more["bytes"]["activations"] * 2048 == one["bytes"]["activations"] * 3 * 100_000


def test_a_variant_of_a_study_is_counted_alone() -> None:
    assert params("residual:no-residual")["parameters"]["total"] > 0


def test_text_says_what_the_numbers_are_stored_in() -> None:
    ran = CliRunner().invoke(app, ["params", "gpt3", "--dtype", "float32"])
    assert ran.exit_code == 0
    assert "weights in float32" in ran.stdout
    assert "0.014%" in ran.stdout


def test_another_dtype_is_refused() -> None:
    ran = CliRunner().invoke(app, ["params", "gpt3", "--dtype", "int7"])
    assert ran.exit_code == 2
    assert "int7" in ran.output
