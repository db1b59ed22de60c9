"""Where models come from and how they are loaded; knows nothing of engines, caches or turns.

A name becomes a :class:`~mlxnb.models.source.ModelSource` (``resolve``), a source becomes facts
(``info``) or a model in memory (``load``). Nothing here starts a thread or keeps state; only
``load.build`` touches MLX arrays, and only on the thread that calls it.
"""
