"""Import of a GGUF file into an ordinary mlx-lm folder.

What is not known exactly is refused: another architecture, pre-tokenizer or tensor type would
load and answer nonsense. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""
