# SPDX-License-Identifier: Apache-2.0
"""Tables of row ids as a recommender's: the public statistics of 788 tables
(facebookresearch/dlrm_datasets, embedding_bag/2022/locality_stats.txt), scaled to a rank's step.

Published of a batch of 131,072 samples: 1.405e9 ids on 1.10e8 rows, 12.7 ids a row; which share of
the rows comes once, twice, 3 or 4 times, 5 to 8 and so on, and which share of the ids is theirs.
Here are as many tables and, as SAMPLES are fewer, as many fewer rows: so the histogram is kept, and
a row comes as often in a step of SAMPLES as there. But no row can come more often than its table
has ids. So a count c above 32 becomes sqrt(32 c), and the rows that come more than 32,768 times
there, with 7.6% of the ids, are those that come more than 1,024 times here.

How often a row is drawn in a step is Poisson-distributed about its rate, so IDS_SHARE are those
shares of rates that give the histogram of counts, by least squares. Of a row that came once the
statistics do not tell whether it is one of few or of many that come rarely. Rows of COLDEST, which
have a third of those, are so many that tables are far larger than what a step touches of them.
"""

TABLES, WIDTH, SAMPLES = 788, 16, 16
IDS_OF_SAMPLE = 13.6  # of a table, on the average
BAG_MAX = 200  # ids of a sample in the table with the most

# A row of class k is drawn HOTTEST / 2^k times in a rank's step, on the average; of 10,000 ids.
HOTTEST = 2 ** 10.5
COLDEST = 21
IDS_SHARE = (755, 378, 1103, 1112, 1114, 1667, 1195, 1071, 704, 377, 225, 210,
             *[0] * (COLDEST - 12), 89)
ROOM = 1.1  # so many times the ids of its hottest row has a table at least
# Some tables have hotter rows than others, by up to so many octaves of rows for each of classes.
LEANING, MIDDLE_CLASS = 0.35, 7


def rate(each):
    return HOTTEST / 2 ** each


def scattered(stride):
    """0 to 1 evenly over the tables, in an order that depends on the stride."""
    return [at * stride % TABLES / (TABLES - 1) for at in range(TABLES)]


def ids_of_tables():
    """From one a sample to BAG_MAX, few tables with many."""
    low, high = 0.5, 8.0
    while high - low > 1e-9:
        power = (low + high) / 2
        ids = [SAMPLES * BAG_MAX ** (at ** power) for at in scattered(389)]
        if sum(ids) > IDS_OF_SAMPLE * SAMPLES * TABLES:
            low = power
        else:
            high = power
    return ids


def tables_of_classes():
    """[(how many rows of each class, ids of a rank's step)] of each table. The hottest rows are
    dealt out first, each class over all tables that have room for one."""
    room, rows = ids_of_tables(), [[] for _ in range(TABLES)]
    ids, leaning = sum(room), scattered(317)
    for each, share in enumerate(IDS_SHARE):
        weights = [left * 2 ** (LEANING * (2 * lean - 1) * (each - MIDDLE_CLASS))
                   if left >= ROOM * rate(each) else 0 for left, lean in zip(room, leaning)]
        wanted = share / sum(IDS_SHARE) * ids / rate(each) / sum(weights)
        owed = 0.5
        for at, weight in enumerate(weights):
            owed += wanted * weight
            count = min(int(owed), int(room[at] / rate(each)))
            owed -= count
            room[at] -= count * rate(each)
            rows[at].append(count)
    return [(tuple(classes), max(1, round(sum(count * rate(each)
                                              for each, count in enumerate(classes)))))
            for classes in rows]
