"""Networks with closed-form per-example norms against PyTorch, autograd one example at a time, and Opacus."""

import math
from dataclasses import replace

import pytest
import torch
from net_modules import ACTIVATIONS, MODULES, Rnn, make_module
from opacus.grad_sample import GradSampleModule
from opacus.layers import DPLSTM
from torch.nn import functional as F  # noqa: N812

from dpexp.nets import NETS
from dpexp.nets.conv import Conv
from dpexp.nets.layers import MaxPool

PARAMETERS = {
    "scatter_cnn_28": 33_066,
    "raw_cnn_28": 26_010,
    "scatter_cnn_32": 187_210,
    "raw_cnn_32": 550_570,
    "rnn": 2_021_202,
}
CASES = [(name, activation) for name in NETS for activation in ACTIVATIONS]


def batch(net, size, seed=0):
    """Random features, or tokens of which many repeat, and labels."""
    draws = torch.Generator().manual_seed(seed)
    y = torch.randint(0, net.classes, (size,), generator=draws)
    shape = (size, math.prod(net.input_shape))
    if net.name == "rnn":
        return torch.randint(0, 60, shape, generator=draws).double(), y
    return torch.randn(shape, generator=draws, dtype=torch.float64), y


def world(name, activation="tanh", size=4):
    """A network, its module, their common parameters, and a batch."""
    torch.manual_seed(0)
    net, module = NETS[name](activation), make_module(name, activation)
    params = tuple(p.detach().clone() for p in module.parameters())
    return net, module, params, *batch(net, size)


def gradients_one_by_one(module, x, y):
    """Gradient of every example alone, by autograd."""
    parameters = list(module.parameters())
    losses = (F.cross_entropy(module(x[i : i + 1]), y[i : i + 1]) for i in range(len(x)))
    return [torch.autograd.grad(loss, parameters) for loss in losses]


def norms_of(gradients):
    return torch.stack([torch.sqrt(sum(g.square().sum() for g in one)) for one in gradients])


def weighted(gradients, factors):
    return [sum(f * g for f, g in zip(factors, parts, strict=True)) for parts in zip(*gradients, strict=True)]


def assert_equal(found, expected):
    """Equal to 1e-9 of the largest entry of each tensor."""
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9 * float(other.abs().max()))


@pytest.mark.parametrize("name", NETS)
def test_networks_have_the_published_parameter_counts(name):
    net = NETS[name]("tanh")
    params = net.init(torch.Generator().manual_seed(0))
    assert [tuple(p.shape) for p in params] == net.shapes()
    assert sum(p.numel() for p in params) == PARAMETERS[name]


