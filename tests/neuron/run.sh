#!/usr/bin/env bash
# neuron           the cache of optimum-neuron, unmodified, from PyPI, in pulled directories and through `store serve`
# torch, transformers and the runtime of Neuron, which need the accelerator, are stubs. What is missing fails the suite.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/support/venv.sh
suite_in_venv neuron
