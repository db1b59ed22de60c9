"""The notebook server's extension: authenticates, chooses a host, and passes requests on.

It runs where the notebook server runs, be there no MLX, and computes nothing.
"""
