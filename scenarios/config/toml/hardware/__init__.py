"""The table `cluster` of a scenario file: profiles, their files of operators, and checks across keys."""
