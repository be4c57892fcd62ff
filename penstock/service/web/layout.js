// Where the boxes of a job graph go, and the ways of its arrows. Pure: sizes in pixels, no elements.

export const OPERATOR = 21;
export const HEAD = 30;
export const FOOT = 58;
const WIDE = 236;
const NARROW = 166;
const GAP_ALONG = { false: 96, true: 62 }; // between levels, from left to right and from top to bottom
const GAP_ACROSS = 22;
const LANE = 14; // what a long arrow needs of a level that it only passes
const MARGIN = 4;
const LOOP = 26; // room beside the graph for each arrow that leads back
const STUB = 14; // how far such an arrow leaves its box before it turns
const TIP = 9; // the arrow's head, drawn beyond the end of the line
const APPROACH = TIP + 15;

// `upright`: levels from top to bottom, for narrow screens. A box: {x, y, width, height}; an arrow: {path, x, y} with the
// place of its label (`turned`: it is written upwards), `from`, `to` and `input`, or `feedback` if it leads back.
export function layout(vertices, plan, upright) {
  const nodes = new Map(plan.nodes.map((node) => [node.id, node]));
  const levelOf = new Map(vertices.map((v) => [v.id, v.level]));
  const levels = [];
  const put = (level, entry) => { (levels[level] ??= []).push(entry); return entry; };
  const shared = new Map(); // vertices on each level
  for (const v of vertices) shared.set(v.level, (shared.get(v.level) ?? 0) + 1);
  const width = upright && Math.max(0, ...shared.values()) > 1 ? NARROW : WIDE;
  const boxes = new Map(vertices.map((v) => [v.id, put(v.level, {
    id: v.id, width, height: HEAD + v.operators.length * OPERATOR + FOOT, before: [] })]));

  // An arrow over several levels passes those between in lanes of their own, so that it crosses no box.
  const arrows = plan.nodes.flatMap((node) => node.inputs.map((input) => {
    const stops = [boxes.get(input.id)];
    for (let level = levelOf.get(input.id) + 1; level < levelOf.get(node.id); level += 1) {
      stops.push(put(level, { width: upright ? LANE : width, height: upright ? 0 : LANE, before: [stops.at(-1)], lane: true }));
    }
    stops.push(boxes.get(node.id));
    stops.at(-1).before.push(stops.at(-2));
    return { stops, input, from: input.id, to: node.id };
  }));
  const loops = plan.nodes.flatMap((node) => (node.feedback ?? []).map((f) => ({ from: f.id, to: node.id })));

  const across = place(levels.filter(Boolean), upright, loops.length > 0 ? APPROACH : 0);
  ports(arrows, upright);
  const found = arrows.map((arrow) => ({ from: arrow.from, to: arrow.to, input: arrow.input, ...way(arrow, upright) }));
  const back = loops.map((loop, i) => ({ ...loop, feedback: true, ...wayBack(boxes, loop, upright, across + LOOP * (i + 1) - 10) }));
  const all = [...boxes.values()];
  const edge = loops.length > 0 ? APPROACH : 0;
  const [right, bottom] = [Math.max(...all.map((b) => b.x + b.width)), Math.max(...all.map((b) => b.y + b.height))];
  return {
    boxes, arrows: [...found, ...back],
    width: (upright ? across + LOOP * loops.length : right + edge) + MARGIN,
    height: (upright ? bottom + edge : across + LOOP * loops.length) + MARGIN,
  };
}

