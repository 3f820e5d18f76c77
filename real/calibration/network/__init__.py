"""Measures threads, copies and gloo over TCP between ranks (`probes`), and fits a host's costs to them (`fit`)."""
