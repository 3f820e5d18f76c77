"""Values of a command line or a study that stand in place of a scenario file's: keys, and how users write them."""
