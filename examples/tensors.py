"""Shows: Einstein sums: matrix product, trace, contractions and tensor products, with gradients; a pure tensor, and a sum of r
of them fitted to a given tensor."""
import numpy as np
import plotting

import graphdiff as gd


def main():
    rng = np.random.default_rng(0)
    a, b = gd.input("A", (4, 5)), gd.input("B", (5, 3))
    product = gd.einsum("ik,kj->ij", a, b)
    square = gd.input("S", (4, 4))
    trace = gd.einsum("ii->", square)
    c, d = gd.input("C", (2, 3, 4)), gd.input("D", (3, 4, 2))
    values = {a: rng.standard_normal((4, 5)), b: rng.standard_normal((5, 3)), square: rng.standard_normal((4, 4)),
              c: rng.standard_normal((2, 3, 4)), d: rng.standard_normal((3, 4, 2))}
    f = gd.function([square], [trace, gd.grad(trace, square)])
    value, slope = f(values[square])
    print(f"A_ii = {float(value):.4f}; its gradient is the identity: {np.array_equal(slope, np.eye(4))}")
    checks = [gd.evaluate(product, values) - values[a] @ values[b],
              gd.evaluate(gd.einsum("ikl,klj->ij", c, d), values) - np.tensordot(values[c], values[d], 2)]
    print("A_ik B_kj and A_ikl B_klj against NumPy:", [float(np.abs(x).max()) for x in checks])
    u, v, w = (rng.standard_normal(n) for n in (3, 4, 5))
    pure = gd.evaluate(gd.einsum("i,j,k->ijk", gd.constant(u), v, w), {})
    print("u (x) v (x) w has rank", np.linalg.matrix_rank(pure.reshape(3, 20)), "in every unfolding")
    target = np.einsum("ir,jr,kr->ijk", *(rng.standard_normal((6, 2)) for _ in range(3)))
    curves = {}
    for rank in (1, 2):
        factors = [gd.variable(rng.standard_normal((6, rank)) / 2, f"factor{i}") for i in range(3)]
        loss = gd.losses.mse(gd.einsum("ir,jr,kr->ijk", *factors), target)
        step = gd.function([], loss, updates=gd.optim.Adam(0.03).updates(loss, factors))
        curves[rank] = [float(step()) for _ in range(800)]
        print(f"a sum of {rank} pure tensors: squared error {curves[rank][-1]:.2e}")

    def draw(axes):
        for rank, losses in curves.items():
            axes.semilogy(losses, label=f"rank {rank}")
        axes.set_title("a 6 x 6 x 6 tensor of rank 2, fitted")
        axes.legend()
    plotting.save("tensors.svg", draw)
    gd.draw(loss, wrt=factors).save("tensors_graph.svg")
    return {"checks": checks, "slope": slope, "fits": {r: c[-1] for r, c in curves.items()}}


if __name__ == "__main__":
    main()
