"""Curves of a scenario: scaling over hosts, sensitivity to figures of its hardware, and hidden communication."""
