"""Compares a predicted run with a measured one: matches their spans, and says how far each part is off."""
