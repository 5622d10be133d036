"""Bad input of plans: each error by its full text."""

from __future__ import annotations

import pickle
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, Mesh

import tapestry_jax as tp
from tests.tapestry_jax.draw import named, normal

gelu = tp.Map(jax.nn.gelu)
matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
softmax = tp.Map(jax.nn.softmax, "a [c] -> a [c]")
MESH = AbstractMesh((2, 4), ("data", "model"))


@tp.program("batch embed, embed mlp, mlp out -> batch out")
def mlp(x, w1, w2):
    return matmul(gelu(matmul(x, w1)), w2)


ARGS = (normal(7, 5), normal(5, 13), normal(13, 3))


def long(arrow, steps=2**31 + 1):
    count = len(arrow.operation.signature.operands)
    return tp.plan(tp.trace(arrow, *[tp.TensorType({"t": steps})] * count), MESH, {"t": "data"}).explain(grad=True)


def mlp_plan(mesh=MESH, entries=None, **asked):
    return tp.plan(
        tp.trace(mlp, *ARGS), mesh, {"batch": "data", "mlp": "model"} if entries is None else entries, **asked
    )


def table(rows=4, columns=6):
    return tp.TensorType({"a": rows, "c": columns}, jnp.float32)


def plan_softmax(entries, **asked):
    return tp.plan(tp.trace(softmax, table()), MESH, entries, **asked)


def plan_split(entries):
    return tp.plan(tp.trace(tp.rearrange("b (h d) -> b h d", h=2), *named("b e", np.ones((4, 6), "f"))), MESH, entries)


def product(x):
    return jnp.prod(x, (0, 1))


def plan_product(entries, **asked):
    ordered = tp.Monoid(1, lambda a, b: a * b, name="Ordered")
    graph = tp.trace(tp.Reduce(product, "a b c -> c", ordered), *named("a b c", np.ones((4, 4, 4), "f")))
    return tp.plan(graph, MESH, entries, **asked)


def error_of(function, *args, **kwargs):
    with pytest.raises(tp.TapestryError) as caught:
        function(*args, **kwargs)
    return f"{type(caught.value).__name__}: {caught.value}"


