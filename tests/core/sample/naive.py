"""The chain written as its definition, one candidate at a time, in float32 of the C library.

Slow, sorts everything, keeps nothing between draws but its generators: what the fast one is
compared with.
"""

import ctypes
import math

import numpy as np

from golem_core.sample import Generator

F = np.float32
_libm = ctypes.CDLL("libm.so.6")


def _c(name, arguments):
    function = getattr(_libm, name)
    function.restype = ctypes.c_float
    function.argtypes = [ctypes.c_float] * arguments
    return lambda *a: F(function(*a))


expf, logf, log2f, powf = _c("expf", 1), _c("logf", 1), _c("log2f", 1), _c("powf", 2)
NEVER = F(-math.inf)


def softmax(items):
    """items: [id, logit, p]; sets p, in the items' order."""
    best = max(item[1] for item in items)
    total = F(0)
    for item in items:
        item[2] = expf(item[1] - best)
        total += item[2]
    for item in items:
        item[2] = item[2] / total


def ranked(items):
    return sorted(items, key=lambda item: -float(item[1]))  # stable: ties keep their order


class NaiveSampler:
    def __init__(self, params, prompt=(), heads=None):
        self.params = params
        self.said = list(prompt)
        self.heads = heads or {}
        self.draws, self.xtc_draws = Generator(params.seed), Generator(params.seed)
        self.mu = F(2) * F(params.mirostat_tau)
        decay = F(params.adaptive_decay)
        self.weight = F(1) / (F(1) - decay)
        self.sum = F(params.adaptive_target) / (F(1) - decay)

    def sample(self, logits):
        p = self.params
        items = [[i, F(x), F(0)] for i, x in enumerate(logits)]
        for token, bias in p.logit_bias:
            items[token][1] += F(bias)
        is_sorted = False
        if p.mirostat:
            items = self.temperature(items, is_sorted)[0]
            position, items = self.mirostat(items)
        else:
            for name in p.samplers:
                if name != "adaptive_p":
                    items, is_sorted = getattr(self, name)(items, is_sorted)
            draw = self.adaptive if "adaptive_p" in p.samplers else self.dist
            position = draw(items)
        token = items[position][0]
        self.said.append(token)
        return token

    def penalties(self, items, is_sorted):
        p = self.params
        if not p.penalises:
            return items, is_sorted
        window = self.said[-p.repeat_last_n :]
        for item in items:
            count = window.count(item[0])
            if count:
                repeat = F(p.repeat_penalty)
                item[1] = item[1] * repeat if item[1] <= 0 else item[1] / repeat
                item[1] -= F(count) * F(p.frequency_penalty) + F(p.presence_penalty)
        return items, False

    def dry(self, items, is_sorted):
        p = self.params
        if not p.dries:
            return items, is_sorted
        text = self.said[-p.dry_penalty_last_n :]
        n, allowed = len(text), p.dry_allowed_length
        if n <= allowed:
            return items, is_sorted
        limit = n
        for back in range(n):
            tails = [
                tail
                for tail in self.heads.get(text[n - 1 - back], [])
                if len(tail) <= back and tuple(text[n - back :][: len(tail)]) == tail
            ]
            if tails:
                limit = back - max(map(len, tails))
                break
        if limit < allowed:
            return items, is_sorted
        longest = {}
        for end in range(n - 1):  # the text up to and with place `end`, against the whole
            m = 0
            while m <= end and text[end - m] == text[n - 1 - m]:
                m += 1
            m = min(m, limit)
            if m >= allowed:
                follows = text[end + 1]
                longest[follows] = max(longest.get(follows, 0), m)
        cap = int(F(88.7228391) / logf(p.dry_base)) if F(p.dry_base) > F(1.000001) else 0
        for item in items:
            if item[0] in longest and () not in self.heads.get(item[0], []):
                exponent = longest[item[0]] - allowed
                exponent = min(exponent, cap) if cap else exponent
                item[1] -= F(float(F(p.dry_multiplier)) * float(F(p.dry_base)) ** exponent)
        return items, False

    def top_n_sigma(self, items, is_sorted):
        n = F(self.params.top_n_sigma)
        if n <= 0 or len(items) <= 1:
            return items, is_sorted
        finite = [item[1] for item in items if item[1] != NEVER]
        total, squares = F(0), F(0)
        for x in finite:
            total += x
        mean = total / F(len(finite))
        for x in finite:
            squares = F(float(squares) + float(x - mean) ** 2)
        lowest = max(finite) - n * np.sqrt(squares / F(len(finite)))
        for item in items:
            if item[1] < lowest:
                item[1] = NEVER
        return ranked(items), True

    def top_k(self, items, is_sorted):
        k = self.params.top_k
        return (ranked(items)[:k], True) if k > 0 else (items, is_sorted)

    def typ_p(self, items, is_sorted):
        limit, least = F(self.params.typical_p), self.params.min_keep
        if limit >= 1:
            return items, is_sorted
        items = ranked(items)
        softmax(items)
        entropy = F(0)
        for item in items:
            if item[2] > 0:
                entropy += -item[2] * logf(item[2])
        score = [abs(-logf(i[2]) - entropy) if i[2] > 0 else F(math.inf) for i in items]
        total, kept = F(0), []
        for at in sorted(range(len(items)), key=lambda at: float(score[at])):
            kept.append(items[at])
            total += items[at][2]
            if total > limit and (least == 0 or len(kept) >= least):
                break
        return kept, False

    def top_p(self, items, is_sorted):
        limit, least = F(self.params.top_p), self.params.min_keep
        if limit >= 1:
            return items, is_sorted
        softmax(items)
        items = ranked(items)
        total = F(0)
        for i, item in enumerate(items):
            total += item[2]
            if total >= limit and i + 1 >= least:
                return items[: i + 1], True
        return items, True

    def min_p(self, items, is_sorted):
        if self.params.min_p <= 0:
            return items, is_sorted
        lowest = max(item[1] for item in items) + logf(self.params.min_p)
        kept = [item for item in items if item[1] >= lowest]
        if len(kept) >= self.params.min_keep:
            return kept, is_sorted
        return ranked(items)[: self.params.min_keep], True

    def xtc(self, items, is_sorted):
        p = self.params
        if p.xtc_probability <= 0 or p.xtc_threshold > 0.5 or len(items) < 2:
            return items, is_sorted
        if F(self.xtc_draws.float()) > F(p.xtc_probability):
            return items, is_sorted
        items = ranked(items)
        softmax(items)
        leading = 0
        while leading < len(items) and items[leading][2] >= F(p.xtc_threshold):
            leading += 1
        last = max(leading - 1, 0)
        return (items[last:] if len(items) - last >= p.min_keep else items), True

    def temperature(self, items, is_sorted):
        p = self.params
        t = F(p.temperature)
        if p.dynatemp_range > 0 and not p.mirostat:
            if len(items) <= 1:
                return items, is_sorted
            low, high = max(F(0), t - F(p.dynatemp_range)), t + F(p.dynatemp_range)
            items, is_sorted = ranked(items), True
            softmax(items)
            entropy = F(0)
            for item in items:
                if item[2] > 0:
                    entropy -= item[2] * logf(item[2])
            most = -logf(F(1) / F(len(items)))
            t = low + (high - low) * powf(entropy / most, p.dynatemp_exponent)
        if t <= 0:
            best = max(range(len(items)), key=lambda i: items[i][1])
            for i, item in enumerate(items):
                item[1] = item[1] if i == best else NEVER
        else:
            for item in items:
                item[1] = item[1] / t
        return items, is_sorted

    def dist(self, items):
        best = max(item[1] for item in items)
        weights = [float(expf(item[1] - best)) for item in items]
        total = sum(weights)
        for item, weight in zip(items, weights, strict=True):
            item[2] = F(weight / total)
        target, run = total * self.draws.double(), 0.0
        for i, weight in enumerate(weights):
            run += weight
            if run >= target and weight > 0:
                return i
        return len(items) - 1

    def discrete(self, items):
        if len(items) < 2:
            return 0
        total = sum(float(item[2]) for item in items)
        u, run = self.draws.double(), 0.0
        for i, item in enumerate(items[:-1]):
            run += float(item[2]) / total
            if run >= u:
                return i
        return len(items) - 1

    def mirostat(self, items):
        p = self.params
        items = ranked(items)
        softmax(items)
        if p.mirostat == 1:
            products = squares = F(0)
            for i in range(min(99, len(items) - 1)):
                t = logf(F(i + 2) / F(i + 1))
                products += t * logf(items[i][2] / items[i + 1][2])
                squares += t * t
            s = products / squares
            e = s - F(1)
            size = F(len(items))
            k = powf(e * powf(2, self.mu) / (F(1) - powf(size, -e)), F(1) / s)
            keep = max(int(k), 1) if np.isfinite(k) and k < 2**31 else 1
        else:
            keep = 0
            while keep < len(items) and not -log2f(items[keep][2]) > self.mu:
                keep += 1
        items = items[: max(keep, 1)]
        softmax(items)
        position = self.discrete(items)
        self.mu -= F(p.mirostat_eta) * (-log2f(items[position][2]) - F(p.mirostat_tau))
        return position, items

    def adaptive(self, items):
        p = self.params
        softmax(items)
        if p.adaptive_target < 0:
            return self.discrete(items)
        target = F(p.adaptive_target)
        if self.weight != 0:
            target = min(max(F(2) * target - self.sum / self.weight, F(0)), F(1))
        before = [item[2] for item in items]
        for item in items:
            if item[1] != NEVER:
                distance = abs((item[2] - target) * (F(1) / F(0.3)))
                item[1] = F(5) - F(10) * distance * distance / (F(1) + distance)
        softmax(items)
        position = self.discrete(items)
        self.sum = before[position] + F(p.adaptive_decay) * self.sum
        self.weight = F(1) + F(p.adaptive_decay) * self.weight
        return position
