"""Activities that share capacities in simulated time: flows on links, kernels on a GPU.

It knows no library and no program.
"""