PLANNING = {
    "unknown dimension": (
        partial(mlp_plan, entries={"bach": "data"}),
        """PlanError: the plan places `bach`, which is no dimension of the graph
  dimensions: batch, embed, mlp, out
  Name one of them; graph.show() prints where they occur.""",
    ),
    "unknown mesh axis": (
        partial(mlp_plan, entries={"batch": "dat"}),
        """MeshError: the plan places `batch` on the mesh axis `dat`, which the mesh does not have
  mesh data=2 x model=4
  Use one of data, model.""",
    ),
    "a dimension twice on one axis": (
        partial(mlp_plan, entries={"batch": ("data", "data")}),
        """PlanError: the plan places `batch` twice on the mesh axis `data`
  got ('data', 'data')
  Name every mesh axis once.""",
    ),
    "two dimensions on one axis": (
        partial(mlp_plan, entries={"batch": "data", "mlp": "data"}),
        """PlanError: `matmul` has both `batch` and `mlp` on the mesh axis `data`
  signature i k, k n -> i n
  Except one of them: ops={"matmul": {"mlp": None}}.""",
    ),
    "entries that are no mapping": (
        partial(mlp_plan, entries=[("batch", "data")]),
        """PlanError: the plan is a mapping from dimension names to mesh axes
  got list: [('batch', 'data')]
  Write {"batch": "data", "mlp": "model"}.""",
    ),
    "a number for a mesh axis": (
        partial(mlp_plan, entries={"batch": 3}),
        """PlanError: the plan places `batch` on something that is not a mesh axis
  got int: 3
  Give a mesh axis, tp.chunks, tp.striped, tp.ring or tp.halo, a tuple of these, or None.""",
    ),
    "a number among mesh axes": (
        partial(mlp_plan, entries={"batch": ("data", 3)}),
        """PlanError: the plan places `batch` on something that is not a mesh axis
  got 3
  Name mesh axes: data, model; None leaves the dimension whole.""",
    ),
    "whole everywhere": (
        partial(plan_softmax, {"c": "data"}),
        """PlanError: the plan places `c`, which nothing can cut: it is whole everywhere
  it is an axis of `x`, `softmax`
  Leave it out, or write the operation with a dimension that can be cut.""",
    ),
    "inner in a composition": (
        partial(plan_split, {"d": "data"}),
        """PlanError: the plan places `d`, which cuts nothing
  rearrange: `d` is inner in the composition `(h d)`, of which only the outermost can be cut
  Leave it out, or place it where it can be cut.""",
    ),
    "inner fold of a monoid that does not commute": (
        partial(plan_product, {"b": "data"}),
        """PlanError: the plan places `b`, which cuts nothing
  product: the monoid is not commutative, so of several folds only the outermost, `a`
  Leave it out, or place it where it can be cut.""",
    ),
    "an exception that cannot hold": (
        partial(plan_product, {}, ops={"product": {"b": "data"}}),
        """PlanError: ops['product'] places `b`, which `product` cannot cut
  signature a b c -> c
  the monoid is not commutative, so of several folds only the outermost, `a`
  Leave `b` out, or write None for it.""",
    ),
    "an unknown path": (
        partial(mlp_plan, ops={"matmull": {"batch": None}}),
        """PlanError: ops names the path 'matmull', where the graph has no operation
  paths: gelu, matmul, matmul_1
  Give the path of an operation or scope, as graph.show() prints them.""",
    ),
    "an exception for a dimension that lies elsewhere": (
        partial(mlp_plan, ops={"matmul": {"out": None}}),
        """PlanError: ops['matmul'] places `out`, which cuts nothing there
  dimensions there that can be placed: batch, embed, mlp
  Name one of them.""",
    ),
    "an exception for a whole dimension": (
        partial(plan_softmax, {"a": "data"}, ops={"softmax": {"c": "model"}}),
        """PlanError: ops['softmax'] places `c`, which cuts nothing there
  dimensions there that can be placed: a
  Name one of them.""",
    ),
    "an exception onto an axis that is taken": (
        partial(mlp_plan, ops={"matmul": {"mlp": "data"}}),
        """PlanError: `matmul` has both `batch` and `mlp` on the mesh axis `data`
  signature i k, k n -> i n
  Except one of them: ops={"matmul": {"mlp": None}}.""",
    ),
    "exceptions that are no mapping": (
        partial(mlp_plan, ops=["matmul"]),
        """PlanError: ops is a mapping from paths to entries
  got list: ['matmul']
  Write ops={"decoder/3/attention": {"heads": None}}.""",
    ),
    "a layout of an unknown input": (
        partial(mlp_plan, inputs={"q": {"batch": "data"}}),
        """PlanError: inputs names 'q', which the graph does not have
  it has x, w1, w2
  Name one of them.""",
    ),
    "a layout of an unknown axis": (
        partial(mlp_plan, inputs={"x": {"mlp": "data"}}),
        """PlanError: inputs['x'] cuts `mlp`, which is no axis of it
  its type is float32(batch=7, embed=5)
  Name one of its axes.""",
    ),
    "a layout with one mesh axis twice": (
        partial(mlp_plan, outputs={"y": {"batch": "data", "out": "data"}}),
        """PlanError: outputs['y'] uses the mesh axis `data` for two axes
  Use every mesh axis once for a tensor.""",
    ),
    "a layout that does not divide": (
        partial(mlp_plan, inputs={"w1": {"mlp": ("data", "model")}}),
        """PlanError: inputs['w1'] cuts `mlp` of 13 over data+model into 8 pieces, which do not divide it
  arrays that users hold have true shapes
  Write tp.padded('data', 'model') to store it in padded pieces, or leave `mlp` out: it is then stored whole and """
        "sliced inside.",
    ),
    "padded storage for operations": (
        partial(mlp_plan, entries={"batch": tp.padded("data")}),
        """PlanError: the plan places `batch` on padded('data'), which says how an argument or a result is stored
  operations need no padding: any size can be placed on any mesh axes
  Write {"batch": 'data'} here, and inputs={"name": {"batch": tp.padded('data')}}.""",
    ),
    "padded storage for one operation": (
        partial(mlp_plan, ops={"gelu": {"mlp": tp.padded("data", "model")}}),
        """PlanError: ops['gelu'] places `mlp` on padded('data', 'model'), which says how an argument or a result """
        """is stored
  operations need no padding: any size can be placed on any mesh axes
  Write {"mlp": ('data', 'model')} here, and inputs={"name": {"mlp": tp.padded('data', 'model')}}.""",
    ),
    "storage that is padded and not": (
        partial(mlp_plan, inputs={"w1": {"mlp": ("data", tp.padded("model"))}}),
        """PlanError: inputs['w1'] stores `mlp` padded and otherwise at once
  got (data, padded('model'))
  Write tp.padded('data', 'model') alone.""",
    ),
    "padded storage without mesh axes": (
        tp.padded,
        """PlanError: tp.padded takes names of mesh axes
  got ()
  Write tp.padded("model").""",
    ),
    "padded storage on an unknown mesh axis": (
        partial(mlp_plan, inputs={"w1": {"mlp": tp.padded("pipe")}}),
        """MeshError: inputs['w1'] places `mlp` on the mesh axis `pipe`, which the mesh does not have
  mesh data=2 x model=4
  Use one of data, model.""",
    ),
    "something that is no graph": (
        lambda: tp.plan(mlp, MESH, {}),
        """PlanError: only graphs can be planned
  got Program: Program(mlp: batch embed, embed mlp, mlp out -> batch out)
  Trace the program first: tp.plan(tp.trace(f, *specs), mesh, {...}).""",
    ),
    "something that is no mesh": (
        partial(mlp_plan, mesh=8),
        """MeshError: a plan needs a mesh
  got int: 8
  Make one with tp.mesh(data=2, model=4), or pass a jax.sharding.Mesh or AbstractMesh.""",
    ),
    "sizes in place of a mesh": (
        partial(mlp_plan, mesh={"data": 2}),
        """MeshError: a plan needs a mesh
  got dict: {'data': 2}
  Make one with tp.mesh(data=2), or pass a jax.sharding.Mesh or AbstractMesh.""",
    ),
    "a gradient by no argument": (
        lambda: mlp_plan().collectives(grad=(0, 7)),
        """PlanError: grad names the argument 7, which `mlp` does not have
  its arguments are 0 to 2
  Give positions of arguments, or True for all of them.""",
    ),
    "slopes of more steps than int32 counts": (
        lambda: long(tp.Scan(tp.monoids.Max, "t -> t", "t", reverse=True)),
        """GraphError: a running extremum over 2147483649 steps has no gradient
  the step that has it is found by its place, an int32
  Scan at most 2**31 - 1 steps.""",
    ),
    "rows of more steps than int32 counts": (
        lambda: long(tp.Scan(tp.monoids.AffineRecurrence, "t, t -> t, t", "t"), 2**40),
        """GraphError: a scan walks 34359738368 rows of 32 steps
  they are counted in int32
  Scan fewer steps at once.""",
    ),
    "an abstract mesh compiled": (
        lambda: mlp_plan().compile(),
        f"""MeshError: this plan was made for an abstract mesh, which has no devices
  got {MESH}
  Plan again with a real mesh, such as tp.mesh(data=2, model=4).""",
    ),
    "an abstract mesh given arrays": (
        lambda: mlp_plan().put(*ARGS),
        f"""MeshError: this plan was made for an abstract mesh, which has no devices
  got {MESH}
  Plan again with a real mesh, such as tp.mesh(data=2, model=4).""",
    ),
    "a mesh with a device twice": (
        lambda: mlp_plan(Mesh(np.array([jax.devices()[1]] * 2), ("data",)), {"batch": "data"}),
        """MeshError: a mesh has a device twice
  got [CpuDevice(id=1), CpuDevice(id=1)]
  Name every device once.""",
    ),
    "a mesh of two kinds of axes": (
        lambda: mlp_plan(AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Explicit))),
        """MeshError: a plan needs a mesh whose axes are all Auto, or all Explicit
  got AbstractMesh('data': 2, 'model': 4, axis_types=(Auto, Explicit))
  Make one with tp.mesh(data=2, model=4).""",
    ),
    "a mesh of manual axes": (
        lambda: mlp_plan(AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Manual,) * 2)),
        """MeshError: a plan needs a mesh whose axes are all Auto, or all Explicit
  got AbstractMesh('data': 2, 'model': 4, axis_types=(Manual, Manual))
  Make one with tp.mesh(data=2, model=4).""",
    ),
    "a mesh axis called devices": (
        lambda: tp.mesh(devices=2),
        """MeshError: a mesh axis cannot be called `devices`, which says which devices to use
  got devices=2
  Call the axis something else, such as `data`.""",
    ),
    "a mesh axis called devices, beside devices": (
        lambda: tp.mesh(jax.devices()[:1], devices=2),
        """MeshError: a mesh axis cannot be called `devices`, which says which devices to use
  got devices=2
  Call the axis something else, such as `data`.""",
    ),
    "devices given twice": (
        lambda: tp.mesh(jax.devices()[:1], devices=jax.devices()[:1], data=1),
        f"""MeshError: the devices of a mesh are given twice
  got {jax.devices()[:1]}, and {jax.devices()[:1]}
  Give them once: tp.mesh(devices, data=2).""",
    ),
    "a mesh without axes": (
        tp.mesh,
        """MeshError: a mesh needs axes
  Name them: tp.mesh(data=2, model=4).""",
    ),
    "a mesh axis without devices": (
        partial(tp.mesh, data=0),
        """MeshError: the mesh axis `data` has no size
  got 0
  Give a positive number of devices for every axis.""",
    ),
}


