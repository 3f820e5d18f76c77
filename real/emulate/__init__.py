"""Makes emulated hosts on one machine: network namespaces, cables with `tc` rates, and the command `emulate`."""
