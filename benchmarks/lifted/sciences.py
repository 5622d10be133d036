"""Solvers, physics, densities and statistics, as packages have them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.lifted.entry import Entry, Lifted, normal


def navier_stokes() -> Lifted:
    import jax_cfd.base as cfd

    grid = cfd.grids.Grid((16, 16), domain=((0, 1), (0, 1)))
    periodic = cfd.boundaries.periodic_boundary_conditions(2)
    offsets = ((1.0, 0.5), (0.5, 1.0))

    def accelerations(u: Any, v: Any) -> Any:
        velocity = tuple(
            cfd.grids.GridVariable(cfd.grids.GridArray(field, offset, grid), periodic)
            for field, offset in zip((u, v), offsets, strict=True)
        )
        terms = cfd.equations.navier_stokes_explicit_terms(1.0, 1e-2, 1e-3, grid)
        return tuple(found.data for found in terms(velocity))

    return Lifted(accelerations, (normal(16, 16), normal(16, 16, seed=1)), "x y, x y", {"x": "data", "y": "model"})


def turbulence() -> Lifted:
    import jax_cfd.base as cfd
    import jax_cfd.spectral as spectral

    grid = cfd.grids.Grid((16, 16), domain=((0, 6.28), (0, 6.28)))
    equation = spectral.equations.NavierStokes2D(1e-3, grid)
    step = spectral.time_stepping.crank_nicolson_rk4(equation, 1e-3)

    def after(vorticity: Any) -> Any:
        return jnp.fft.irfftn(step(jnp.fft.rfftn(vorticity)))

    def every(vorticity: Any) -> Any:
        return jax.vmap(after)(vorticity)

    return Lifted(every, (normal(4, 16, 16),), "batch x y", {"batch": "data"})


def ode() -> Lifted:
    import diffrax

    def solve(weights: Any, start: Any) -> Any:
        def field(t: Any, y: Any, weights: Any) -> Any:
            return jnp.tanh(weights @ y)

        found = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            diffrax.Tsit5(),
            0.0,
            1.0,
            0.1,
            start,
            weights,
            adjoint=diffrax.DirectAdjoint(),
            stepsize_controller=diffrax.ConstantStepSize(),
            max_steps=16,
        )
        return found.ys[0]

    def every(weights: Any, starts: Any) -> Any:
        return jax.vmap(solve, (None, 0))(weights, starts)

    return Lifted(every, (normal(4, 4), normal(8, 4, seed=1)), {"starts": "batch state"}, {"batch": "data"})


def adaptive_ode() -> Lifted:
    import diffrax

    def solve(rate: Any, start: Any) -> Any:
        controller = diffrax.PIDController(rtol=1e-3, atol=1e-6)
        term = diffrax.ODETerm(lambda t, y, rate: -rate * y)
        return diffrax.diffeqsolve(
            term, diffrax.Dopri5(), 0.0, 1.0, 0.1, start, rate, stepsize_controller=controller
        ).ys

    return Lifted(solve, (jnp.float32(0.5), normal(8)), {"start": "state"}, {})


def pinn() -> Lifted:
    import equinox as eqx
    import jinns

    layers = ((eqx.nn.Linear, 2, 16), (jax.nn.tanh,), (eqx.nn.Linear, 16, 16), (jax.nn.tanh,), (eqx.nn.Linear, 16, 1))
    network, params = jinns.nn.PINN_MLP.create(key=jax.random.key(0), eqx_list=layers, eq_type="PDENonStatio")
    equation, viscosity = jinns.loss.BurgersEquation(), jinns.parameters.EqParams({"nu": 0.01}, "Viscosity")

    def residual(params: Any, points: Any) -> Any:
        told = jinns.parameters.Params(nn_params=params, eq_params=viscosity)
        found = jax.vmap(lambda point: equation.evaluate(point, network, told))(points)
        return (found**2).mean()

    return Lifted(residual, (params, normal(8, 2)), {"points": "point _"}, {"point": "data"})


def regression() -> Lifted:
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer.util import log_density

    def model(x: Any, y: Any) -> None:
        with numpyro.plate("feature", x.shape[1]):
            weights = numpyro.sample("weights", dist.Normal(0.0, 1.0))
        scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
        with numpyro.plate("row", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ weights, scale), obs=y)

    def density(params: Any, x: Any, y: Any) -> Any:
        return log_density(model, (x, y), {}, params)[0]

    args = ({"weights": normal(4), "scale": jnp.float32(0.7)}, normal(16, 4, seed=1), normal(16, seed=2))
    return Lifted(density, args, {"x": "row feature", "y": "row"}, {"row": "data"})


def mixture() -> Lifted:
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer.util import log_density

    def model(x: Any) -> None:
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
        means = numpyro.sample("means", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
        with numpyro.plate("row", x.shape[0]):
            parts = dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(means, 1.0))
            numpyro.sample("x", parts, obs=x)

    def density(params: Any, x: Any) -> Any:
        return log_density(model, (x,), {}, params)[0]

    args = ({"weights": jnp.array([0.2, 0.3, 0.5]), "means": normal(3)}, normal(16, seed=1))
    return Lifted(density, args, {"x": "row"}, {"row": "data"})


def hidden_markov() -> Lifted:
    from dynamax.hidden_markov_model import hmm_filter

    def likelihood(start: Any, change: Any, told: Any) -> Any:
        start, change = jax.nn.softmax(start), jax.nn.softmax(change)
        return jax.vmap(lambda told: hmm_filter(start, change, told).marginal_loglik)(told)

    args = (normal(3), normal(3, 3, seed=1), normal(4, 10, 3, seed=2))
    return Lifted(likelihood, args, {"told": "batch time state"}, {"batch": "data"})


def kalman() -> Lifted:
    from dynamax.linear_gaussian_ssm import LinearGaussianSSM

    model = LinearGaussianSSM(2, 3)
    params, _ = model.initialize(jax.random.key(0))

    def likelihood(params: Any, told: Any) -> Any:
        return jax.vmap(lambda told: model.marginal_log_prob(params, told))(told)

    return Lifted(likelihood, (params, normal(4, 6, 3)), {"told": "batch time _"}, {"batch": "data"})


def gaussian_process() -> Lifted:
    from tinygp import GaussianProcess, kernels

    def likelihood(scale: Any, x: Any, y: Any) -> Any:
        kernel = jnp.exp(scale[0]) * kernels.Matern32(jnp.exp(scale[1]))
        return GaussianProcess(kernel, x, diag=0.1).log_probability(y)

    return Lifted(likelihood, (normal(2), normal(12, seed=1), normal(12, seed=2)), None, {})


def k_means() -> Lifted:
    from ott.tools.k_means import k_means

    def centroids(points: Any) -> Any:
        return k_means(points, 3, init=lambda geometry, k, rng: geometry.x[:k], n_init=1, max_iterations=10).centroids

    return Lifted(centroids, (normal(32, 2),), "point _", {})


def sinkhorn() -> Lifted:
    from ott.geometry import pointcloud
    from ott.solvers import linear

    def cost(x: Any, y: Any) -> Any:
        return linear.solve(pointcloud.PointCloud(x, y, epsilon=0.1), max_iterations=20, min_iterations=20).reg_ot_cost

    return Lifted(cost, (normal(8, 2), normal(12, 2, seed=1)), {"x": "from _", "y": "to _"}, {"from": "data"})


def proximal() -> Lifted:
    import jaxopt

    def fitted(start: Any, x: Any, y: Any) -> Any:
        def loss(weights: Any, data: Any) -> Any:
            x, y = data
            return jnp.mean((x @ weights - y) ** 2)

        solver = jaxopt.ProximalGradient(loss, jaxopt.prox.prox_lasso, stepsize=0.1, maxiter=4)
        state = solver.init_state(start, hyperparams_prox=0.1, data=(x, y))
        return solver.update(start, state, hyperparams_prox=0.1, data=(x, y)).params

    return Lifted(fitted, (normal(4), normal(16, 4), normal(16)), {"x": "row _", "y": "row"}, {"row": "data"})


def hamiltonian() -> Lifted:
    import blackjax.mcmc.integrators as integrators
    from blackjax.mcmc.metrics import default_metric

    def step(position: Any, momentum: Any, data: Any) -> Any:
        def density(position: Any) -> Any:
            return -0.5 * ((data @ position) ** 2).sum() - 0.5 * (position**2).sum()

        metric = default_metric(jnp.ones(position.shape))
        state = integrators.new_integrator_state(density, position, momentum)
        after = integrators.velocity_verlet(density, metric.kinetic_energy)(state, 0.01)
        return after.position, after.momentum

    names = {"data": "row _"}
    return Lifted(step, (normal(4), normal(4, seed=1), normal(16, 4, seed=2)), names, {"row": "data"})


def equivariant() -> Lifted:
    import e3nn_jax as e3nn

    def messages(vectors: Any, features: Any) -> Any:
        sphere = e3nn.spherical_harmonics("0e + 1o + 2e", vectors, normalize=True)
        given = e3nn.IrrepsArray("4x0e + 2x1o", features)
        return e3nn.tensor_product(given, sphere, filter_ir_out=["0e", "1o"]).array

    args = (normal(16, 3), normal(16, 10, seed=1))
    return Lifted(messages, args, {"vectors": "edge _", "features": "edge _"}, {"edge": "data"})


ENTRIES = (
    Entry("Navier-Stokes, finite volumes", "stencils", "jax-cfd", navier_stokes),
    Entry("Navier-Stokes, spectral", "Fourier transforms, Runge-Kutta", "jax-cfd", turbulence),
    Entry("Neural ODE, fixed steps", "ODE solver", "diffrax", ode),
    Entry("ODE, adaptive steps", "ODE solver", "diffrax", adaptive_ode),
    Entry("Burgers' residual", "physics-informed network", "jinns", pinn),
    Entry("Regression", "log density", "numpyro", regression),
    Entry("Mixture of normals", "log density", "numpyro", mixture),
    Entry("Hidden Markov model", "filter", "dynamax", hidden_markov),
    Entry("Kalman filter", "filter", "dynamax", kalman),
    Entry("Gaussian process", "log density, Cholesky", "tinygp", gaussian_process),
    Entry("k-means", "loop until it converges", "ott-jax", k_means),
    Entry("Sinkhorn", "optimal transport", "ott-jax", sinkhorn),
    Entry("Lasso, a proximal step", "optimizer", "jaxopt", proximal),
    Entry("Hamiltonian step", "sampler", "blackjax", hamiltonian),
    Entry("Tensor products of e3nn", "equivariant messages", "e3nn-jax", equivariant),
)