@pytest.mark.parametrize("name", PLANNING)
def test_planning_refuses(name):
    function, text = PLANNING[name]
    assert error_of(function) == text


def test_a_mesh_with_too_few_devices_says_how_to_simulate_them():
    devices = jax.devices()[:3]
    assert error_of(tp.mesh, devices, data=2, model=4) == (
        "MeshError: the mesh data=2 x model=4 needs 8 devices\n"
        f"  got 3: {', '.join(map(str, devices))}\n"
        '  Simulate them on the CPU, first thing in the program: jax.config.update("jax_num_cpu_devices", 8).'
    )


# Arguments

x, w1, w2 = ARGS
TAKES = """GraphError: `mlp` takes 3 arrays, got {count}
  inputs: x float32(batch=7, embed=5), w1 float32(embed=5, mlp=13), w2 float32(mlp=13, out=3)
  Pass the arguments that it was traced with."""
NO_ARRAY = """GraphError: argument `x` of `mlp` is not an array
  expected a jax or numpy array, a number, a jax.ShapeDtypeStruct or a tp.TensorType
  got str: 'x'
  Convert it with jnp.asarray, or keep what is not an array outside the program."""
STRUCTURE = """GraphError: the arguments of `mlp` have another structure than it was traced with
  at the input `x`: expected the place 0, got 0/0
  Pass containers with the same keys, in the same places."""
