#!/usr/bin/env python3
"""The initial values of parallax.h, from its text: integers and IEEE doubles of Python alone.

Without arguments it prints the vectors that initial_value_test.cc and parallax.h hold. With
--accuracy it compares the quantile and the logarithm with those of mpmath (50 digits).
"""
import math
import random
import sys

MASK = (1 << 64) - 1

CENTRE = ([2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4,
           4.5921953931549871457e+4, 1.3731693765509461125e+4, 1.9715909503065514427e+3,
           1.3314166789178437745e+2, 3.3871328727963666080e+0],
          [5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4,
           2.1213794301586595867e+4, 5.3941960214247511077e+3, 6.8718700749205790830e+2,
           4.2313330701600911252e+1, 1.0])
TAIL = ([7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
         1.27045825245236838258e+0, 3.64784832476320460504e+0, 5.76949722146069140550e+0,
         4.63033784615654529590e+0, 1.42343711074968357734e+0],
        [1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
         1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e+0,
         2.05319162663775882187e+0, 1.0])
FAR = ([2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
        2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e+0,
        5.46378491116411436990e+0, 6.65790464350110377720e+0],
       [2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
        7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
        5.99832206555887937690e-1, 1.0])


def mix(z):
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 & MASK
    z = (z ^ z >> 27) * 0x94d049bb133111eb & MASK
    return z ^ z >> 31


def bits_of(seed, row, column):
    return mix(mix(seed + 0x9e3779b97f4a7c15 * (row + 1) & MASK) + column & MASK)


def horner(coefficients, x):
    total = coefficients[0]
    for each in coefficients[1:]:
        total = total * x + each
    return total


def ratio(pair, x):
    return horner(pair[0], x) / horner(pair[1], x)


def negated_log(p):
    m, e = math.frexp(p)  # exact; m in [1/2, 1)
    if m < 0.70710678118654757:
        m, e = m * 2, e - 1
    s = (m - 1) / (m + 1)
    t = s * s
    total = 1 / 21
    for odd in range(19, 1, -2):
        total = total * t + 1 / odd
    log_m = 2 * s + 2 * s * (total * t)
    high, low = float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")
    return -(e * high + (e * low + log_m))


def quantile(q):
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        return horner(CENTRE[0], r) * q / horner(CENTRE[1], r)
    root = math.sqrt(negated_log(0.5 - abs(q)))
    z = ratio(TAIL, root - 1.6) if root <= 5 else ratio(FAR, root - 5)
    return -z if q < 0 else z


def centred(bits):
    return ((bits >> 12) + 0.5) * 2.0**-52 - 0.5


def normal(seed, row, column, mean=0.0, std=1.0):
    return mean + std * quantile(centred(bits_of(seed, row, column)))


def truncated(seed, row, column, mean=0.0, std=1.0):
    return mean + std * quantile(0.9544997361036416 * centred(bits_of(seed, row, column)))


def vectors():
    places = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (7, 3, 5), (123456789, 793469, 511),
              (MASK, 4294967294, 0), (42, 2, 1048575)]
    # The smallest and the largest centred numbers among a million of a seed: the tails.
    draws = [(centred(bits_of(1, row, 0)), row) for row in range(1000000)]
    places += [(1, min(draws)[1], 0), (1, max(draws)[1], 0)]
    for seed, row, column in places:
        print("      {%du, %du, %du, %s, %s}," % (
            seed, row, column, normal(seed, row, column).hex(), truncated(seed, row, column).hex()))
    print("quantiles by hand:")
    for q in (2.0**-53, 0.25, 0.425, 0.425 + 2.0**-53, 0.477, 0.5 - 1e-11, 0.5 - 2.0**-53,
              0.9544997361036416 * (0.5 - 2.0**-53)):
        print("      {%s, %s}," % (q.hex(), quantile(q).hex()))


def accuracy():
    import mpmath
    mpmath.mp.dps = 50
    rng = random.Random(5)
    worst = {"log": 0, "centre": 0, "tail": 0, "far": 0}

    def see(name, have, want):
        worst[name] = max(worst[name], abs(mpmath.mpf(have) / want - 1))

    for _ in range(20000):
        p = 2.0 ** -rng.uniform(1, 53)
        see("log", negated_log(p), -mpmath.log(mpmath.mpf(p)))
        n = rng.getrandbits(52) if rng.random() < 0.5 else int(2.0 ** rng.uniform(0, 51))
        q = (n + 0.5) * 2.0**-52 - 0.5
        probability = mpmath.mpf(1) / 2 + mpmath.mpf(q)
        # Newton on the tail's side, from the double.
        lower = probability if q < 0 else 1 - probability
        z = mpmath.mpf(-abs(quantile(q)))
        for _ in range(3):
            z -= (mpmath.erfc(-z / mpmath.sqrt(2)) / 2 - lower) / mpmath.npdf(z)
        name = "centre" if abs(q) <= 0.425 else "far" if lower < mpmath.exp(-25) else "tail"
        see(name, abs(quantile(q)), -z)
    for name, error in worst.items():
        print("%-7s relative error at most %s" % (name, mpmath.nstr(error, 3)))


if __name__ == "__main__":
    accuracy() if sys.argv[1:] == ["--accuracy"] else vectors()
