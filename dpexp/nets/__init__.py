"""Networks with closed-form per-example gradient norms, for methods that need more than a clipped sum of them."""

from collections.abc import Callable

from dpexp.nets.chain import Net, PerSample
from dpexp.nets.cnn import raw_cnn_28, raw_cnn_32, scatter_cnn_28, scatter_cnn_32
from dpexp.nets.layers import Params

NETS: dict[str, Callable[[str], Net]] = {
    "scatter_cnn_28": scatter_cnn_28,
    "raw_cnn_28": raw_cnn_28,
    "scatter_cnn_32": scatter_cnn_32,
    "raw_cnn_32": raw_cnn_32,
}

__all__ = ["NETS", "Net", "Params", "PerSample"]
