"""A job that compiles a small model with torch.compile, on the processor.

job.py MODEL   `narrow` or `wide`, whose graphs are others. Prints one object: the numbers, whether they are those of the
               model as it is, and what the caches of Inductor counted."""

import json
import os
import pathlib
import sys

import torch
from torch._dynamo.utils import counters


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, width), torch.nn.Linear(width, 4)

    def forward(self, numbers):
        return torch.softmax(self.second(torch.relu(self.first(numbers))) * 2 + 1, -1)


# For the compiler that kills.
pathlib.Path(os.environ["JOB_PID"]).write_text(str(os.getpid()))
torch.manual_seed(7)
model = Model({"narrow": 16, "wide": 24}[sys.argv[1]]).eval()
numbers = torch.arange(24.0).reshape(3, 8) / 24
with torch.no_grad():
    plain, compiled = model(numbers), torch.compile(model)(numbers)
graphs, traces = counters["inductor"], counters["aot_autograd"]
told = {
    "numbers": [number.hex() for number in compiled.flatten().tolist()],
    "right": torch.allclose(plain, compiled, atol=1e-6),
    "hits": traces["autograd_cache_hit"] + graphs["fxgraph_cache_hit"],
    "misses": traces["autograd_cache_miss"] + graphs["fxgraph_cache_miss"],
}
print(json.dumps(told))
