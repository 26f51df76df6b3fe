"""Shows: both passes of one formula, value by value, as in table 3 of Baydin et al. 2018, with a picture and a page to step through."""
import graphdiff as gd


def main():
    x1, x2 = gd.inputs("x1 x2")
    y = gd.log(x1) + x1 * x2 - gd.sin(x2)
    trace = gd.trace(y, at={x1: 2.0, x2: 5.0})
    print(trace)
    for name in ("survey.svg", "survey.html", "survey.tex", "survey.md"):
        trace.save(name)
        print(f"written: {name}")
    f = gd.function([x1, x2], [y, *gd.grad(y, [x1, x2])])
    value, d1, d2 = (float(r) for r in f(2.0, 5.0))
    print(f"y = {value}, dy/dx1 = {d1}, dy/dx2 = {d2}")
    return {"y": value, "d1": d1, "d2": d2}


if __name__ == "__main__":
    main()
