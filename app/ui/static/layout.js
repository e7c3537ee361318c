// Places of a graph's nodes, near where edges are strong. Source: Fruchterman and Reingold 1991.

const STEPS = 260;
/** Of the pull to the centre, which keeps parts without a common edge in one picture. */
const PULL = 0.03;
const GOLDEN = Math.PI * (3 - Math.sqrt(5));

/** A place beside another one, different for each `turn`, and the same each time. */
export function beside([x, y], turn, distance = 40) {
  const angle = turn * GOLDEN;
  const radius = distance * (1 + 0.15 * (turn % 5));
  return [x + radius * Math.cos(angle), y + radius * Math.sin(angle)];
}

function repel(points, forces, wanted) {
  for (let a = 1; a < points.length; a += 1) {
    for (let b = 0; b < a; b += 1) {
      const [dx, dy] = [points[a][0] - points[b][0], points[a][1] - points[b][1]];
      const force = wanted ** 2 / Math.max(dx * dx + dy * dy, 0.01);
      forces[a][0] += dx * force;
      forces[a][1] += dy * force;
      forces[b][0] -= dx * force;
      forces[b][1] -= dy * force;
    }
  }
}

function attract(points, forces, edges, wanted) {
  for (const [a, b, weight] of edges) {
    const [dx, dy] = [points[a][0] - points[b][0], points[a][1] - points[b][1]];
    const force = (0.6 * Math.hypot(dx, dy) * weight) / wanted;
    forces[a][0] -= dx * force;
    forces[a][1] -= dy * force;
    forces[b][0] += dx * force;
    forces[b][1] += dy * force;
  }
}

/**
 * Moves points, in place, to where their edges want them.
 * @param {number[][]} points x and y of each.
 * @param {number[][]} edges two places of `points` and a weight above 0 each.
 * @param {number} warmth how far they may go at first.
 * @param {number} aspect width over height of the picture that they are for.
 */
export function settle(points, edges, { wanted = 70, warmth = 60, aspect = 1 } = {}) {
  for (let step = 0; step < STEPS && points.length > 1; step += 1) {
    const forces = points.map(([x, y]) => [(-PULL * x) / aspect, -PULL * y * aspect]);
    repel(points, forces, wanted);
    attract(points, forces, edges, wanted);
    const most = warmth * (1 - step / STEPS);
    forces.forEach(([x, y], place) => {
      const length = Math.hypot(x, y) || 1;
      const far = Math.min(length, most) / length;
      points[place][0] += x * far;
      points[place][1] += y * far;
    });
  }
}
