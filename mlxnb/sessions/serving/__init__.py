"""What stands between the doors of HTTP and the engine: names, loads, replay, store, answers."""
