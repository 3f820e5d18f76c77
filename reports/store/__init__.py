"""Run folders: written as drafts (`drafts`, `replace`), read by parts, with the columns of each file."""
