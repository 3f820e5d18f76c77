"""Pieces of good scenario files, from which the bad ones are made."""

from __future__ import annotations

Cases = dict[str, tuple[str, list[str]]]  # a file's text, and the sentences about it

RUN = "[run]\nbatch_size = 4\n"
CLUSTER = '[cluster]\nprofile = "cpu_local"\nhosts = 2\n'
LAYERS = 'dense_features = 4\nbottom = [8, 8]\ntop = [8, 1]\ninteraction = {kind = "cat"}\nembedding_dim = 8\n'
TABLE = '[[model.tables]]\nname = "a"\nrows = 10\nids_per_sample = 1\n'
MODEL = f"[model]\n{LAYERS}{TABLE}"
DLRM = f'program = "dlrm"\n{RUN}{CLUSTER}{MODEL}'
EXCHANGE = f'program = "all_to_all"\n{CLUSTER}[exchange]\nsize = "1 MiB"\n'
COLLECTIVE_TABLE = '[collective]\nop = "all_reduce"\nsize = "1 MiB"\n'
COLLECTIVE = f'program = "collective"\n{CLUSTER}{COLLECTIVE_TABLE}'
POWERSGD = f'program = "powersgd"\n{CLUSTER}[gradients]\nshapes = [[4, 4]]\n'
INLINE = """[cluster]
hosts = 2
gpus_per_host = 2
cores = 4
host_memory = "8 GiB"
gpu = {kind = "cuda", memory = "1 GiB", memory_rate = "1 TB/s", flops = {float32 = "1 TFLOP/s"}}
inside = {kind = "nvlink", rate = "1 GB/s", latency = "1 us"}
nic = {per = "gpu", rate = "1 GB/s", latency = "1 us"}
"""
A2A_INLINE = EXCHANGE.replace(CLUSTER, INLINE)
PROFILES = (
    "a100_pcie, a100_pcie_40gb, a30_pcie, a40_pcie, cpu_local, dgx1_v100, dgx2_v100, dgx_a100, dgx_a100_40gb,"
    " dgx_h100, emulated_200mbit, gb200_nvl72, gb300_nvl72, h100_pcie, h200_nvl, hgx_b300, hgx_h200, l40_pcie,"
    " l40s_pcie, l4_pcie, p6_b200, t4_pcie, template, v100_pcie, v100_tcp_10g"
)
WHOLE = "a whole number of at least 1"


def edited(text: str, old: str, new: str) -> str:
    """`text` with one place changed; the place must be there."""
    assert text.count(old) == 1, (old, text)
    return text.replace(old, new)
