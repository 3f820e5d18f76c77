"""The commands of `python -m reports`: their options (`cli`) and their functions (`commands`)."""
