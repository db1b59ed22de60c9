"""The engine of another process, over its host's socket."""
