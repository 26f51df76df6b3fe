"""How einsum lays out what it multiplies: every label of a batch, a row, a column and a sum, in every order in memory."""
import numpy as np
import pytest
from counting import checked

import graphdiff as gd

# Sums across a batch that lies inside; batches that lie inside of matrices; factors broadcast across lines; sums of labels that lie apart.
EQUATIONS = ("abc,acb,b->cb", "cdba,bcad,dbca->cda", "b,edbc,dace,beca,dc->cbad", "acef,eaf,adfb,bae,f->dfb", "ebf,af,ecd,cdba->bec", "ad,dcab->a",
             "e,fde,defb,fa->a", "acb,adc,cdba->c", "dbf,e,afbe,bea->b", "a,caeb,cbe,dacb->ad", "cd,b,a,bdf->cfbd", "bac,ac,bca->acb", "ca,abc->cb",
             "bdca,cabd->ab", "bc,cba,abc->", "dba,dea,eadb->bea", "c,bacf,e->ca", "acb,cba,ab->", "cab,acb->", "fdb,efbd,cdb->dbe")
SIZES = dict(zip("abcdef", (5, 7, 4, 3, 6, 2), strict=True))


def operands(equation, dtype, sizes):
    rng = np.random.default_rng(len(equation))
    shapes = [[sizes[label] for label in term] for term in equation.split("->")[0].split(",")]
    if np.dtype(dtype).kind == "f":
        return [rng.uniform(-1, 1, s).astype(dtype) for s in shapes]
    return [rng.integers(0, 2 if dtype == "bool" else 5, s).astype(dtype) for s in shapes]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("equation", EQUATIONS)
def test_values(equation, dtype):
    for sizes in (SIZES, {**SIZES, "a": 1}, {**SIZES, "b": 17, "c": 33}, {**SIZES, "d": 0}):
        xs = operands(equation, dtype, sizes)
        nodes = [gd.input(f"x{k}", x.shape, dtype) for k, x in enumerate(xs)]
        got = gd.function(nodes, gd.einsum(equation, *nodes), threads=1)(*xs)
        wide = [x.astype("float64") if np.dtype(dtype).kind == "f" else x for x in xs]
        want = np.einsum(equation, *wide)
        assert got.dtype == dtype and got.shape == want.shape
        if np.dtype(dtype).kind == "f":
            scale = np.einsum(equation, *[abs(x) for x in wide])
            assert (abs(got - want) <= {"float64": 1e-14, "float32": 2e-6, "float16": 1e-2}[dtype] * scale + 1e-300).all()
        else:
            assert np.array_equal(got, want)
        checked(got.size or 1)


@pytest.mark.parametrize("equation", EQUATIONS)
def test_derivatives(equation):
    xs = operands(equation, "float64", SIZES)
    nodes = [gd.input(f"x{k}", x.shape) for k, x in enumerate(xs)]
    y = gd.einsum(equation, *nodes)
    weights = np.cos(np.arange(float(y.size))).reshape(y.shape)
    got = gd.function(nodes, gd.grad(gd.sum(y * weights), nodes), threads=1)(*xs)
    terms, out = equation.split("->")[0].split(","), equation.split("->")[1]
    for k, g in enumerate(got):
        others = [weights, *[x for i, x in enumerate(xs) if i != k]]
        labels = [out, *[t for i, t in enumerate(terms) if i != k]]
        mine = "".join([label for label in terms[k] if any(label in t for t in labels)])
        want = np.einsum(",".join(labels) + "->" + mine, *others)
        want = np.broadcast_to(want.reshape([n if label in mine else 1 for label, n in zip(terms[k], xs[k].shape, strict=True)]), xs[k].shape)
        np.testing.assert_allclose(g, want, rtol=1e-12, atol=1e-12)
        checked(g.size)


def test_operands_that_lie_in_any_order():
    """The same for views: every operand turned and with steps."""
    rng = np.random.default_rng(0)
    for equation in EQUATIONS:
        terms = equation.split("->")[0].split(",")
        wholes, views, nodes = [], [], []
        for k, term in enumerate(terms):
            order = rng.permutation(len(term))
            whole = rng.uniform(-1, 1, [2 * SIZES[term[i]] for i in order])
            node = gd.input(f"x{k}", whole.shape)
            back, at = np.argsort(order), tuple([slice(None, None, 2)] * len(term))
            wholes.append(whole)
            nodes.append(node)
            views.append((gd.transpose(node[at], tuple(back.tolist())), whole[at].transpose(back)))
        got = gd.function(nodes, gd.einsum(equation, *[v for v, _ in views]), threads=1)(*wholes)
        np.testing.assert_allclose(got, np.einsum(equation, *[v for _, v in views]), rtol=1e-11, atol=1e-11)
        checked(got.size)
