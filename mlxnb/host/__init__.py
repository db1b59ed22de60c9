"""Hosts: an engine behind HTTP, on a Unix socket and, where asked for, a loopback port."""
