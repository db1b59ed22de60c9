"""Which architectures attend in place, and which keep the contiguous path."""

from __future__ import annotations

import re
from pathlib import Path

import mlx_lm.models
import pytest

from mlxnb import mlxlm
from mlxnb.cache.paged_models import supports_paging
from paged.architectures import VOCABULARY, build

IN_PLACE = """
    Klear afmoe apertus bailing_moe cohere dbrx deepseek deepseek_v2 dots1 ernie4_5 ernie4_5_moe
    exaone gear gemma glm glm4 glm4_moe gpt2 gpt_neox gptj granite granitemoe helium hunyuan
    hunyuan_v1_dense internlm2 internlm3 laguna llama mimo minicpm minicpm3 minimax ministral3
    mistral3 mixtral muse_glimmer nanbeige nanochat nemotron nemotron-nas olmo2 olmoe openelm phi
    phi3 phimoe phixtral pixtral qwen qwen2 qwen2_moe qwen2_vl qwen3 qwen3_moe qwen3_vl
    qwen3_vl_moe seed_oss smollm3 solar_open starcoder2 talkie telechat3 youtu_llm
""".split()  # noqa: SIM905

CONTIGUOUS = {
    "afm7": "its last layers take another layer's keys, without a cache",
    "bailing_moe_v3": "scores its latents itself",
    "deepseek_v3": "scores its latents itself",
    "gemma2": "caps its scores, in an attention of its own",
    "glm4_moe_lite": "scores its latents itself",
    "gpt_bigcode": "takes one position for all rows, in a batch of any cache",
    "kimi_k25": "scores its latents itself",
    "kimi_vl": "scores its latents itself",
    "mistral4": "hands over scores of positions as a mask, of the keys that the cache returns",
    "plamo": "repeats the keys that the cache returns",
    "stablelm": "converts the keys that the cache returns",
}

NOT_REWINDABLE = ["falcon_h1", "deepseek_v32", "gemma3_text", "iquestloopcoder", "plamo2", "plamo3"]

NOT_BUILT = """
    baichuan_m1 bailing_hybrid bailing_moe_linear bitnet cohere2 deepseek_v41 exaone4 exaone_moe
    gemma3 gemma3n gemma4 gemma4_text glm_moe_dsa gpt_oss granitemoehybrid jamba kimi_k3 kimi_linear
    lfm2 lfm2-vl lfm2_moe lille-130m llama4 llama4_text longcat_flash longcat_flash_ngram mamba
    mamba2 mellum mimo_v2_flash minimax_m3_vl muse_spark nemotron_h olmo olmo3 olmo_hybrid phi3small
    prism_hadamard_qwen35 qwen3_5 qwen3_5_moe qwen3_next recurrent_gemma rwkv7 spark2_5 step3p5
""".split()  # noqa: SIM905
"""Need other sizes, Metal or another library; most have windows or states. Loading tries them."""


@pytest.mark.parametrize("name", IN_PLACE)
def test_attends_in_place(name: str) -> None:
    assert supports_paging(build(name), VOCABULARY)


@pytest.mark.parametrize("name", NOT_REWINDABLE)
def test_what_cannot_be_rewound_is_not_paged(name: str) -> None:
    model = build(name)
    assert not mlxlm.rewindable(mlxlm.new_caches(model))
    assert not supports_paging(model, VOCABULARY)


def test_no_architecture_of_mlx_lm_is_left_out() -> None:
    """One that comes with a new version takes its place in a list."""
    folder = Path(mlx_lm.models.__file__).parent
    sources = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    model = re.compile(r"^(class Model[(]|from .* import .*\bModel\b)", re.M)
    there = {name for name, text in sources.items() if model.search(text)}
    listed = [*IN_PLACE, *CONTIGUOUS, *NOT_REWINDABLE, *NOT_BUILT]
    assert sorted(listed) == sorted(there)


@pytest.mark.parametrize("name", CONTIGUOUS)
def test_keeps_contiguous_caches(name: str) -> None:
    model = build(name)
    assert mlxlm.rewindable(mlxlm.new_caches(model))
    assert not supports_paging(model, VOCABULARY)
