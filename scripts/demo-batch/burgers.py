"""One case of the viscous Burgers equation u_t + u u_x = u_xx / Re, periodic on
[-1, 1), from u = -sin(pi x): a shock forms at x = 0 near t = 1/pi. The result at
t = 0.6 is compared with the exact one of Cole and Hopf, in result.csv, and drawn
in profile.svg."""

import csv
import math
import os

import rhs

END = 0.6


def case():
    with open("input/cases.csv", newline="") as f:
        for row in csv.DictReader(f):
            if row["job"] == os.environ["DISTRIBUTE_JOB"]:
                return float(row["re"]), int(row["n"]), int(row["order"])
    raise SystemExit("input/cases.csv has no line for " + os.environ["DISTRIBUTE_JOB"])


def solve(re, n, order):
    """The grid, u at five times, and the number of steps: Runge and Kutta's
    third order in the form of Shu and Osher."""
    f = {2: rhs.order2, 4: rhs.order4}[order]
    dx, nu = 2 / n, 1 / re
    x = [-1 + dx * i for i in range(n)]
    u = [-math.sin(math.pi * v) for v in x]
    steps = math.ceil(END / min(0.3 * dx, 0.3 * dx * dx / nu))
    dt, shots = END / steps, [list(u)]
    for step in range(1, steps + 1):
        k = f(u, dx, nu)
        v = [a + dt * b for a, b in zip(u, k)]
        k = f(v, dx, nu)
        v = [0.75 * a + 0.25 * (b + dt * c) for a, b, c in zip(u, v, k)]
        k = f(v, dx, nu)
        u = [(a + 2 * (b + dt * c)) / 3 for a, b, c in zip(u, v, k)]
        if len(shots) < 5 and step >= steps * len(shots) / 4:
            shots.append(list(u))
    return x, shots, steps


def exact(x, t, nu):
    """The quotient of integrals over the heat kernel, by the trapezoidal rule,
    with the largest exponent taken out so that none overflows."""
    h = 0.08 * math.sqrt(4 * nu * t)
    etas = [h * i for i in range(-int(1.6 / h), int(1.6 / h) + 1)]
    exponents = [-math.cos(math.pi * (x - e)) / (2 * math.pi * nu) - e * e / (4 * nu * t) for e in etas]
    largest = max(exponents)
    above = below = 0.0
    for e, power in zip(etas, exponents):
        if power > largest - 40:
            weight = math.exp(power - largest)
            above += weight * math.sin(math.pi * (x - e))
            below += weight
    return -above / below


def draw(path, title, x, shots):
    colours = ["#bbbbbb", "#8fa9c9", "#5b84b8", "#2c5f9e", "#c0392b"]
    lines = []
    for colour, u in zip(colours, shots):
        points = " ".join(f"{320 + 300 * a:.1f},{200 - 150 * b:.1f}" for a, b in zip(x, u))
        lines.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}"/>')
    with open(path, "w") as f:
        f.write(f'''<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 400" font-family="sans-serif" font-size="14">
<rect width="640" height="400" fill="white"/>
<path d="M20 200H620M320 40V360" stroke="#dddddd"/>
{chr(10).join(lines)}
<text x="20" y="24">{title}, t = 0 to {END}</text>
<text x="608" y="216">x</text><text x="326" y="52">u</text>
</svg>
''')


def main():
    re, n, order = case()
    x, shots, steps = solve(re, n, order)
    u, dx = shots[-1], 2 / n
    near = [i for i in range(n) if abs(x[i]) < 0.1]
    error = max(abs(u[i] - exact(x[i], END, 1 / re)) for i in near)
    slope = max(abs(u[(i + 1) % n] - u[i]) / dx for i in range(n))
    energy = sum(v * v for v in u) / sum(v * v for v in shots[0])
    print(f"Re {re:g}, {n} points, order {order}: {steps} steps, error {error:.2e}")

    os.makedirs("distribute_save", exist_ok=True)
    with open("distribute_save/result.csv", "w", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(["re", "order", "n", "steps", "energy", "max_slope", "error"])
        out.writerow([f"{re:g}", order, n, steps, f"{energy:.4f}", f"{slope:.2f}", f"{error:.3e}"])
    draw("distribute_save/profile.svg", f"Burgers, Re = {re:g}, {n} points, order {order}", x, shots)


main()
