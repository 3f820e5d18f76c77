"""Gradient compression, as coroutines over a Rank."""

from scenarios.compression.batched import batched_powersgd
from scenarios.compression.bucket import Bucket, divide, vanilla
from scenarios.compression.layerwise import layerwise_powersgd
from scenarios.compression.state import PowerSGDState

__all__ = ["Bucket", "PowerSGDState", "batched_powersgd", "divide", "layerwise_powersgd", "vanilla"]
