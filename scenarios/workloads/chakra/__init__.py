"""Chakra execution traces of MLCommons: a file a rank, read, checked, written, and played as a program; no model.

Facts of the format are from mlcommons/chakra (schema/protobuf/et_def.proto, src/feeder) and astra-sim (Ring.cc).
"""
