"""The folder of a job of days: what was predicted of it, as JSON and frames."""