OTHER = """SignatureError: `mlp` was planned for other arguments
{lines}
  Pass arrays of these sizes and dtypes, or trace and plan again for the new ones."""
X = "float32(batch=7, embed=5)"
W2 = "float32(mlp=13, out=3)"


@pytest.fixture(scope="module")
def entrances():
    plan = mlp_plan(tp.mesh(data=2, model=4))
    return {"put": plan.put, "run": plan.compile()}


@pytest.mark.parametrize("entrance", ["put", "run"])
def test_wrong_arguments_are_refused(entrances, entrance):
    call, other = entrances[entrance], OTHER

    def wrong(got, expected=X, name="x"):
        return f"  {name}: expected {expected}, got {got}"

    assert error_of(call, x, w1) == TAKES.format(count=2)
    assert error_of(call, x, w1, w2, w2) == TAKES.format(count=4)
    assert error_of(call, "x", w1, w2) == NO_ARRAY
    assert error_of(call, (x, w1), w2) == STRUCTURE
    assert error_of(call, x[0], w1, w2) == other.format(lines=wrong("float32(5)"))
    assert error_of(call, x[:, :4], w1, w2) == other.format(lines=wrong("float32(7, 4)"))
    assert error_of(call, x.astype(jnp.int32), w1, w2) == other.format(lines=wrong("int32(7, 5)"))
    # All that is wrong at once.
    two = wrong("float32(7, 4)") + "\n" + wrong("float32(13, 2)", W2, "w2")
    assert error_of(call, x[:, :4], w1, w2[:, :2]) == other.format(lines=two)


