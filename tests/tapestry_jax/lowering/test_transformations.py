"""Compiled plans are ordinary JAX functions: jit around them, vmap, jvp, second derivatives, optax, donation."""

from __future__ import annotations

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tapestry_jax as tp
from tests.contract import assert_holds
from tests.simulated.sampled import computed
from tests.tapestry_jax.draw import named, normal

matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
tanh = tp.Map(jnp.tanh)


@tp.program("batch embed, embed mlp, mlp out -> batch out")
def mlp(x, w1, w2):
    return matmul(tanh(matmul(x, w1)), w2)


@jax.jit
def plain(x, w1, w2):
    return jnp.tanh(x @ w1) @ w2


# Uneven everywhere, so that padding takes part.
ARGS = (normal(7, 5), normal(5, 6, seed=1), normal(6, 3, seed=2))


@pytest.fixture(scope="module")
def plan():
    return tp.plan(tp.trace(mlp, *ARGS), tp.mesh(data=2, model=4), {"batch": "data", "mlp": "model"})


@pytest.fixture(scope="module")
def run(plan):
    return plan.compile()


def close(actual, expected, rtol=1e-4, atol=1e-5):
    jax.tree.map(partial(np.testing.assert_allclose, rtol=rtol, atol=atol), actual, expected)


def test_jit_around_it_with_work_before_and_after(run):
    def around(f, x, w1, w2):
        return jnp.sum(f(2 * x, w1, w2) ** 2) + jnp.sum(w1)

    found = jax.jit(jax.value_and_grad(partial(around, run), (0, 1, 2)))(*ARGS)
    close(found, computed(jax.value_and_grad(partial(around, plain), (0, 1, 2)), *ARGS))


AFTER = {
    "a number": lambda out: 2.0 * out,
    "a number of NumPy": lambda out: out * np.float32(3),
    "a row": lambda out: out * jnp.arange(3.0),
    "a column": lambda out: out * jnp.arange(7.0)[:, None],
    "all": lambda out: out * np.arange(21.0, dtype="f4").reshape(7, 3),
    "itself": lambda out: out * out,
    "one cell": lambda out: out[2, 1],
}


@pytest.mark.parametrize("name", AFTER)
@pytest.mark.parametrize("plan_of", ["uneven", "even"])
def test_cotangents_come_from_wherever_they_are_made(run, plan_of, name):
    # Not compiled: what is multiplied by a number has a cotangent that lies as nobody asked for.
    if plan_of == "even":
        run = tp.plan(tp.trace(mlp, *ARGS), tp.mesh(a=1, b=3), {"out": "b"}).compile()

    def loss(f, x, w1, w2):
        return jnp.sum(AFTER[name](f(x, w1, w2)))

    expected = jax.grad(partial(loss, plain), (0, 1, 2))(*ARGS)
    close(jax.grad(partial(loss, run), (0, 1, 2))(*ARGS), expected)
    close(jax.grad(partial(loss, jax.checkpoint(run)), (0, 1, 2))(*ARGS), expected)
    if name == "a number":
        pairs = [jnp.stack([arg, 2 * arg]) for arg in ARGS]
        found = jax.vmap(jax.grad(partial(loss, run), (0, 1, 2)))(*pairs)
        close(found, jax.vmap(jax.grad(partial(loss, plain), (0, 1, 2)))(*pairs))
        close(jax.hessian(partial(loss, run))(*ARGS), jax.hessian(partial(loss, plain))(*ARGS))


def test_value_and_grad_of_placed_arguments(plan, run):
    # Gradients come out in the layouts of the arguments.
    placed = plan.put(*ARGS)
    value, gradients = jax.value_and_grad(lambda *args: jnp.sum(jnp.sin(run(*args))), (0, 1, 2))(*placed)
    expected, wanted = computed(jax.value_and_grad(lambda *args: jnp.sum(jnp.sin(plain(*args))), (0, 1, 2)), *ARGS)
    close(value, expected)
    for gradient, true, sharding in zip(gradients, wanted, plan.in_shardings, strict=True):
        assert gradient.sharding.is_equivalent_to(sharding, gradient.ndim)
        close(np.asarray(gradient)[tuple(map(slice, true.shape))], true)


def test_vmap(run):
    xs = normal(3, 7, 5, seed=3)
    expected = computed(jax.vmap(plain, in_axes=(0, None, None)), xs, *ARGS[1:])
    close(jax.vmap(run, in_axes=(0, None, None))(xs, *ARGS[1:]), expected)


def test_jvp(run):
    tangents = tuple(normal(*arg.shape, seed=9) for arg in ARGS)
    close(jax.jvp(run, ARGS, tangents), computed(lambda: jax.jvp(plain, ARGS, tangents)))


