"""The command `validate`: holds predictions against measurements of this machine."""
