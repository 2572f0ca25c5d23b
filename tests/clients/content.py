"""Writes the files of the hub's two repositories below a directory; runs where numpy, pyarrow and safetensors are.

content.py DIR"""

import json
import os
import sys

import numpy
import pyarrow
import pyarrow.parquet
from safetensors.numpy import save_file


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def model(at):
    tokens = {"[UNK]": 0, "hello": 1, "world": 2}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": tokens, "unk_token": "[UNK]"},
    }
    config = {
        "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 1, "intermediate_size": 8, "vocab_size": 3,
    }
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "model_max_length": 16}
    write(os.path.join(at, "README.md"), "first")
    write(os.path.join(at, "config.json"), json.dumps(config))
    write(os.path.join(at, "tokenizer.json"), json.dumps(tokenizer))
    write(os.path.join(at, "tokenizer_config.json"), json.dumps(settings))
    write(os.path.join(at, "sub/poetry.lock"), "# not a lock of ours\n")
    numpy.save(os.path.join(at, "weights.npy"), numpy.arange(100_000, dtype="<f4"))
    save_file({"weight": numpy.arange(60_000, dtype="<f4")}, os.path.join(at, "model.safetensors"))
    table = pyarrow.table({"number": list(range(2000)), "text": ["row %d %s" % (at, "x" * 60) for at in range(2000)]})
    with pyarrow.ipc.new_stream(os.path.join(at, "table.arrow"), table.schema) as stream:
        stream.write_table(table)


def dataset(at):
    write(os.path.join(at, "README.md"), "---\nconfigs:\n- config_name: default\n  data_files: data/train.parquet\n---\n")
    os.makedirs(os.path.join(at, "data"))
    table = pyarrow.table({"number": list(range(2000)), "text": ["row %d" % at for at in range(2000)]})
    pyarrow.parquet.write_table(table, os.path.join(at, "data/train.parquet"))


if __name__ == "__main__":
    model(os.path.join(sys.argv[1], "model"))
    dataset(os.path.join(sys.argv[1], "dataset"))
