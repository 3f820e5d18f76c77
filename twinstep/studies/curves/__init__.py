"""Curves of a scenario: how it scales, on which figures of its hardware it depends, where communication is hidden."""