// Levels one after the other; on a level, beside what is read from, so that arrows cross little. Returns how wide it became.
function place(levels, upright, margin) {
  let along = MARGIN + margin;
  let across = 0;
  for (const level of levels) {
    const wish = (entry) => (entry.before.length ? entry.before.reduce((sum, b) => sum + b.order, 0) / entry.before.length : 0);
    level.sort((a, b) => wish(a) - wish(b));
    let at = MARGIN;
    level.forEach((entry, i) => {
      Object.assign(entry, upright ? { x: at, y: along } : { x: along, y: at }, { order: (i + 0.5) / level.length });
      at += (upright ? entry.width : entry.height) + GAP_ACROSS;
    });
    along += Math.max(...level.map((e) => (upright ? e.height : e.width)));
    for (const entry of level) entry.end = along; // of the level, which other boxes may reach further into
    along += GAP_ALONG[upright];
    across = Math.max(across, at - GAP_ACROSS);
  }
  for (const level of levels) { // each level in the middle
    const extent = Math.max(...level.map((e) => (upright ? e.x + e.width : e.y + e.height)));
    for (const entry of level) entry[upright ? "x" : "y"] += (across - extent) / 2;
  }
  return across;
}

// Several arrows of a box leave, and come, at places of their own, in the order of their other ends.
function ports(arrows, upright) {
  const middle = (e) => (upright ? e.x + e.width / 2 : e.y + e.height / 2);
  const spread = (mine, other, name) => {
    const groups = new Map();
    for (const arrow of arrows) groups.set(mine(arrow), [...(groups.get(mine(arrow)) ?? []), arrow]);
    for (const [box, group] of groups) {
      group.sort((a, b) => middle(other(a)) - middle(other(b)));
      group.forEach((arrow, i) => {
        arrow[name] = (upright ? box.x : box.y) + ((upright ? box.width : box.height) * (i + 1)) / (group.length + 1);
      });
    }
  };
  spread((a) => a.stops[0], (a) => a.stops[1], "leaves");
  spread((a) => a.stops.at(-1), (a) => a.stops.at(-2), "comes");
}

function way({ stops, leaves, comes }, upright) {
  let path = "";
  let label = null;
  for (let i = 1; i < stops.length; i += 1) {
    const [a, b] = [stops[i - 1], stops[i]];
    const last = i === stops.length - 1;
    const side = (e, end) => (e.lane ? (upright ? e.x + e.width / 2 : e.y + e.height / 2) : end);
    const begin = [upright ? a.y + a.height : a.x + a.width, side(a, leaves)];
    const from = [a.end, begin[1]];
    const to = [(upright ? b.y : b.x) - (last ? TIP : 0), side(b, comes)];
    const bend = (to[0] - from[0]) / 2;
    const point = ([along, across]) => (upright ? `${across} ${along}` : `${along} ${across}`);
    path += `${i === 1 ? "M" : "L"}${point(begin)}L${point(from)}C${point([from[0] + bend, from[1]])} ${point([to[0] - bend, to[1]])} ${point(to)}`;
    const half = [(from[0] + to[0]) / 2, (from[1] + to[1]) / 2];
    label ??= upright ? { x: half[1], y: half[0] } : { x: half[0], y: half[1] };
  }
  return { path, ...label };
}

// Out at the tail's far side, along the outside of the graph, in at the head's near side: also when both are one box.
function wayBack(boxes, { from, to }, upright, lane) {
  const [a, b] = [boxes.get(from), boxes.get(to)];
  const r = 9;
  if (upright) {
    const [x1, y1, x2, y2] = [a.x + a.width - 18, a.y + a.height, b.x + b.width - 18, b.y];
    const path = `M${x1} ${y1}V${y1 + STUB - r}q0 ${r} ${r} ${r}H${lane - r}q${r} 0 ${r} ${-r}V${y2 - APPROACH + r}` +
      `q0 ${-r} ${-r} ${-r}H${x2 + r}q${-r} 0 ${-r} ${r}V${y2 - TIP}`;
    return { path, x: lane, y: (y1 + y2) / 2, turned: true };
  }
  const [x1, y1, x2, y2] = [a.x + a.width, a.y + a.height - 16, b.x, b.y + b.height - 16];
  const path = `M${x1} ${y1}H${x1 + STUB - r}q${r} 0 ${r} ${r}V${lane - r}q0 ${r} ${-r} ${r}H${x2 - APPROACH + r}` +
    `q${-r} 0 ${-r} ${-r}V${y2 + r}q0 ${-r} ${r} ${-r}H${x2 - TIP}`;
  return { path, x: (x1 + x2) / 2, y: lane };
}
