"""A plan for a pod of 64 TPUs, judged by the TPU compiler on a machine that has none.

Needs the compilers, best in an environment of their own: `make aot`, or `pip install 'tapestry-jax[aot]'`.
"""

import jax
import jax.numpy as jnp

import tapestry_jax as tp

jax.config.update("jax_platforms", "cpu")  # JAX would look for the TPU whose compiler is installed

gelu = tp.Map(jax.nn.gelu)
matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)


@tp.program("batch embed, embed mlp, mlp out -> batch out")
def mlp(x, w1, w2):
    return matmul(gelu(matmul(x, w1)), w2)


if __name__ == "__main__":
    specs = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in [(65536, 8192), (8192, 32768), (32768, 8192)]]
    pod = tp.topology("v5p:4x4x4", data=16, model=4)  # compile-only devices, usable wherever a mesh is
    plan = tp.plan(tp.trace(mlp, *specs), pod, {"batch": "data", "mlp": "model"})
    print(plan.compile_only(grad=True))
