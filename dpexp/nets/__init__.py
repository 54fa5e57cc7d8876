"""Networks with closed-form per-example gradient norms, for methods that need more than a clipped sum of them."""

from collections.abc import Callable

from dpexp.nets.chain import Net, PerSample
from dpexp.nets.cnn import raw_cnn_28, raw_cnn_32, scatter_cnn_28, scatter_cnn_32
from dpexp.nets.layers import Params
from dpexp.nets.rnn import rnn

NETS: dict[str, Callable[[str], Net]] = {
    "scatter_cnn_28": scatter_cnn_28,
    "raw_cnn_28": raw_cnn_28,
    "scatter_cnn_32": scatter_cnn_32,
    "raw_cnn_32": raw_cnn_32,
    "rnn": rnn,
}

__all__ = ["NETS", "Net", "Params", "PerSample"]
