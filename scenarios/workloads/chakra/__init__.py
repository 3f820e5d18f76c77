"""Chakra execution traces of MLCommons, a file per rank: reading, checking, writing, and a program that simulates them.

Facts of the format are from mlcommons/chakra (schema/protobuf/et_def.proto, src/feeder) and astra-sim (Ring.cc).
"""
