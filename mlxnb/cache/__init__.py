"""The prefix cache: a block pool, an index of what is in it, live caches, and plans.

Knows token ids and KV arrays; nothing of text, sessions or requests.
"""
