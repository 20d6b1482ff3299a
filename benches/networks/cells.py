"""The simulated networks of the viewers: a short list for comparisons, and a pairwise table."""

import dataclasses
import itertools
import random

# Bits per second of the stream on the wire, with all headers. The rates of networks are shares of this.
STREAM = 2_550_000
# Rate of a path that is no bottleneck for the stream.
WIDE = 4.0
# Share of the stream's rate that a cut leaves; then the seconds from the answer to the cut.
CUT_TO, CUT_AT = 0.3, 8
AFTER_CUT = 10
SECONDS = 24

RATES = (WIDE, 0.3, 0.45, 0.6, 0.75, 0.9, 1.05, 1.2)
QUEUES = (20_000, 64_000, 150_000, 500_000)
LOSSES = (0.0, 0.01, 0.05, 0.15, 0.35)
JITTERS = (0, 30, 100, 200)
RTTS = (20, 100, 250, 500)
CUTS = (0, 0.5, 2, 8, 12)
MTUS = (1500, 1280)
FACTORS = (RATES, QUEUES, LOSSES, JITTERS, RTTS, CUTS, MTUS)
# One more factor, where several of them are asked for.
CLIENTS = ("chromium", "firefox", "pion", "str0m")

CELLS_MAX, SEED = 64, 1
# Candidates for each row of the table; the one that covers most new pairs is used.
TRIES = 60


@dataclasses.dataclass(frozen=True)
class Cell:
    """A network. Loss, jitter and MTU apply in both directions, rate and queue only in the direction of the media."""

    name: str
    rate: float = WIDE
    queue: int = 64_000
    loss: float = 0.0
    jitter: int = 0
    rtt: int = 40
    cut: float = 0
    mtu: int = 1500
    # The only client that the network is for.
    client: str | None = None

    @property
    def bits(self):
        return round(self.rate * STREAM)

    @property
    def cut_bits(self):
        return round(min(self.rate, CUT_TO) * STREAM)

    @property
    def seconds(self):
        """Seconds of playback: enough to see whether pictures return after a cut."""
        return max(SECONDS, round(CUT_AT + self.cut + AFTER_CUT))

    def relay(self, to, seed):
        """Commands for the relay."""
        fields = {"to": to, "seed": seed, "loss": self.loss, "rtt": self.rtt, "jitter": self.jitter, "mtu": self.mtu,
                  "rate": self.bits, "queue": self.queue}
        return [word for name, value in fields.items() for word in (f"--{name}", str(value))]

    def deliverable(self, begin, end):
        """Bytes that the path can carry from `begin` to `end`, in seconds after the answer."""
        cut = max(0, min(end, CUT_AT + self.cut) - max(begin, CUT_AT)) if self.cut else 0
        return ((end - begin - cut) * self.bits + cut * self.cut_bits) / 8


SHORT = (
    Cell("60 %", rate=0.6),
    Cell("75 %", rate=0.75),
    Cell("90 %", rate=0.9),
    Cell("cut to 30 % for 8 s", cut=8),
    Cell("5 % lost", loss=0.05),
    Cell("15 % lost", loss=0.15),
    Cell("jitter 100 ms", jitter=100),
    Cell("RTT 500 ms", rtt=500),
)


def pairs_of(row):
    return set(itertools.combinations(enumerate(row), 2))


def rows(factors=FACTORS):
    """Rows in which each value of each factor meets each value of each other factor; the same ones every time."""
    chance = random.Random(SEED)
    every = itertools.product(*(range(len(factor)) for factor in factors))
    missing = set().union(*(pairs_of(row) for row in every))
    out = []
    while missing and len(out) < CELLS_MAX:
        best = max((candidate(chance, missing, factors) for _ in range(TRIES)), key=lambda row: len(pairs_of(row) & missing))
        missing -= pairs_of(best)
        out.append(best)
    return out, missing


def candidate(chance, missing, factors):
    """A row around one missing pair, whose other values are each chosen for the pairs that they complete."""
    row = dict(chance.choice(sorted(missing)))
    others = [place for place in range(len(factors)) if place not in row]
    chance.shuffle(others)
    for place in others:
        values = list(range(len(factors[place])))
        chance.shuffle(values)
        gain = lambda value: sum(tuple(sorted([known, (place, value)])) in missing for known in row.items())
        row[place] = max(values, key=gain)
    return tuple(row[place] for place in range(len(factors)))


def pairwise(has_clients=False):
    factors = (*FACTORS, CLIENTS) if has_clients else FACTORS
    values = ([factor[index] for factor, index in zip(factors, row)] for row in rows(factors)[0])
    return [Cell(describe(*of), *of) for of in values]


def describe(rate, queue, loss, jitter, rtt, cut, mtu, client=None):
    parts = [f"{rate:.0%}".replace("%", " %"), f"{queue // 1000} KB", loss and f"loss {loss * 100:g} %", jitter and f"jitter {jitter}",
             f"RTT {rtt}", cut and f"cut {cut:g} s", mtu < 1500 and f"MTU {mtu}", client]
    return ", ".join(part for part in parts if part)
