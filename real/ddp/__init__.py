"""PowerSGD as communication hooks of a user's own DistributedDataParallel.

The compression is that of `scenarios/compression`; here is what lets it run on DDP's buckets and streams.
"""
