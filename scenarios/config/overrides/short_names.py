"""The keys that overrides may give by a short name; `import twinstep` reads them, so that nothing is imported here."""

# Keys of [run], the cluster's profile and its operator tables: those with an option of their own.
OVERRIDES = (
    *("steps", "seed", "batch_size", "payload", "fidelity", "ranks", "library", "timeout", "compute_times"),
    *("profile", "kernels"),
)
