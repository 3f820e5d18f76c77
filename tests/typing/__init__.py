"""What users' programs are typed as: mypy checks these files, nothing runs them."""
