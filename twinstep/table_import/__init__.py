"""Tables of models in other libraries, as the table files of scenarios."""