@pytest.mark.parametrize("name", NETS)
def test_first_weights_are_distributed_as_pytorchs_own(name):
    ours = NETS[name]("tanh").init(torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    theirs = list(make_module(name, "tanh").parameters())
    assert [p.shape for p in ours] == [p.shape for p in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == torch.float64
        if one.numel() > 1000:
            torch.testing.assert_close(one.std(), other.std().detach(), rtol=0.05, atol=0)
            assert abs(one.mean()) < 5 * one.std() / math.sqrt(one.numel())
            torch.testing.assert_close(one.abs().max(), other.abs().max().detach(), rtol=0.2, atol=0)


@pytest.mark.parametrize("name", NETS)
def test_first_weights_depend_on_the_generator_alone(name):
    first, again, other = (NETS[name]("relu").init(torch.Generator().manual_seed(s)) for s in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize(("name", "activation"), CASES)
def test_logits_and_losses_equal_the_modules(name, activation):
    net, module, params, x, y = world(name, activation)
    expected = module(x).detach()
    assert_equal([net.logits(params, x)], [expected])
    assert_equal([net.per_sample(params, x, y).loss], [F.cross_entropy(expected, y, reduction="none")])


@pytest.mark.parametrize(("name", "activation"), CASES)
def test_norms_and_weighted_sums_equal_one_example_at_a_time(name, activation):
    net, module, params, x, y = world(name, activation)
    expected, factors = gradients_one_by_one(module, x, y), torch.tensor([0.3, -2.0, 0.0, 1.7], dtype=torch.float64)
    plain, known = net.per_sample(params, x, y), net.per_sample(params, x, y, net.first_gram(x))
    for found in (plain, known):
        torch.testing.assert_close(found.norm, norms_of(expected), rtol=1e-9, atol=0)
        assert_equal(found.weighted_sum(factors), weighted(expected, factors))


@pytest.mark.parametrize("name", NETS)
def test_norms_and_weighted_sums_equal_opacus(name):
    net, reference, params, x, y = world(name, size=3)
    module = Rnn(ACTIVATIONS["tanh"], DPLSTM).double() if name == "rnn" else make_module(name, "tanh")
    named, expected_names = dict(module.named_parameters()), [key for key, _ in reference.named_parameters()]
    for key, value in zip(expected_names, params, strict=True):  # DPLSTM has the LSTM's names in another order
        named[key].data.copy_(value)
    hooked = GradSampleModule(module, loss_reduction="sum")
    F.cross_entropy(hooked(x), y, reduction="sum").backward()
    gradients = list(zip(*(named[key].grad_sample for key in expected_names), strict=True))
    found, factors = net.per_sample(params, x, y), torch.tensor([1.0, 0.25, 3.0], dtype=torch.float64)
    torch.testing.assert_close(found.norm, norms_of(gradients), rtol=1e-9, atol=0)
    assert_equal(found.weighted_sum(factors), weighted(gradients, factors))


@pytest.mark.parametrize("name", NETS)
def test_an_empty_batch_has_no_norms_and_sums_to_zeros(name):
    net, _, params, x, y = world(name, size=0)
    found = net.per_sample(params, x, y)
    assert found.loss.shape == found.norm.shape == (0,)
    assert net.logits(params, x).shape == (0, net.classes)
    for total, shape in zip(found.weighted_sum(x.new_zeros(0)), net.shapes(), strict=True):
        assert torch.equal(total, torch.zeros(shape, dtype=torch.float64))


@pytest.mark.parametrize("name", NETS)
def test_an_example_counts_the_same_alone_in_a_batch_and_in_chunks(name):
    net, _, params, x, y = world(name, size=5)
    whole, factors = net.per_sample(params, x, y), torch.rand(5, dtype=torch.float64)
    alone = torch.cat([net.per_sample(params, x[i : i + 1], y[i : i + 1]).norm for i in range(5)])
    torch.testing.assert_close(alone, whole.norm, rtol=1e-9, atol=0)
    cut = replace(net, chunk=2)
    chunks = cut.per_sample(params, x, y, cut.first_gram(x))
    torch.testing.assert_close(chunks.norm, whole.norm, rtol=1e-9, atol=0)
    assert_equal(chunks.weighted_sum(factors), whole.weighted_sum(factors))
    assert_equal([cut.logits(params, x)], [net.logits(params, x)])


@pytest.mark.parametrize("name", NETS)
def test_arranged_features_give_the_same_numbers(name):
    net, _, params, x, y = world(name)
    arranged, factors = net.arranged(x), torch.rand(4, dtype=torch.float64)
    one, other = net.per_sample(params, x, y), net.per_sample(params, arranged, y, net.first_gram(arranged))
    torch.testing.assert_close(other.norm, one.norm, rtol=1e-9, atol=0)
    assert_equal(other.weighted_sum(factors), one.weighted_sum(factors))
    assert_equal([net.logits(params, arranged)], [net.logits(params, x)])


@pytest.mark.parametrize("name", NETS)
def test_weights_inputs_and_factors_stay_untouched(name):
    net, _, params, x, y = world(name)
    factors = torch.rand(4, dtype=torch.float64)
    before = [t.clone() for t in (*params, x, y, factors)]
    found = net.per_sample(params, x, y, net.first_gram(x))
    first, again = found.weighted_sum(factors), found.weighted_sum(factors)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(before, (*params, x, y, factors), strict=True))
    assert not any(p.requires_grad for p in (*params, *first))


@pytest.mark.parametrize("name", NETS)
def test_an_example_without_gradient_has_norm_zero_not_nan(name):
    net, _, params, x, y = world(name)
    sure = params[-1] + 1e6 * F.one_hot(torch.tensor(0), net.classes)
    found = net.per_sample((*params[:-1], sure), x, torch.zeros_like(y), net.first_gram(x))
    assert torch.equal(found.norm, torch.zeros(4, dtype=torch.float64))
    assert all(torch.equal(g, torch.zeros_like(g)) for g in found.weighted_sum(found.norm + 1))


def test_equal_pixels_in_a_pool_give_their_gradient_to_the_first_as_in_pytorch():
    net, module, params, x, y = world("raw_cnn_28", "relu")
    flat = torch.zeros_like(x)  # every window ties; relu also ties at 0 where the first bias is negative
    found, expected = net.per_sample(params, flat, y), gradients_one_by_one(module, flat, y)
    torch.testing.assert_close(found.norm, norms_of(expected), rtol=1e-9, atol=0)
    assert_equal(found.weighted_sum(torch.ones(4).double()), weighted(expected, torch.ones(4).double()))


@pytest.mark.parametrize("tokens", [[7] * 80, [5, 9] * 40, list(range(40)) + [0] * 40], ids=["one", "two", "padded"])
def test_repeated_tokens_share_one_embedding_row(tokens):
    net, module, params, _, _ = world("rnn")
    x, y = torch.tensor([tokens], dtype=torch.float64), torch.tensor([1])
    expected = gradients_one_by_one(module, x, y)
    for gram in (None, net.first_gram(x)):
        found = net.per_sample(params, x, y, gram)
        torch.testing.assert_close(found.norm, norms_of(expected), rtol=1e-9, atol=0)
        assert_equal(found.weighted_sum(torch.ones(1).double()), expected[0])


def test_a_batch_with_more_tokens_than_words_gives_the_same_numbers():
    net, _, params, x, y = world("rnn")
    small = (params[0][:60], *params[1:])
    first = replace(net.layers[0], vocabulary=60)
    found = replace(net, layers=(first, *net.layers[1:])).per_sample(small, x, y)
    expected = net.per_sample(params, x, y)
    torch.testing.assert_close(found.norm, expected.norm, rtol=1e-9, atol=0)
    sums, rows = found.weighted_sum(found.norm), expected.weighted_sum(found.norm)
    assert_equal(sums, (rows[0][:60], *rows[1:]))


@pytest.mark.parametrize(
    "conv",
    [
        Conv(3, 5, kernel=3, stride=1, padding=1, size=4),
        Conv(3, 5, kernel=3, stride=2, padding=1, size=7),
        Conv(2, 4, kernel=4, stride=2, padding=0, size=8),
        Conv(2, 4, kernel=5, stride=3, padding=2, size=6),
    ],
    ids=str,
)
def test_every_way_to_a_convolutions_norm_agrees(conv):
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(3, conv.inputs, conv.size, conv.size, generator=draws, dtype=torch.float64)
    grad = torch.randn(3, conv.outputs, conv.side, conv.side, generator=draws, dtype=torch.float64)
    patches = F.unfold(x, conv.kernel, padding=conv.padding, stride=conv.stride)
    direct = torch.einsum("bop,bdp->bod", grad.flatten(2), patches).square().sum((1, 2))
    expected = direct + grad.sum((2, 3)).square().sum(1)
    for way in ("pixels", "patches"):
        gram = conv.gram(x, way)
        torch.testing.assert_close(gram, patches.mT @ patches + 1, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(conv.square_norm((), (x,), grad, gram), expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(conv.square_norm_direct(x, grad), expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(conv.square_norm((), (x,), grad, None), expected, rtol=1e-12, atol=0)


def test_an_unknown_activation_names_the_known_ones():
    with pytest.raises(ValueError, match="activation must be one of tanh, relu, got 'gelu'"):
        NETS["rnn"]("gelu")


def test_the_modules_of_the_tests_cover_every_network():
    own = set(NETS) - {"linear_for_tests"}  # which tests/selective_worlds.py adds
    assert own == set(MODULES) == set(PARAMETERS)
    assert any(isinstance(layer, MaxPool) for layer in NETS["raw_cnn_28"]("relu").layers)
