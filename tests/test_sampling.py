import subprocess
import sys
import types

import numpy as np
import pytest
import torch

from dpexp.mechanism import Mechanism
from dpexp.sampling import Noise, generator, poisson_batch, seed_sequence, torch_generator

CPU = torch.device("cpu")


def mechanism(n=1000, batch=50.0):
    return Mechanism(n=n, expected_batch_size=batch, steps=10, clip_norm=1.0, noise_multiplier=1.0)


def test_torch_stream_is_numpys_mersenne_twister_with_its_whole_state_seeded():
    drawn = torch.empty(2000, dtype=torch.int64).random_(0, 2**20, generator=torch_generator(CPU, "run", 3))
    expected = np.random.MT19937(seed_sequence("run", 3)).random_raw(2000) % 2**20
    assert (drawn.numpy() == expected).all()


def test_keys_that_differ_in_any_part_or_type_give_different_streams():
    keys = [
        (0, "batches", 1),
        (0, "batches", 2),
        (1, "batches", 1),
        (0, "noise", 1),
        ("0", "batches", 1),
        (0, "batches1"),
    ]
    assert len({generator(*key).integers(2**62) for key in keys}) == len(keys)


def test_batch_size_has_the_mean_and_variance_of_poisson_sampling():
    sizes = np.array([len(poisson_batch(mechanism(), 0, step)) for step in range(2000)])
    variance = 1000 * 0.05 * 0.95
    assert abs(sizes.mean() - 50) < 4 * np.sqrt(variance / 2000)
    assert abs(sizes.var() / variance - 1) < 4 * np.sqrt(2 / 2000)


def test_each_example_and_each_pair_enters_as_often_as_independent_coins_say():
    small = mechanism(n=5, batch=2.0)
    masks = np.zeros((20_000, 5))
    for step in range(len(masks)):
        masks[step, poisson_batch(small, 7, step)] = 1
    rate, pairs = masks.mean(axis=0), masks.T @ masks / len(masks)
    assert np.abs(rate - 0.4).max() < 4 * np.sqrt(0.24 / 20_000)
    off_diagonal = pairs[~np.eye(5, dtype=bool)]
    assert np.abs(off_diagonal - 0.16).max() < 4 * np.sqrt(0.16 * 0.84 / 20_000)


def test_batches_hold_no_example_twice_and_full_batch_holds_all():
    assert all(
        len(set(b)) == len(b) for b in (poisson_batch(mechanism(n=40, batch=20.0), 0, s).tolist() for s in range(50))
    )
    assert poisson_batch(mechanism(n=40, batch=40.0), 0, 0).tolist() == list(range(40))


def test_a_rate_of_one_in_n_gives_about_a_third_empty_batches():
    rare = mechanism(n=64, batch=1.0)
    empty = sum(len(poisson_batch(rare, 0, step)) == 0 for step in range(200))
    assert abs(empty - 73) < 4 * np.sqrt(200 * 0.365 * 0.635)  # (1 - 1/64)^64 = 0.36499


def test_batches_are_the_same_in_another_process():
    code = (
        "from dpexp.sampling import poisson_batch; from dpexp.mechanism import Mechanism;"
        "m = Mechanism(n=1000, expected_batch_size=50.0, steps=10, clip_norm=1.0, noise_multiplier=1.0);"
        "print(poisson_batch(m, 3, 9).tolist())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert other.strip() == str(poisson_batch(mechanism(), 3, 9).tolist())


def test_a_runs_noise_does_not_depend_on_its_companions_and_differs_from_theirs():
    like = torch.zeros(())
    alone, together = Noise(["b"], [(3, 4)], like), Noise(["a", "b", "c"], [(3, 4)], like)
    for noise in (alone, together):
        noise.start_epoch(2)
    first, second = alone.draw()[0].clone(), alone.draw()[0].clone()
    (packed,) = together.draw()
    assert torch.equal(first[0], packed[1])
    assert not torch.equal(packed[0], packed[1])
    assert not torch.equal(first, second)


def test_each_epoch_has_its_own_noise():
    noise = Noise(["a"], [(3, 4)], torch.zeros(()))
    draws = []
    for epoch in (0, 1, 0):
        noise.start_epoch(epoch)
        draws.append(noise.draw()[0].clone())
    assert torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[1])


def test_shared_noise_is_one_draw_for_all_runs():
    noise = Noise(["a", "b"], [(3, 4)], torch.zeros(()), shared_key="seed 0")
    noise.start_epoch(0)
    assert noise.draw()[0].shape == (1, 3, 4)


@pytest.mark.parametrize("shape", [(10, 785), (7,), (3, 5)])
def test_noise_is_standard_normal(shape):
    noise = Noise([str(k) for k in range(400)], [shape], torch.zeros(()))
    noise.start_epoch(0)
    values = noise.draw()[0].double()
    n = values.numel()
    assert abs(values.mean()) < 4 / n**0.5
    assert abs(values.var() - 1) < 4 * (2 / n) ** 0.5
    assert abs((values.abs() < 1).double().mean() - 0.682689) < 4 * (0.2166 / n) ** 0.5


def test_global_random_state_is_left_alone():
    torch.manual_seed(5)
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    noise = Noise(["a"], [(3,)], torch.zeros(()))
    noise.start_epoch(0)
    noise.draw()
    poisson_batch(mechanism(), 0, 0)
    assert torch.equal(before, torch.get_rng_state())
    assert (numpy_before == np.random.get_state()[1]).all()


def test_noise_reaches_beyond_what_24_bit_uniform_numbers_can_give():
    assert (2 * 24 * np.log(2)) ** 0.5 == pytest.approx(5.768, abs=1e-3)  # where torch's own normals end
    noise = Noise(["a"], [(1000, 1000)], torch.zeros(()))
    rare = types.SimpleNamespace(random=lambda size: np.full(size, 1 - 2.0**-40))
    for epoch in range(40):
        noise.start_epoch(epoch)
        noise._tails = [[rare]]
        farthest = float(noise.draw()[0].abs().max())
        if farthest > 5:  # redrawn: here with the uniform number 2^-40, which lies far out
            break
    assert 7 < farthest < 10


def test_the_redrawn_tail_is_the_normals_own():
    noise = Noise([str(k) for k in range(4)], [(500_000,)], torch.zeros(()))
    monkey, far = 2.5, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpexp.sampling.TAIL", monkey)
        noise.start_epoch(0)
        values = noise.draw()[0].double().flatten()
    for edge, mass in ((2.5, 0.0124193), (3.0, 0.0026998), (3.5, 0.00046526)):
        share = float((values.abs() > edge).double().mean())
        assert abs(share - mass) < 4 * (mass / values.numel()) ** 0.5, edge
        far.append(float((values > edge).double().mean()) / share)
    assert all(abs(positive - 0.5) < 0.1 for positive in far)


def test_a_redrawn_tail_does_not_depend_on_companions(monkeypatch):
    monkeypatch.setattr("dpexp.sampling.TAIL", 1.0)
    alone, together = (
        Noise(["b"], [(30, 4), (7,)], torch.zeros(())),
        Noise(["a", "b"], [(30, 4), (7,)], torch.zeros(())),
    )
    for noise in (alone, together):
        noise.start_epoch(1)
    for _ in range(3):
        for one, other in zip(alone.draw(), together.draw(), strict=True):
            assert torch.equal(one[0], other[1])
