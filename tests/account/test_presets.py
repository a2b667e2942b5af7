"""Presets against the numbers that their authors publish."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from knockout.account import Account, count
from knockout.declare.architecture import Architecture
from knockout.declare.load import load_preset, validate

EXACT = {
    # The checkpoint openai-community/gpt2, without its mask buffers.
    "gpt2": 124_439_808,
    # PEFT's print_trainable_parameters for meta-llama/Llama-2-7b-hf: 6,742,609,920 with 4,194,304 of LoRA's.
    "llama2-7b": 6_742_609_920 - 4_194_304,
    # meta-llama/Llama-3.1-405B, number of safetensors parameters.
    "llama3-405b": 405_853_388_800,
    # mistralai/Mixtral-8x7B-v0.1, number of safetensors parameters; model.safetensors.index.json: 93,405,585,408 bytes.
    "mixtral-8x7b": 46_702_792_704,
    # deepseek-ai/DeepSeek-V3, 671,026,419,200 elements without multi-token prediction and quantisation scales, of which
    # 58 x 256 are the routers' balance offsets (e_score_correction_bias), which no gradient trains.
    "deepseek-v3": 671_026_419_200 - 58 * 256,
}
ROUNDED = {
    # Brown et al. 2020, table 2.1: 175.0 B; the biases (13 M) that the preset leaves out are too few to show.
    "gpt3": (175.0e9, 0.5e9),
    # DeepSeek-AI 2024, abstract.
    "deepseek-v3": (671e9, 0.5e9),
    # Grattafiori et al. 2024, section 3.2.
    "llama3-405b": (405e9, 1e9),
    # Touvron et al. 2023, "LLaMA", table 2, and "Llama 2": 7B stands for 6.7 B.
    "llama2-7b": (6.7e9, 0.05e9),
    # Jiang et al. 2024, abstract: 47 B.
    "mixtral-8x7b": (47e9, 0.5e9),
}
ACTIVE = {
    # Jiang et al. 2024, abstract: 13 B.
    "mixtral-8x7b": (13e9, 0.5e9),
    # DeepSeek-AI 2024, abstract: 37 B.
    "deepseek-v3": (37e9, 0.6e9),
}


def account(name: str) -> Account:
    return count(validate(load_preset(name), model=Architecture))


@pytest.mark.parametrize("name", sorted(EXACT))
def test_a_preset_has_exactly_the_parameters_of_its_checkpoint(name: str) -> None:
    assert account(name).parameters.total == EXACT[name]


@pytest.mark.parametrize("name", sorted(ROUNDED))
def test_a_preset_has_the_parameters_that_its_paper_rounds(name: str) -> None:
    published, rounding = ROUNDED[name]
    assert abs(account(name).parameters.total - published) <= rounding


@pytest.mark.parametrize("name", sorted(ACTIVE))
def test_a_mixture_activates_what_its_paper_says(name: str) -> None:
    published, rounding = ACTIVE[name]
    assert abs(account(name).parameters.active - published) <= rounding


def test_deepseek_v3_activates_36_6_billion_beside_the_token_table() -> None:
    """README_WEIGHTS.md of deepseek-ai/DeepSeek-V3: 36.6 B activated, with the head and without the embedding."""
    parameters = account("deepseek-v3").parameters
    assert abs(parameters.active - parameters.embedding - 36.6e9) < 0.05e9


def test_deepseek_v3_counts_as_by_hand() -> None:
    width, heads = 7168, 128
    queries = width * 1536 + 1536 + 1536 * heads * (128 + 64)
    keys_and_values = width * (512 + 64) + 512 + 512 * heads * (128 + 128)
    attention = queries + keys_and_values + heads * 128 * width
    expert = 3 * width * 2048
    sparse, dense = width * 256 + 257 * expert, 3 * width * 18432
    table = 129280 * width
    parameters = account("deepseek-v3").parameters
    assert parameters.attention == 61 * attention
    assert parameters.feed_forward == 58 * sparse + 3 * dense
    assert parameters.norm == (2 * 61 + 1) * width
    assert parameters.total == 61 * attention + 58 * sparse + 3 * dense + 123 * width + 2 * table
    assert parameters.active == parameters.total - 58 * 248 * expert


def test_deepseek_v3_caches_576_numbers_a_token_and_layer() -> None:
    """DeepSeek-AI 2024 (V2), table 1: MLA caches 9/2 d_h numbers a token and layer, d_h = 128."""
    assert account("deepseek-v3").kv_cache.bytes_per_token == 2 * 61 * (9 * 128 // 2)


def test_mixtral_splits_as_by_hand() -> None:
    parameters = account("mixtral-8x7b").parameters
    assert parameters.feed_forward == 32 * (4096 * 8 + 8 * 3 * 4096 * 14336)
    assert parameters.attention == 32 * (2 * 4096**2 + 2 * 4096 * 1024)
    assert parameters.head == parameters.embedding == 32000 * 4096


@pytest.mark.parametrize("name", ["gpt3", "llama3-405b", "deepseek-v3"])
def test_the_largest_presets_count_in_under_a_second(name: str, tmp_path: Path) -> None:
    account(name)
    start = time.process_time()
    account(name)
    assert time.process_time() - start < 1.0
    script = "from knockout.cli import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", script, "params", name, "--json"], cwd=tmp_path, capture_output=True, check=True
    )
    assert json.loads(ran.stdout)["parameters"]["total"] == account(name).parameters.total


def test_every_shipped_preset_is_checked_here() -> None:
    folder = Path(__file__).parents[2] / "ablations" / "presets"
    assert {path.stem for path in folder.glob("*.yaml")} == {*EXACT, *ROUNDED}
