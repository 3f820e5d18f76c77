"""The commands of `python -m reports`: their options (`cli`) and what each does (`commands`, `published`)."""
