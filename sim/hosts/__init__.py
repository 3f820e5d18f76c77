"""Hosts: cores, threads of ranks, and TCP connections."""
