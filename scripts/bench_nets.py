"""Time of one clipped gradient sum of one network: ours, PyTorch's plain forward and backward, and Opacus' ways.

All contestants take the same batch of synthetic features in one process, in turn, with one thread, and are repeated;
the median counts. What is computed once per data set (order of the features, the first layer's Gram matrices) is
computed before. `plain` clips nothing and takes the features as stored; `plain_last` takes them channels last.
`ew` and `functorch` are Opacus' other ways to per-sample gradients, `ghost` its two backward passes without them.
`hooks`, `ew` and `functorch` store batch x parameters: 8 GB for `--net rnn --batch 1024`.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import torch
from net_modules import ACTIVATIONS, Rnn, make_module
from opacus.grad_sample.utils import wrap_model
from opacus.layers import DPLSTM
from opacus.optimizers import DPOptimizer
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dpexp.nets import NETS, Net
from dpexp.nets.conv import Conv
from dpexp.nets.layers import Linear
from dpexp.nets.lstm import MeanBiLstm
from dpexp.nets.tokens import EmbeddedLinear

CLIP_NORM = 0.1
SQUARE = 1024  # side of the matrix product that stands for the peak rate
Step = Callable[[], object]


def layer_flops(layer: object, first: bool, batch: int) -> float:
    """Floating-point operations of one example's matrix products in one layer: forward, backward, norm, sum."""
    passes = 2 if first else 3  # the first layer's input needs no gradient
    if isinstance(layer, Conv):
        weights = layer.side**2 * layer.patch * layer.outputs
        return 2 * (passes * weights + min(layer.norm_costs(gram_known=first and layer.by_gram(known=True)).values()))
    if isinstance(layer, Linear):
        return 2 * 3 * layer.inputs * layer.outputs
    if isinstance(layer, EmbeddedLinear):  # the table's products are shared by the batch
        tables = 3 * layer.vocabulary * layer.width * layer.outputs / batch
        return 2 * (tables + 80 * layer.outputs * (layer.width + layer.outputs))
    if isinstance(layer, MeanBiLstm):  # forward, backward, norm and sum each pair the gates with [x, h]
        return 2 * 4 * 2 * 80 * 4 * layer.hidden * (layer.inputs + layer.hidden)
    return 0


def flops(net: Net, batch: int) -> float:
    """Floating-point operations of the matrix products of one example."""
    return sum(layer_flops(layer, place == 0, batch) for place, layer in enumerate(net.layers))


def plain_step(module: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Mean loss and its gradient."""

    def step() -> None:
        module.zero_grad()
        cross_entropy(module(x), y).backward()

    return step


def our_step(net: Net, x: Tensor, y: Tensor) -> Step:
    """Norms, clipping factors, weighted sum."""
    arranged, gram = net.arranged(x), net.first_gram(x)
    params = tuple(p.float() for p in net.init(torch.Generator().manual_seed(0)))

    def step() -> object:
        found = net.per_sample(params, arranged, y, gram)
        return found.weighted_sum((CLIP_NORM / found.norm).clamp_(max=1.0))

    return step


def opacus_step(module: nn.Module, mode: str, x: Tensor, y: Tensor) -> Step:
    """Per-sample gradients in one of Opacus' ways, and its own clipping and summing."""
    more = {"loss_reduction": "sum", "batch_first": True}
    wrapped = wrap_model(module, grad_sample_mode=mode, **more)
    plain = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    optimizer = DPOptimizer(
        plain, noise_multiplier=0.0, max_grad_norm=CLIP_NORM, expected_batch_size=len(x), loss_reduction="sum"
    )

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(wrapped(x), y, reduction="sum").backward()
        optimizer.clip_and_accumulate()

    return step


def ghost_step(module: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Opacus' ghost clipping: one backward pass for the norms, one for the sum."""
    more = {"loss_reduction": "sum", "batch_first": True, "max_grad_norm": CLIP_NORM, "use_ghost_clipping": True}
    wrapped = wrap_model(module, grad_sample_mode="ghost", **more)
    optimizer = DPOptimizer(
        torch.optim.SGD(wrapped.parameters(), lr=0.1),
        noise_multiplier=0.0,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=len(x),
        loss_reduction="sum",
    )
    loss = DPLossFastGradientClipping(wrapped, optimizer, nn.CrossEntropyLoss(reduction="sum"), "sum")

    def step() -> None:
        wrapped.zero_grad()
        loss(wrapped(x), y).backward()

    return step


def channels_last_step(module: nn.Module, net: Net, x: Tensor, y: Tensor) -> Step:
    """The plain step on features that already lie channels last."""
    assert isinstance(module, nn.Sequential)
    rest = module[1:].to(memory_format=torch.channels_last)  # after the Unflatten
    images = x.view(-1, *net.input_shape).contiguous(memory_format=torch.channels_last)
    return plain_step(rest, images, y)


def contestants(name: str, batch: int) -> dict[str, Step]:
    """Every way to take the step that works for this network."""
    torch.manual_seed(0)
    net = NETS[name]("tanh")
    y = torch.randint(0, net.classes, (batch,))
    if name == "rnn":
        x = torch.randint(0, 20_000, (batch, 80)).float()
        private = Rnn(ACTIVATIONS["tanh"], DPLSTM)
        found = {"plain": plain_step(make_module(name, "tanh", torch.float32), x, y), "ours": our_step(net, x, y)}
        return found | {"hooks": opacus_step(private, "hooks", x, y)}
    x = torch.randn(batch, *net.input_shape).flatten(1)

    def module() -> nn.Module:
        return make_module(name, "tanh", torch.float32)

    return {
        "plain": plain_step(module(), x, y),
        "plain_last": channels_last_step(module(), net, x, y),
        "ours": our_step(net, x, y),
        "ghost": ghost_step(module(), x, y),
        **{mode: opacus_step(module(), mode, x, y) for mode in ("hooks", "ew", "functorch")},
    }


def measure(steps: dict[str, Step], repeats: int) -> dict[str, float]:
    """Median milliseconds of every contestant, the first round not counted, and of the matrix product `gemm`."""
    square = torch.rand(SQUARE, SQUARE)
    steps = {"gemm": lambda: square @ square, **steps}
    seen: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats + 1):
        for name, step in steps.items():
            started = time.perf_counter()
            step()
            seen[name].append(time.perf_counter() - started)
    return {name: 1e3 * statistics.median(values[1:]) for name, values in seen.items()}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=list(NETS), default="scatter_cnn_28", help="default: scatter_cnn_28")
    parser.add_argument("--batch", type=int, default=2048, help="examples in the batch (default: 2048)")
    parser.add_argument("--repeats", type=int, default=7, help="rounds over all contestants (default: 7)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    ms = measure(contestants(args.net, args.batch), args.repeats)
    total = args.batch * flops(NETS[args.net]("tanh"), args.batch)
    peak = 2 * SQUARE**3 / ms.pop("gemm")
    print(f"{args.net}, batch {args.batch}: {total / 1e9:.2f} GFLOP of our matrix products, one thread")
    for name, value in ms.items():
        print(f"{name:>12}: {value:8.1f} ms, {value / ms['ours']:5.2f} times ours")
    opacus = " ".join(
        f"{name}_ratio={ms[name] / ms['ours']:.2f}" for name in ms if not name.startswith(("plain", "ours"))
    )
    overhead = " ".join(f"over_{name}={ms['ours'] / ms[name]:.3f}" for name in ms if name.startswith("plain"))
    print(f"bench_nets net={args.net} {overhead} {opacus} peak_fraction={total / ms['ours'] / peak:.3f}")


if __name__ == "__main__":
    main()
