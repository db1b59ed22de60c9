"""The disk tier of the prefix cache: entries in shards, an index of them in SQLite. No mlx.

What is on disk is a cache: what is damaged, foreign or gone is a miss, and what cannot be written
costs nothing but itself.
"""