def test_arguments_and_results_in_padded_storage_say_both_sizes(mesh2x4):
    stored = {"inputs": {"w1": {"mlp": tp.padded("model")}}, "outputs": {"y": {"batch": tp.padded("data")}}}
    plan = mlp_plan(mesh2x4, **stored)
    for call in (plan.put, plan.compile()):
        assert error_of(call, x, w1[:, :5], w2) == OTHER.format(
            lines="  w1: expected float32(embed=5, mlp=13) (or padded (5, 16)), got float32(5, 5)"
        )
    assert error_of(plan.take, np.ones((7, 3))) == (
        "PlanError: plan.take was given other sizes than the program returns\n"
        "  y: expected float32(batch=7, out=3) padded to (8, 3), got shape (7, 3)\n"
        "  Pass what plan.compile()(...) returned."
    )
    assert error_of(plan.crop, w1, 1) == (
        "PlanError: plan.crop was given other arrays than the argument 1 of `mlp` has\n"
        "  it has 1, got 1\n"
        "  expected (5, 16), got (5, 13)\n"
        "  Pass what has the structure of that argument, or name another: argument=1."
    )
    for call in (plan.crop, plan.pad):
        assert error_of(call, w1, 9) == (
            f"PlanError: plan.{call.__name__} names the argument 9, which `mlp` does not have\n"
            "  its arguments are 0 to 2\n"
            "  Pass the position of one of them."
        )


def test_a_plan_for_devices_is_not_pickled_and_one_for_none_is():
    assert error_of(pickle.dumps, mlp_plan(tp.mesh(data=2, model=4))).startswith(
        "PlanError: a plan for devices cannot be pickled"
    )
    plan = tp.plan(tp.trace(tp.Map(jnp.sin, "a -> a"), jnp.ones(4)), AbstractMesh((2,), ("data",)), {"a": "data"})
    assert pickle.loads(pickle.dumps(plan)).explain() == plan.explain()


def test_results_of_other_sizes_are_refused():
    plan = mlp_plan()
    assert error_of(plan.take, (1, 2)) == (
        "PlanError: plan.take was given 2 arrays; the program returns 1\n  Pass what plan.compile()(...) returned."
    )
    assert error_of(plan.take, np.ones((2, 3))) == (
        "PlanError: plan.take was given other sizes than the program returns\n"
        "  y: expected float32(batch=7, out=3), got shape (2, 3)\n"
        "  Pass what plan.compile()(...) returned."
    )


@pytest.mark.parametrize("shape", [pytest.param((0, 5), marks=pytest.mark.thorough), (7, 0)], ids=str)
def test_empty_tensors_run_and_have_gradients(mesh2x4, shape):
    args = (jnp.zeros(shape), jnp.zeros((shape[1], 13)), w2)
    plan = tp.plan(tp.trace(mlp, *args), mesh2x4, {"batch": "data", "mlp": "model"})
    plan.verify()
    run = plan.compile()
    np.testing.assert_array_equal(run(*args), np.zeros((shape[0], 3)))
    np.testing.assert_array_equal(plan.take(run(*plan.put(*args))), np.zeros((shape[0], 3)))
    gradients = jax.grad(lambda *args: jnp.sum(run(*args)), (0, 1, 2))(*args)
    assert [g.shape for g in gradients] == [a.shape for a in args]
    assert not any(np.any(g) for g in gradients)
