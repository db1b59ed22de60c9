"""Which architectures attend in place, and which keep the contiguous path."""

from __future__ import annotations

import pytest

from mlxnb import mlxlm
from mlxnb.cache.paged_models import supports_paging
from paged.architectures import VOCABULARY, build

IN_PLACE = """
    Klear afmoe apertus bailing_moe cohere dbrx deepseek deepseek_v2 dots1 ernie4_5 ernie4_5_moe
    exaone gear gemma glm glm4 glm4_moe gpt2 gpt_neox gptj granite granitemoe helium hunyuan
    hunyuan_v1_dense internlm2 internlm3 laguna llama mimo minicpm minicpm3 ministral3 mistral3
    mixtral nanbeige nanochat nemotron nemotron-nas olmo2 olmoe openelm phi phi3 phixtral pixtral
    qwen qwen2 qwen2_moe qwen2_vl qwen3 qwen3_moe qwen3_vl qwen3_vl_moe seed_oss smollm3 solar_open
    starcoder2 talkie telechat3 youtu_llm
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
    "plamo": "repeats the keys that the cache returns",
    "stablelm": "converts the keys that the cache returns",
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_attends_in_place(name: str) -> None:
    assert supports_paging(build(name), VOCABULARY)


@pytest.mark.parametrize("name", CONTIGUOUS)
def test_keeps_contiguous_caches(name: str) -> None:
    model = build(name)
    assert mlxlm.rewindable(mlxlm.new_caches(model))
    assert not supports_paging(model, VOCABULARY)
