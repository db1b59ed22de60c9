"""Conversations: rendering them, owning their tokens, and the engine that users talk to."""
