"""The monoids that the library ships, ready to use: `Reduce(kernel, signature, monoids.Sum)`.

Numbers     Sum Prod Max Min MinMax All Any Mean Moments Covariance CompensatedSum LogSumExp LogProduct
Places      First Last ArgMax ArgMin TopK Reservoir
In order    MatrixProduct MaxPlusProduct MinPlusProduct AffineRecurrence AffineRecurrenceDense decayed
Attention   AttentionState
Of monoids  product struct dual optional lexicographic map_values function segmented runs
Of states   compensated_value logsumexp_value attention_state attention_output attention_logsumexp two_sum

One file each, each alone; `elementwise`, `mean` and `moments` first. `dual`, `optional`, `lexicographic`,
`map_values`, `function`, `segmented` and `runs` make monoids of monoids; `held` makes, of those that need it, one that
knows whether a state is of anything.
"""

from __future__ import annotations

from combinators.merging.product import product as product
from combinators.merging.product import struct as struct
from combinators.monoids.arg_extremum import ArgMax as ArgMax
from combinators.monoids.arg_extremum import ArgMin as ArgMin
from combinators.monoids.attention import AttentionState as AttentionState
from combinators.monoids.attention import attention_logsumexp as attention_logsumexp
from combinators.monoids.attention import attention_output as attention_output
from combinators.monoids.attention import attention_state as attention_state
from combinators.monoids.compensated_sum import CompensatedSum as CompensatedSum
from combinators.monoids.compensated_sum import compensated_value as compensated_value
from combinators.monoids.compensated_sum import two_sum as two_sum
from combinators.monoids.covariance import Covariance as Covariance
from combinators.monoids.decayed import decayed as decayed
from combinators.monoids.dual import dual as dual
from combinators.monoids.elementwise import All as All
from combinators.monoids.elementwise import Any as Any
from combinators.monoids.elementwise import Max as Max
from combinators.monoids.elementwise import Min as Min
from combinators.monoids.elementwise import Prod as Prod
from combinators.monoids.elementwise import Sum as Sum
from combinators.monoids.first import First as First
from combinators.monoids.first import Last as Last
from combinators.monoids.function import function as function
from combinators.monoids.lexicographic import lexicographic as lexicographic
from combinators.monoids.logsumexp import LogSumExp as LogSumExp
from combinators.monoids.logsumexp import logsumexp_value as logsumexp_value
from combinators.monoids.map_values import map_values as map_values
from combinators.monoids.matrix_product import LogProduct as LogProduct
from combinators.monoids.matrix_product import MatrixProduct as MatrixProduct
from combinators.monoids.matrix_product import MaxPlusProduct as MaxPlusProduct
from combinators.monoids.matrix_product import MinPlusProduct as MinPlusProduct
from combinators.monoids.mean import Mean as Mean
from combinators.monoids.min_max import MinMax as MinMax
from combinators.monoids.moments import Moments as Moments
from combinators.monoids.optional import optional as optional
from combinators.monoids.recurrence import AffineRecurrence as AffineRecurrence
from combinators.monoids.recurrence import AffineRecurrenceDense as AffineRecurrenceDense
from combinators.monoids.reservoir import Reservoir as Reservoir
from combinators.monoids.runs import runs as runs
from combinators.monoids.segmented import segmented as segmented
from combinators.monoids.top_k import TopK as TopK
