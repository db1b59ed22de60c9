"""Clients that are installed by hand, against a scripted model on a real notebook port.

Each is a script, run outside the tests: ``PYTHONPATH=tests python -m clients.by_hand.claude_code``.
"""
