TEMP = True
import math
import numpy as np
from scipy.stats import nbinom, norm
from dpexp.accountants import renyi_divergence
ORDERS = [1 + x / 10 for x in range(1, 100)] + list(range(11, 64)) + [128, 256, 512]
def sgm(q, s): return np.array([renyi_divergence(q, s, 1, a) for a in ORDERS])
def eps(r, delta):
    a = np.array(ORDERS)
    e = r + np.log((a - 1) / a) - (math.log(delta) + np.log(a)) / (a - 1)
    return max(0.0, float(np.min(e)))
def largest(step, fixed, target, delta):
    lo, hi = 0, 1
    while eps(fixed + hi * step, delta) < target: lo, hi = hi, 2 * hi
    while hi - lo > 1:
        m = (lo + hi) // 2
        lo, hi = (m, hi) if eps(fixed + m * step, delta) < target else (lo, m)
    return lo
