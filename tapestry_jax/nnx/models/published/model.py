"""Models whose weights are published: made without numbers, and of files."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, ClassVar, Self

from flax import nnx

from tapestry_jax.nnx.models.published.hugging_face import Naming, read_weights
from tapestry_jax.nnx.models.published.weights import check_layers, find_files, read_headers


class Published:
    """What such models share.

    Attributes:
      _naming: how files call their tensors.
      _config_kind: the class of their configurations.
    """

    _naming: ClassVar[Naming]
    _config_kind: ClassVar[Any]

    @classmethod
    def abstract(cls, config: Any) -> Self:
        """The model without numbers, to trace and plan before there are weights."""
        made: Any = cls
        return nnx.eval_shape(lambda: made(config, rngs=nnx.Rngs(0)))

    @classmethod
    def from_safetensors(
        cls,
        paths: str | PathLike[str] | Sequence[str | PathLike[str]],
        config: Any = None,
        *,
        shardings: Any = None,
    ) -> Self:
        """A model with the weights of files in the format safetensors, which name them as Hugging Face does.

        Files are read as data, one tensor after the other; every header is read before the first number.

        Args:
          paths: a file, several, or a folder, of which all `*.safetensors` are read.
          config: the sizes; by default those of the `config.json` that lies in the folder, or beside the first file.
          shardings: where parameters lie, in the structure of the model's state, such as `plan.in_shardings[0]`: no
            device then holds a parameter that the plan cuts, as a whole. By default they lie on JAX's default device.

        Returns:
          The model; weights are converted to `config.param_dtype`.

        Raises:
          FormatError: where a file cannot be read, or a `config.json` that is needed; or where tensors are missing,
            stand twice, are not those of the model, or have other shapes or dtypes: all of them at once.
          GraphError: when an argument is not what it should be.
        """
        chosen = cls._beside(paths) if config is None else config
        if isinstance(chosen, cls._config_kind):
            check_layers(read_headers(find_files(paths))[0], getattr(chosen, "layers", None))
        model = cls.abstract(chosen)
        nnx.update(model, read_weights(model, cls._naming, paths, shardings))
        return model

    @classmethod
    def _beside(cls, paths: Any) -> Any:
        files = find_files(paths)
        read_headers(files)  # so that files that are not there are told, not the configuration that is not beside them
        return cls._config_kind.from_hugging_face(files[0].parent)
