"""The links between two GPUs: topologies inside a host (or NVLink domain) and between hosts."""

from sim.engine.network.links import Links, Path
from sim.engine.network.network import ClusterNetwork
from sim.engine.network.routes import Routes, routes

__all__ = ["Links", "ClusterNetwork", "Path", "Routes", "routes"]
