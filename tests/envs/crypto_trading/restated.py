"""Rule sets one and two once more, from README.md alone: arrays of NumPy, whose promotion rounds."""

import math

import numpy as np


class Restated:
    """One episode at a time; closes P [T, N], minimums q' [N], numbers of the preset by their symbols."""

    def __init__(self, rule: int, P, q, L, C, f, kappa, A, decay=0.0, z=0.0, rho=0.0, R=0.0):
        self.rule, self.P, self.q, self.L, self.C, self.f, self.kappa = rule, np.asarray(P), q, L, C, f, kappa
        self.decay, self.z, self.rho, self.R = decay, z, np.float32(rho), R
        first, N = self.P[0], self.P.shape[1]
        if rule == 1:
            self.s = np.array([1 / 10 ** math.floor(math.log(p) / math.log(10)) * A for p in first.tolist()])
            self.w = C / (N * first)
        else:
            self.s = (C / (first * A)).astype(np.float32)
            self.w = C / (N * first * (1 + f))
        self.E, self.G = float(self.w @ self.P[L - 1]), 0.0
        self.reset()

    def reset(self):
        N = self.P.shape[1]
        self.t, self.c, self.V = self.L - 1, self.C, self.C
        self.h, self.a, self.peak = (np.zeros(N, np.float32) for _ in range(3))

    def sell(self, i, n):
        self.a[i] = 0
        self.h[i] -= n
        self.c += float(self.P[self.t, i]) * float(n) * (1 - self.f)
        if self.h[i] == 0:
            self.peak[i] = 0

    def step(self, u):
        u = np.asarray(u, np.float32)
        if self.rule == 2:
            u = np.clip(u, -1000, 1000)
        x = (u * self.s).astype(np.float32)
        self.t += 1
        p, N = self.P[self.t], len(u)
        self.a[self.h > 0] += 1
        if self.rho > 0:
            for i in np.flatnonzero(self.h > 0):
                self.peak[i] = max(self.peak[i], np.float32(p[i]))
                if p[i] > 0 and p[i] < self.peak[i] * (np.float32(1) - self.rho):
                    self.sell(i, self.h[i])
        for i in range(N):
            if x[i] < -self.q[i] and self.h[i] > 0 and p[i] > 0:
                self.sell(i, min(self.h[i], -x[i]))
        for i in np.flatnonzero(self.a >= 48):
            self.sell(i, np.float32(0.05) * self.h[i])
        for i in range(N):
            if x[i] > self.q[i] and p[i] > 0:
                m = max(0.0, self.c - self.C * self.R) * self.kappa / (1 + self.f) / p[i]
                n = min(float(m), float(x[i]))
                n = n if n >= self.q[i] else 0.0
                if n > 0 and self.h[i] == 0:
                    self.peak[i] = p[i] if self.rule == 2 else 0
                self.h[i] = float(self.h[i]) + n
                self.c -= float(p[i]) * n * (1 + self.f)
        value = self.c + float(self.h.astype(np.float64) @ p)
        E = float(self.w @ p)
        r = self.reward(value, E, self.h * p / value)
        self.V, self.E, self.G = value, E, 0.99 * self.G + r
        over = self.t == len(self.P) - self.L - 1
        return (self.G if over else r), over

    def reward(self, V, E, y):
        k, dV, dE = 2.0**-10, V - self.V, E - self.E
        if self.rule == 1:
            return k * (dV - dE)
        H = max(len(self.P) - 2 * self.L, 1)
        delta = max(1 - np.clip((self.t - self.L + 1) / H, 0, 1), self.decay)
        m, v = dE / self.E, self.c / V
        B = 0.1 * k * abs(m) * v if m < 0 and v > 0.1 else 0
        Q = 0.0
        if self.z:
            Q = -self.z * max(0, y.max() - 0.40)
            kept = np.sort(y[y > 0.01])
            n = len(kept)
            if n < 3:
                Q -= 0.5 * self.z * (3 - n)
            else:
                gini = 2 * (np.arange(1, n + 1) * kept).sum() / (n * kept.sum()) - (n + 1) / n
                Q += 0.1 * self.z * max(0, 0.4 - gini)
        short = max(0, self.C * self.R - self.c) / self.C
        return 0.5 * k * delta * (dV - dE) + 0.3 * k * delta * dV / self.C + 0.2 * B - 0.5 * k * short + Q
