# SPDX-License-Identifier: Apache-2.0
"""Steps of row ids in bench/peers: the tables, and how many ids of each a rank has.

Names are of published models and of sizes that users asked for; any other step is written as
TABLE+TABLE..., a table ROWSxWIDTHxIDS, COUNT*ROWSxWIDTHxIDS for some alike, then @EXPONENT of
Zipf's law (1), /adagrad for that rule (sgd) and /bf16 for that type (f32):
26*100000x16x2048@1.2/adagrad. A table whose ROWS are ROWS:ROWS... has classes of rows instead of
Zipf's law, each drawn half as often as those of the class before: 2:0:100:5000x16x64."""
import functools
import math
import re
from dataclasses import dataclass

import recommender

FLOAT = 4
PAGE = 4096
BATCHES_MAX, IDS_OF_BATCHES = 16, 400_000  # as sparse.cc
WRITTEN_BYTES_MAX = 4 << 30  # as ours_sparse.cc
WORD = re.compile(r"([0-9x*+:]+)(?:@([0-9]+(?:\.[0-9]+)?))?(?:/(sgd|adagrad))?(?:/(f32|bf16))?")
TABLE = re.compile(r"(?:([0-9]{1,4})\*)?([0-9]{1,10}(?::[0-9]{1,10})*)x([0-9]{1,5})x([0-9]{1,7})")
CLASSES_MAX = 32  # as sparse.cc


@functools.cache
def distinct(rows, exponent, draws):
    """About how many of `rows` come in so many draws by Zipf's law."""
    edges = sorted({round(rows ** (at / 60)) for at in range(61)} | {1})
    spans = [(low, high) for low, high in zip(edges, edges[1:] + [rows + 1]) if high > low]
    weights = [((low + high - 1) / 2) ** -exponent for low, high in spans]
    total = sum(weight * (high - low) for weight, (low, high) in zip(weights, spans))
    return sum((high - low) * -math.expm1(-draws * weight / total)
               for weight, (low, high) in zip(weights, spans))


def distinct_of_classes(classes, draws):
    weights = [2.0 ** -each for each in range(len(classes))]
    total = sum(rows * weight for rows, weight in zip(classes, weights))
    return sum(rows * -math.expm1(-draws * weight / total)
               for rows, weight in zip(classes, weights))


