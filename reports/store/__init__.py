"""Run folders: written in the making (`drafts`, `replace`), read by parts, with the columns of each file."""
