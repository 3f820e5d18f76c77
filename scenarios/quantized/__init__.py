"""Quantized exchanges of embeddings, as TorchRec's QCommsConfig has them; see docs/explanation/sparse.md."""

from scenarios.quantized.codec import Codec, Codecs, HalfCodec, QuantizedComms, RowCodec, quantized_comms

__all__ = ["Codec", "Codecs", "HalfCodec", "QuantizedComms", "RowCodec", "quantized_comms"]
