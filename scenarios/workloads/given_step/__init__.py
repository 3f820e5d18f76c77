"""The program `given_step`: steps whose time the scenario states, for jobs of a workload that is not modelled."""
