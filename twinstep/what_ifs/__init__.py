"""Change one thing at a time, of the cluster (`counterfactuals`) or the program, and simulate each change."""
