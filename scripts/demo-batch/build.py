"""Writes rhs.py: the right-hand side of Burgers' equation in central
differences of second and fourth order, with weights derived in exact fractions
and every loop unrolled. Run once on each node."""

from fractions import Fraction


def weights(points, derivative):
    """Weights of the derivative at 0 from values at the points, exact for
    polynomials up to their number: the solution of a Vandermonde system."""
    n, factorial = len(points), 1
    for k in range(2, derivative + 1):
        factorial *= k
    rows = [[Fraction(p) ** k for p in points] + [Fraction(factorial if k == derivative else 0)] for k in range(n)]
    for i in range(n):
        pivot = next(r for r in range(i, n) if rows[r][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [v / rows[i][i] for v in rows[i]]
        for r in range(n):
            if r != i and rows[r][i]:
                rows[r] = [a - rows[r][i] * b for a, b in zip(rows[r], rows[i])]
    return [row[n] for row in rows]


def unrolled(order):
    reach = order // 2
    points = list(range(-reach, reach + 1))
    names = ["pqrst"[i] for i in range(len(points))]
    first = [f"{float(w)!r}*{v}*{v}" for w, v in zip(weights(points, 1), names) if w]
    second = [f"{float(w)!r}*{v}" for w, v in zip(weights(points, 2), names) if w]
    columns = ["w"] + [f"w[{i}:]" for i in range(1, len(points))]
    return f"""
def order{order}(u, dx, nu):
    w = u[-{reach}:] + u + u[:{reach}]
    c, d = -0.5 / dx, nu / (dx * dx)
    return [c * ({" + ".join(first)}) + d * ({" + ".join(second)})
            for {", ".join(names)} in zip({", ".join(columns)})]
"""


with open("rhs.py", "w") as out:
    out.write('"""Written by build.py."""\n' + unrolled(2) + unrolled(4))
print("wrote rhs.py with stencils of order 2 and 4")
