"""Tables of vectors, looked up by token or by position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from flax import nnx

from combinators.arguments import read_count, read_dimension, read_function
from combinators.errors import GraphError, SignatureError, message
from combinators.index_space.tensor_type import TensorType
from combinators.leaves.einsum import einsum
from combinators.leaves.index import index
from combinators.leaves.map import Map
from combinators.leaves.reduce import Reduce
from combinators.monoids import Sum
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.module import Module
from tapestry_jax.nnx.options import read_dims, read_dtypes, read_rngs
from tapestry_jax.nnx.parameter import cast, embedding_normal, parameter, position_normal
from tapestry_jax.nnx.rows import Rows, RowsOfBlock, RowsWithin


class Embed(Module):
    """A vector for every token, as `flax.nnx.Embed`. The vocabulary is a fold, so a plan may cut it.

    Numbers outside the vocabulary give NaN; negative ones count from its end.

    Args:
      num_embeddings: size of the vocabulary.
      features: size of a vector.
      dims: names of the table's dimensions.
      dtype: of the result; by default that of the table.
      param_dtype: of the table.
      embedding_init: initializer of the table.
      rngs: whose stream `params` initialises.
    """

    def __init__(
        self,
        num_embeddings: int,
        features: int,
        *,
        dims: tuple[str, str] = ("vocab", "embed"),
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        embedding_init: Any = embedding_normal,
        rngs: nnx.Rngs,
    ) -> None:
        self.num_embeddings, self.features, self.dims = _table(num_embeddings, features, dims, "of Embed")
        self.dtype, param_dtype = read_dtypes(dtype, param_dtype, "of Embed")
        embedding_init, rngs = read_function(embedding_init, "embedding_init= of Embed"), read_rngs(rngs, "of Embed")
        shape = (self.num_embeddings, self.features)
        self.embedding = parameter(embedding_init, shape, self.dims, rngs=rngs, dtype=param_dtype)

    @property
    def signature(self) -> str:
        """Any dimensions of tokens."""
        return f"... -> ... {self.dims[1]}"

    @property
    def sizes(self) -> dict[str, int]:
        """Of a vector."""
        return {self.dims[1]: self.features}

    def forward(self, tokens: Value) -> Value:
        """Look the tokens up.

        Raises:
          SignatureError: when they are not integers.
        """
        check_integers("Embed", "tokens", tokens)
        take = Reduce(RowsOfBlock(self.num_embeddings), "..., v e, @v -> ... e", Sum, dense=Rows(), name="take")
        return take(tokens, cast(self.embedding[...], self.dtype))

    def attend(self, query: Value) -> Value:
        """The product of vectors with every row of the table: logits of a model whose head shares it.

        Args:
          query: any leading dimensions, then the features.

        Returns:
          The leading dimensions, then the vocabulary.
        """
        return einsum("... e, v e -> ... v")(cast(query, self.dtype), cast(self.embedding[...], self.dtype))


class PositionEmbed(Module):
    """A learned vector for every position: that of the coordinate along `over`.

    Args:
      num_embeddings: the largest number of positions.
      features: size of a vector.
      over: the dimension whose coordinates are the positions.
      dims: names of the table's dimensions.
      dtype: of the result; by default that of the table.
      param_dtype: of the table.
      embedding_init: initializer of the table.
      rngs: whose stream `params` initialises.
    """

    def __init__(
        self,
        num_embeddings: int,
        features: int,
        *,
        over: str = "seq",
        dims: tuple[str, str] = ("position", "embed"),
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        embedding_init: Any = position_normal,
        rngs: nnx.Rngs,
    ) -> None:
        own = "of PositionEmbed"
        self.num_embeddings, self.features, self.dims = _table(num_embeddings, features, dims, own)
        self.over = read_dimension(over, f"over= {own}")
        self.dtype, param_dtype = read_dtypes(dtype, param_dtype, own)
        embedding_init, rngs = read_function(embedding_init, f"embedding_init= {own}"), read_rngs(rngs, own)
        shape = (self.num_embeddings, self.features)
        self.embedding = parameter(embedding_init, shape, self.dims, rngs=rngs, dtype=param_dtype)
        self.cache_index: nnx.Cache[Any] | None = nnx.data(None)

    def cache_types(self, leading: Sequence[tuple[str, int]], length: int, dtype: Any) -> dict[str, TensorType]:
        """The number of positions that were seen.

        Raises:
          GraphError: when there are fewer positions than `length`.
        """
        del leading, dtype
        if length > self.num_embeddings:
            details = (f"the table of positions has {self.num_embeddings}, and the cache {length}",)
            remedy = "Make the cache shorter, or the table larger."
            raise GraphError(message("a cache is longer than there are positions", *details, remedy=remedy))
        return {"cache_index": TensorType([], jnp.int32)}

    def forward(self, like: Value) -> Value:
        """The vectors of the coordinates of `like` along `over`, with the axes `over` and that of the features.

        With a cache coordinates begin behind those of the calls before; behind the last position vectors are NaN.

        Raises:
          GraphError: when `like` has no such axis.
          SignatureError: when it has more coordinates than there are positions.
        """
        positions = index(self.over, like)
        if positions.shape[0] > self.num_embeddings:
            raise SignatureError(
                message(
                    f"there are {self.num_embeddings} positions for `{self.over}` of size {positions.shape[0]}",
                    f"got {like!r}",
                    remedy="Pass shorter sequences, or make the table of positions larger.",
                )
            )
        kernel: Any = RowsWithin()
        if self.cache_index is not None:
            seen = self.cache_index[...]
            kernel, positions = Rows(), positions + seen
            self.cache_index[...] = seen + positions.shape[0]
        return Map(kernel, "p, [n] e -> p e", name="take")(positions, cast(self.embedding[...], self.dtype))


def check_integers(where: str, what: str, value: Value) -> None:
    """Refuse numbers that cannot be indices.

    Raises:
      SignatureError: when the dtype is not an integer one.
    """
    if not jnp.issubdtype(value.dtype, jnp.integer):
        raise SignatureError(
            message(f"{where} takes integer {what}", f"got {value!r}", remedy="Convert them: x.astype(jnp.int32).")
        )


def _table(rows: Any, features: Any, dims: Any, own: str) -> tuple[int, int, tuple[str, ...]]:
    """Sizes and names of a table."""
    count, width = read_count(rows, f"num_embeddings= {own}"), read_count(features, f"features= {own}")
    return count, width, read_dims(dims, 2, f"dims= {own}")
