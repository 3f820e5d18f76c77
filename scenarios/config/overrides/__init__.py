"""Values of a command line or a study that replace a scenario file's: keys, and how users write them."""
