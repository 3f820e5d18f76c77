"""ResNet-50 v1.5 as NVIDIA's DeepLearningExamples train it in MXNet (its `runner`), in torch.

With float16 convolutions have channels last, and batch norm's kernel computes ReLU and the addition before it; a
compiled model stands for that. In float32 and TF32 neither is so.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, required=True)
parser.add_argument("--precision", choices=("FP32", "TF32", "fp16 AMP"), required=True)
given = parser.parse_args()
is_half = given.precision == "fp16 AMP"
layout = torch.channels_last if is_half else torch.contiguous_format
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = given.precision == "TF32"
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl")


def normed(taken, made, kernel, stride=1):
    return nn.Conv2d(taken, made, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(made)


class Bottleneck(nn.Module):
    def __init__(self, taken, width, stride):
        super().__init__()
        made = 4 * width
        self.body = nn.Sequential(
            *normed(taken, width, 1),
            nn.ReLU(inplace=True),
            *normed(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *normed(width, made, 1),
        )
        self.skip = nn.Sequential(*normed(taken, made, 1, stride)) if taken != made else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


def resnet():
    layers, taken = [*normed(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for place in range(blocks):
            layers.append(Bottleneck(taken, width, 1 if place else stride))
            taken = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


with device:
    model = resnet().to(memory_format=layout)
if is_half:
    model = torch.compile(model)
model = DistributedDataParallel(model, device_ids=[device.index])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
images = torch.randn(given.batch, 3, 224, 224, device=device).to(memory_format=layout)
labels = torch.randint(1000, (given.batch,), device=device)
while True:
    with torch.autocast("cuda", torch.float16, enabled=is_half):
        loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