@dataclass(frozen=True)
class SparseStep:
    name: str
    tables: tuple  # of each (rows, numbers a row, ids of a rank and step)
    exponent: float = 1
    rule: str = "sgd"
    dtype: str = "f32"
    compute_us: int = 0  # that a rank sleeps in each step
    classes: tuple = ()  # of each table, its rows of each class; () of Zipf's law; none: of all
    is_list = False

    @property
    def bytes(self):
        """Of a rank's gradients, a row for each id."""
        return FLOAT * sum(width * ids for _, width, ids in self.tables)

    @property
    def ids(self):
        return sum(ids for _, _, ids in self.tables)

    def classes_of(self, at):
        return self.classes[at] if self.classes else ()

    def words(self):
        tables = ",".join(
            "x".join(map(str, (":".join(map(str, self.classes_of(at))) or table[0], *table[1:])))
            for at, table in enumerate(self.tables))
        return f"{self.rule}/{self.exponent:g}/{self.dtype}/{self.compute_us}/{tables}"

    def table_bytes(self, world):
        """About so much of one copy of the tables is ever touched: pages of rows that come."""
        return self._states() * sum(self._touched(at, world) for at in range(len(self.tables)))

    def our_table_bytes(self, world):
        """Of ours, which writes tables before, but those of more than WRITTEN_BYTES_MAX."""
        number = 2 if self.dtype == "bf16" else FLOAT
        held = 0
        for at, table in enumerate(self.tables):
            written = table[0] * table[1] * number
            held += max(self._touched(at, world),
                        written if written <= WRITTEN_BYTES_MAX else 0)
        return self._states() * held

    def _touched(self, at, world):
        rows, width, ids = self.tables[at]
        draws = ids * world * min(max(IDS_OF_BATCHES // self.ids, 2), BATCHES_MAX)
        classes = self.classes_of(at)
        known = (distinct_of_classes(classes, draws) if classes else
                 distinct(rows, self.exponent, draws))
        return min(rows * width * FLOAT, known * max(width * FLOAT, PAGE))

    def _states(self):
        return 2 if self.rule == "adagrad" else 1


def lm1b(name, width=512, exponent=1, rule="sgd"):
    """The embedding of Jozefowicz et al., 2016, with batches of 128 x 20 words."""
    return SparseStep(name, ((793_470, width, 2_560),), exponent, rule)


def nmt():
    """Google's translation of WMT'16, as Parallax trained it: words of two languages, 36,548 each,
    1,024 wide, which are its published 74.9M sparse elements. Batches of 128 sentences, taken as 25
    words long; softmax rows are the target's (tied), of its words and of 2,048 sampled ones."""
    words = 128 * 25
    return SparseStep("nmt", ((36_548, 1_024, words), (36_548, 1_024, words + 2_048)))


def ngram(millions):
    """A table of hashed n-grams beside a language model: 32,768 tokens of a rank and step look one
    up each."""
    return SparseStep(f"ngram{millions}m", ((millions * 1_000_000, 64, 32_768),), dtype="bf16")


def tables_788():
    """As uneven as facebookresearch/dlrm_datasets' 788 tables: see recommender.py."""
    tables = recommender.tables_of_classes()
    return SparseStep("t788", tuple((sum(rows), recommender.WIDTH, ids) for rows, ids in tables),
                      classes=tuple(rows for rows, _ in tables))


def zipf_788():
    """788 tables of 10 to 30,000 rows, evenly by their logarithm, and 1 to 56 ids of a sample."""
    tables = []
    for at in range(788):
        rows = 10 * 3000 ** (at / 787)
        ids = 16 * 56 ** ((at * 389 % 788) / 787)  # in an order of its own
        tables.append((round(rows), 16, round(ids)))
    return SparseStep("zipf788", tuple(tables), 1.2)


STEPS = {step.name: step for step in (
    lm1b("lm1b"), lm1b("w64", 64), lm1b("w16", 16), lm1b("zipf0.7", exponent=0.7),
    lm1b("zipf1.3", exponent=1.3), lm1b("adagrad", rule="adagrad"),
    nmt(), ngram(20), ngram(300),
    SparseStep("t26", ((100_000, 16, 2_048),) * 26),
    SparseStep("t100", ((100_000, 16, 2_048),) * 100), tables_788(), zipf_788(),
    SparseStep("rows100", ((100_000, 16, 100),)),
    SparseStep("rows100k-16", ((1_000_000, 16, 100_000),)),
    SparseStep("rows100k-128", ((1_000_000, 128, 100_000),)))}


def table_of(word):
    """[(rows, width, ids)], [its classes], as often as the word says; None for what is none."""
    match = TABLE.fullmatch(word)
    if not match:
        return None
    count, rows, width, ids = match.groups("1")
    classes = tuple(map(int, rows.split(":"))) if ":" in rows else ()
    rows = sum(classes) or int(rows.split(":")[0])
    count, width, ids = int(count), int(width), int(ids)
    if 0 in (count, rows, width, ids) or not rows < 1 << 31 or len(classes) > CLASSES_MAX:
        return None
    return [(rows, width, ids)] * count, [classes] * count


def sparse_step_of(word):
    """A name, or a step in words. ValueError for what is neither."""
    if word in STEPS:
        return STEPS[word]
    tables, classes = [], []
    match = WORD.fullmatch(word)
    for each in match[1].split("+") if match else []:
        table = table_of(each)
        if not table:
            raise ValueError(f"'{each}' of '{word}' is no table: ROWSxWIDTHxIDS, at least one of "
                             "each, or COUNT* some alike; or rows of 2 to "
                             f"{CLASSES_MAX} classes for ROWS, as 2:0:100")
        tables += table[0]
        classes += table[1]
    if not tables or not 0 <= float(match[2] or 1) <= 3:
        raise ValueError(f"'{word}' is neither a step of row ids, such as 1000x16x64@1.1/adagrad, "
                         f"nor one of {', '.join(STEPS)}")
    return SparseStep(word, tuple(tables), float(match[2] or 1), match[3] or "sgd",
                      match[4] or "f32", classes=tuple(classes) if any(classes) else ())


def memory_bytes(step, world, hosts, peers, ours=1):
    """About what a run of the step needs, with so many sets of ranks of peers, and of ours."""
    given = step.bytes
    # Of a rank of a peer: all tables, its parts of two cuts, and buffers to and from all ranks.
    peer = step.table_bytes(world) * (1 + 2 / world) + given * (2 * world + 4)
    own = step.our_table_bytes(world) + world * given * 8
    limit = step.table_bytes(world) + world * given * 5 if hosts == 1 else 0
    return math.ceil(peer * world * peers + own * ours + limit)