def test_second_derivatives(run):
    # Hessian-vector products, forward over reverse and reverse over reverse.
    def loss(f, w):
        return jnp.sum(f(ARGS[0], w, ARGS[2]) ** 2)

    w, v = ARGS[1], normal(5, 6, seed=4)

    def forward(f):
        return jax.jvp(jax.grad(partial(loss, f)), (w,), (v,))[1]

    def reverse(f):
        return jax.grad(lambda w: jnp.vdot(jax.grad(partial(loss, f))(w), v))(w)

    expected, *found = computed(lambda: (forward(plain), forward(run), reverse(run)))
    for actual in found:
        # Sums of numbers up to 100, some of which cancel: float32 is off by 4e-5 there, float64 by 7e-14.
        close(actual, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("program", "reference", "args", "axes"),
    [
        (
            lambda x: tp.fold(tp.aggregators.LogSumExp(), "row col -> col")(x),
            lambda x: jax.nn.logsumexp(x, 0),
            1,
            "row",
        ),
        (lambda x: tp.fold(tp.aggregators.Max(), "row col -> col")(x * x), lambda x: jnp.max(x * x, 0), 1, "row"),
        (
            lambda a, b: tp.Scan(tp.monoids.Sum, "row col -> row col", over="row")(a * b),
            lambda a, b: jnp.cumsum(a * b, 0),
            2,
            "row",
        ),
        (
            lambda x: tp.Map(jax.nn.softmax, "row [col] -> row [col]")(tp.Map(jnp.sin)(x)),
            lambda x: jax.nn.softmax(jnp.sin(x), 1),
            1,
            "row",
        ),
    ],
    ids=["frame", "extremum", "scan", "map"],
)
def test_second_derivatives_of_other_folds(mesh8, program, reference, args, axes):
    arrays = tuple(normal(6, 3, seed=seed) for seed in range(args))
    graph = tp.trace(program, *named(", ".join(["row col"] * args), *arrays))
    run = tp.plan(graph, mesh8, {axes: "data"}).compile()

    def along(f):
        gradient = jax.grad(lambda x: jnp.sum(jnp.sin(f(x, *arrays[1:]))))
        return jax.jvp(gradient, arrays[:1], (normal(6, 3, seed=5),))

    close(*computed(lambda: (along(run), along(reference))))


def test_an_optax_step_under_jit_with_the_plans_layouts(plan):
    # Parameters and the optimiser's state live in the planned layouts, and are donated from step to step.
    run = plan.compile()
    x, target = ARGS[0], normal(7, 3, seed=6)
    optimiser = optax.adam(1e-2)
    placed = plan.put(*ARGS)
    sharded = plan.in_shardings[1:]
    layouts = jax.tree.map(
        lambda _: jax.sharding.NamedSharding(plan.mesh, jax.sharding.PartitionSpec()), optimiser.init(placed[1:])
    )
    states = optax.tree.map_params(optimiser, lambda _, s: s, layouts, sharded)

    def loss(f, parameters, x):
        return jnp.mean((f(x, *parameters) - target) ** 2)

    @partial(
        jax.jit,
        in_shardings=(sharded, states, plan.in_shardings[0]),
        out_shardings=(sharded, states, None),
        donate_argnums=(0, 1),
    )
    def step(parameters, state, x):
        value, gradients = jax.value_and_grad(partial(loss, run))(parameters, x)
        updates, state = optimiser.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, value

    @jax.jit
    def plain_step(parameters, state, x):
        value, gradients = jax.value_and_grad(partial(loss, plain))(parameters, x)
        updates, state = optimiser.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, value

    parameters, state = placed[1:], jax.jit(optimiser.init, out_shardings=states)(placed[1:])
    plain_parameters = ARGS[1:]
    plain_state = optimiser.init(plain_parameters)
    values, expected = [], []
    for _ in range(3):
        before = parameters
        parameters, state, value = step(parameters, state, placed[0])
        assert all(leaf.is_deleted() for leaf in before)
        values.append(value)
        plain_parameters, plain_state, value = plain_step(plain_parameters, plain_state, x)
        expected.append(value)
    close(values, expected)
    for planned, true, sharding in zip(parameters, plain_parameters, sharded, strict=True):
        assert planned.sharding.is_equivalent_to(sharding, planned.ndim)
        close(np.asarray(planned)[tuple(map(slice, true.shape))], true)


@pytest.mark.parametrize(
    "sizes", [pytest.param((8, 4, 4, 4), marks=pytest.mark.thorough), (7, 5, 6, 3)], ids=["even", "uneven"]
)
def test_a_mesh_with_explicit_axes(sizes):
    # What `jax.make_mesh` makes: arrays carry their layouts in their types.
    batch, embed, width, out = sizes
    args = (normal(batch, embed), normal(embed, width, seed=1), normal(width, out, seed=2))
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    plan = tp.plan(tp.trace(mlp, *args), mesh, {"batch": "data", "mlp": "model"})
    assert_holds(plan, args, reference=plain)
    run = plan.compile()
    with jax.set_mesh(mesh):
        value, gradients = jax.value_and_grad(lambda *args: jnp.sum(run(*args)), (0, 1, 2))(*plan.put(*args))
    expected, wanted = computed(jax.value_and_grad(lambda *args: jnp.sum(plain(*args)), (0, 1, 2)), *args)
    close(value, expected)
    close([np.asarray(g)[tuple(map(slice, w.shape))] for g, w in zip(gradients, wanted, strict=True)], list(wanted))


