"""The table `cluster` of a scenario file: profiles, operator tables, and checks across keys."""
