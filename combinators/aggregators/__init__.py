"""The aggregators that the library ships, as factories: `fold(aggregators.Moments(), "row col -> col")`.

Sums          Sum Prod Count Mean Moments CompensatedSum LogSumExp SoftmaxMean Decayed
Extrema       Max Min MinMax ArgMax ArgMin TopK
Truth, place  All Any First Last
Columns       Covariance Correlation LinearRegression MatrixProduct Recurrence
Scores        Accuracy Precision Recall F1 ConfusionMatrix AUC CalibrationError
Sketches      Histogram DDSketch HyperLogLog CountMin Bloom MinHash Reservoir
Of sketches   count_min_estimate bloom_contains minhash_similarity

`help(aggregators.Moments)` and so on tell what each takes and gives. `a & b` runs two in one pass; `a.by_key(None, n)`,
`.by_segment`, `.by_run()`, `.masked()`, `.map(f)` and `.contramap(f)` make others.

One file a family, each alone; `elementwise`, `mean` and `moments` first. `entries`, `grid`, `sums`, `totals`,
`two_stage` and `weights` are what several of them share.
"""

from __future__ import annotations

from combinators.aggregators.arg_extremum import ArgMax as ArgMax
from combinators.aggregators.arg_extremum import ArgMin as ArgMin
from combinators.aggregators.auc import AUC as AUC
from combinators.aggregators.bloom import Bloom as Bloom
from combinators.aggregators.bloom import bloom_contains as bloom_contains
from combinators.aggregators.calibration import CalibrationError as CalibrationError
from combinators.aggregators.classification import F1 as F1
from combinators.aggregators.classification import Accuracy as Accuracy
from combinators.aggregators.classification import ConfusionMatrix as ConfusionMatrix
from combinators.aggregators.classification import Precision as Precision
from combinators.aggregators.classification import Recall as Recall
from combinators.aggregators.compensated_sum import CompensatedSum as CompensatedSum
from combinators.aggregators.count_min import CountMin as CountMin
from combinators.aggregators.count_min import count_min_estimate as count_min_estimate
from combinators.aggregators.covariance import Correlation as Correlation
from combinators.aggregators.covariance import Covariance as Covariance
from combinators.aggregators.ddsketch import DDSketch as DDSketch
from combinators.aggregators.decayed import Decayed as Decayed
from combinators.aggregators.elementwise import All as All
from combinators.aggregators.elementwise import Any as Any
from combinators.aggregators.elementwise import Max as Max
from combinators.aggregators.elementwise import Min as Min
from combinators.aggregators.elementwise import Prod as Prod
from combinators.aggregators.elementwise import Sum as Sum
from combinators.aggregators.first import First as First
from combinators.aggregators.first import Last as Last
from combinators.aggregators.histogram import Histogram as Histogram
from combinators.aggregators.hyperloglog import HyperLogLog as HyperLogLog
from combinators.aggregators.logsumexp import LogSumExp as LogSumExp
from combinators.aggregators.matrix_product import MatrixProduct as MatrixProduct
from combinators.aggregators.mean import Count as Count
from combinators.aggregators.mean import Mean as Mean
from combinators.aggregators.min_max import MinMax as MinMax
from combinators.aggregators.minhash import MinHash as MinHash
from combinators.aggregators.minhash import minhash_similarity as minhash_similarity
from combinators.aggregators.moments import Moments as Moments
from combinators.aggregators.recurrence import Recurrence as Recurrence
from combinators.aggregators.regression import LinearRegression as LinearRegression
from combinators.aggregators.reservoir import Reservoir as Reservoir
from combinators.aggregators.softmax_mean import SoftmaxMean as SoftmaxMean
from combinators.aggregators.top_k import TopK as TopK