@pytest.mark.parametrize("kind", ["Auto", pytest.param("Explicit", marks=pytest.mark.thorough)])
def test_where_the_mesh_of_a_plan_is_set_derivatives_and_vmap_are_taken(kind):
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType[kind],))
    x, w = normal(8, 3), normal(3, 2, seed=1)
    run = tp.plan(tp.trace(tp.einsum("i k, k n -> i n"), x, w), mesh, {"i": "data"}).compile()
    with jax.set_mesh(mesh):
        slope = jax.grad(lambda x: jnp.sum(run(x, w)))(x)
        several = jax.vmap(run, (0, None))(jnp.stack([x, 2 * x, 3 * x]), w)
    close(slope, np.repeat(w.sum(1)[None], 8, 0))
    close(several, np.stack([x @ w, 2 * x @ w, 3 * x @ w]))


def test_where_another_mesh_is_set_the_error_names_both(run):
    other = jax.make_mesh((2,), ("rows",), axis_types=(jax.sharding.AxisType.Explicit,))
    calls = [lambda: run(*ARGS), lambda: jax.jit(run)(*ARGS), run.lower]
    with jax.set_mesh(other):
        for call in calls:
            with pytest.raises(tp.MeshError) as caught:
                call()
            assert str(caught.value) == (
                "a planned program is called where another mesh is set than its plan's\n"
                "  the plan's  data=2 x model=4 (Auto)\n"
                "  set         rows=2 (Explicit)\n"
                "  Call it outside of jax.set_mesh, or of jax.shard_map, or plan for the mesh that is set."
            )


def test_initialisation_straight_into_the_layouts(plan, run):
    # As the tour has it: no host copy of a parameter that is larger than a device; sizes need not divide.
    made = [
        jax.jit(lambda key, shape=argument.shape: jax.random.normal(key, shape), out_shardings=sharding)(
            jax.random.key(0)
        )
        for argument, sharding in zip(ARGS, plan.in_shardings, strict=True)
    ]
    assert [array.sharding for array in made] == list(plan.in_shardings)
    close(run(*made), plain(*map(np.asarray, made)))


def test_what_is_put_and_what_comes_back_has_its_true_size(plan, run):
    placed = plan.put(*ARGS)
    for array, argument, sharding in zip(placed, ARGS, plan.in_shardings, strict=True):
        np.testing.assert_array_equal(array, argument)
        assert array.sharding == sharding
    result = run(*placed)
    assert result.shape == (7, 3) and result.sharding == plan.out_shardings
    assert isinstance(plan.take(result), np.ndarray) and plan.take(result).shape == (7, 3)
    for once, twice in zip(placed, plan.put(*placed), strict=True):
        assert once is twice or np.array_equal(once, twice)


def test_numpy_arrays_and_python_numbers_are_arguments(mesh8):
    graph = tp.trace(lambda x, scale: x * scale, *named("row col, ", np.ones((6, 2), np.float32), np.float32(1)))
    run = tp.plan(graph, mesh8, {"row": "data"}).compile()
    np.testing.assert_array_equal(run(np.full((6, 2), 3, np.float32), 2), np.full((6, 2), 6))


def test_lower_shows_what_xla_gets(run):
    lowered = run.lower()
    assert "sdy.manual_computation" in lowered.as_text() or "SPMDFullToShardShape" in lowered.as_text()
    assert run.lower(*ARGS).compile()(*ARGS).shape == (7, 3)


def test_a_donated_argument_is_reused(plan):
    run, placed = plan.compile(), plan.put(*ARGS)
    with warnings.catch_warnings():
        # Buffers of other sizes than any result cannot be reused; JAX says so.
        warnings.simplefilter("ignore")
        jax.jit(run, donate_argnums=0)(*placed)
    even = normal(8, 5)
    graph = tp.trace(tanh, *named("a b", even))
    same = tp.plan(graph, plan.mesh, {"a": "data"})
    (x,) = same.put(even)
    close(same.take(jax.jit(same.compile(), donate_argnums=0)(x)), np.tanh(even))
    assert x.is_deleted()


def test_plans_without_padding_are_turned_around_as_solvers_ask():
    matrix, right = 3 * jnp.eye(8) + 0.2 * normal(8, 8), jnp.arange(8.0)
    graph, mesh = tp.trace(tp.einsum("i j, j -> i"), matrix, right), tp.mesh(data=8)
    for entries in ({"i": "data"}, {"j": "data"}, {"i": "data", "j": tp.ring("data")}):
        product = partial(tp.plan(graph, mesh, entries).compile(), matrix)
        close(jax.linear_transpose(product, right)(right)[0], matrix.T @ right)
        close(jax.scipy.sparse.linalg.gmres(product, right)[0], jnp.linalg.solve(matrix, right))
