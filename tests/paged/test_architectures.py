"""Which architectures attend in place, and which keep the contiguous path."""

from __future__ import annotations

import pytest
from architectures import NOT_BUILT, VOCABULARY, architectures, build

from mlxnb import mlxlm
from mlxnb.cache.paged_models import supports_paging

IN_PLACE = """
    Klear afmoe apertus bailing_moe cohere dbrx deepseek deepseek_v2 dots1 ernie4_5 ernie4_5_moe
    exaone gear gemma glm glm4 glm4_moe gpt2 gpt_neox gptj granite granitemoe helium hunyuan
    hunyuan_v1_dense internlm2 internlm3 laguna lille-130m llama llama4_text mimo minicpm minicpm3
    minimax ministral3 mistral3 mixtral muse_glimmer nanbeige nanochat nemotron nemotron-nas olmo2
    olmoe openelm phi phi3 phimoe phixtral pixtral qwen qwen2 qwen2_moe qwen2_vl qwen3 qwen3_moe
    qwen3_vl qwen3_vl_moe seed_oss smollm3 solar_open starcoder2 talkie telechat3 youtu_llm
""".split()  # noqa: SIM905

CONTIGUOUS = {
    "afm7": "its last layers take another layer's keys, without a cache",
    "deepseek_v3": "scores its latents itself",
    "deepseek_v32": "keeps two caches a layer",
    "gemma2": "caps its scores, in an attention of its own",
    "glm4_moe_lite": "scores its latents itself",
    "glm_moe_dsa": "keeps two caches a layer",
    "gpt_bigcode": "takes one position for all rows, in a batch of any cache",
    "kimi_k25": "scores its latents itself",
    "kimi_vl": "scores its latents itself",
    "longcat_flash": "keeps two caches a layer",
    "minimax_m3_vl": "keeps two caches a layer",
    "mistral4": "hands over scores of positions as a mask, of the keys that the cache returns",
    "phi3small": "scores blocks itself",
    "plamo": "repeats the keys that the cache returns",
    "stablelm": "converts the keys that the cache returns",
}

NOT_REWINDABLE = """
    baichuan_m1 bailing_hybrid bailing_moe_linear bailing_moe_v3 cohere2 deepseek_v41 exaone4
    exaone_moe falcon_h1 gemma3 gemma3_text gemma3n gemma4 gemma4_text gpt_oss granitemoehybrid
    iquestloopcoder jamba kimi_k3 kimi_linear lfm2 lfm2-vl lfm2_moe llama4 longcat_flash_ngram mamba
    mamba2 mellum mimo_v2_flash nemotron_h olmo3 olmo_hybrid plamo2 plamo3 qwen3_5 qwen3_5_moe
    qwen3_next recurrent_gemma rwkv7 spark2_5 step3p5
""".split()  # noqa: SIM905


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
    listed = [*IN_PLACE, *CONTIGUOUS, *NOT_REWINDABLE, *NOT_BUILT]
    assert sorted(listed) == architectures()


@pytest.mark.parametrize("name", CONTIGUOUS)
def test_keeps_contiguous_caches(name: str) -> None:
    model = build(name)
    assert mlxlm.rewindable(mlxlm.new_caches(model))
    assert not supports_paging(model, VOCABULARY)
