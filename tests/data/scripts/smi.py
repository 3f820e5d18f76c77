"""Asks nvidia-smi about the GPUs, as scripts do for their logs and to choose sizes."""

import subprocess

import torch

listed = subprocess.run(["nvidia-smi"], stdout=subprocess.PIPE, text=True, check=True).stdout
assert listed.count(torch.cuda.get_device_name()) == torch.cuda.device_count() == 2
asked = "nvidia-smi --query-gpu=index,memory.total,temperature.gpu --format=csv,noheader,nounits"
rows = [row.split(", ") for row in subprocess.check_output(asked, shell=True, text=True).splitlines()]
total = torch.cuda.get_device_properties(0).total_memory // 2**20
assert rows == [[str(index), str(total), "[N/A]"] for index in range(2)], rows
head = subprocess.getoutput("nvidia-smi --query-gpu=name,memory.total --format=csv | head -1")
assert head == "name, memory.total [MiB]", head
for one in ("-i 0", "-i=1", "--id=1", "--id 0"):
    used = subprocess.check_output(
        f"nvidia-smi {one} --query-gpu=memory.used --format=csv,noheader,nounits", shell=True
    )
    assert int(used) == 0, one
processes = "nvidia-smi --query-compute-apps=pid,used_memory --format=csv"
assert subprocess.getoutput(f"{processes},noheader") == ""
assert subprocess.getoutput(processes) == "pid, used_memory [MiB]"
for options in ("-q -x", "--id=2 --query-gpu=name", "topo -m"):
    failed = subprocess.run(f"nvidia-smi {options}", shell=True, capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stdout, failed.stderr.count("expected")) == (1, "", 1), failed

weight = torch.ones(8, 8, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(3):
    weight.sum().backward()
    optimizer.step()
