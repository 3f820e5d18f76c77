"""The commands of `python -m reports`: their options (`cli`) and functions (`commands`, `published`, `chakra`)."""
