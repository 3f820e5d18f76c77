"""The commands of `python -m reports`: words (`cli`) and what each does (`commands`)."""
