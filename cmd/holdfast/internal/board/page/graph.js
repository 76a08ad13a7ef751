// The wait-for graph: an arrow goes from a waiter to a holder, and has the name of the lock.
import { draw, el, many, number, put, replace, short, who } from './words.js';

const wide = 162, high = 46, across = 118, down = 20, apart = 64, bow = 46, edge = 14;

// Graph draws into a body, and says above it how many wait.
export class Graph {
  constructor(body, count, open) {
    this.body = body;
    this.count = count;
    this.open = open;
  }

  // show draws who waits, if that has changed.
  show(waits) {
    const mark = JSON.stringify(waits);
    if (mark === this.mark) return;
    this.mark = mark;
    const all = waits.waits.length;
    put(this.count, all === 0 ? '' : many(all + (waits.hidden || 0), 'lock is', 'locks are') +
      ' waited for' + (waits.hidden ? '; ' + number(all) + ' are drawn' : '') +
      (waits.partly ? '; not all were searched for deadlocks' : ''));
    if (all === 0 && waits.cycles.length === 0) {
      replace(this.body, el('p', { class: 'none' }, 'Nobody waits.'));
      return;
    }
    const parts = build(waits).map((part) => el('div', { class: 'canvas part' }, paint(part,
      this.open)));
    replace(this.body, waits.cycles.map((c) => el('p', { class: 'deadlock' },
      el('b', {}, 'Possible deadlock'), el('span', { class: 'lines' },
        c.text.split('\n').slice(1).join('\n').trimEnd()))),
    el('div', { class: 'parts' }, parts),
    el('details', { 'data-focus': 'stuck list' },
      el('summary', { 'data-focus': 'stuck summary' }, 'As a list'), this.list(waits)));
  }

  list(waits) {
    const known = new Map(waits.processes.map((p) => [p.id, p]));
    const names = (ids) => ids.map((id) => who(known.get(id))).join('; ');
    return el('ul', { class: 'log' }, waits.waits.map((w) => el('li', {}, el('b', {}, w.name),
      ' is held by ' + (w.to.length ? names(w.to) : 'nobody') + ', and waited for by ' +
      [names(w.from), w.more ? number(w.more) + ' more' : ''].filter(Boolean).join('; '))));
  }
}

// build makes nodes and arrows of the locks, in connected parts.
function build(waits) {
  const nodes = new Map(), arrows = new Map();
  for (const p of waits.processes) {
    nodes.set(p.id, { id: p.id, title: who(p), head: p.who || 'pid ' + p.pid,
      foot: p.pid ? (p.who ? 'pid ' + p.pid + ' on ' : 'on ') + p.host : 'another library',
      level: -1, red: false });
  }
  const arrow = (from, to, key, name, red) => {
    if (from === to || !nodes.has(from) || !nodes.has(to)) return;
    const id = from + '\n' + to;
    if (!arrows.has(id)) arrows.set(id, { from, to, keys: new Map(), red: false });
    const a = arrows.get(id);
    a.keys.set(key, name);
    a.red = a.red || red;
  };
  const rings = [];
  for (const c of waits.cycles) {
    rings.push(c.steps.map((s) => s.from));
    for (const s of c.steps) {
      arrow(s.from, s.to, s.key || '', s.key ? s.name : 'waits for its end', true);
      nodes.get(s.from).red = true;
    }
  }
  for (const w of waits.waits) {
    const from = [...w.from], to = [...w.to];
    if (w.more) {
      from.push('more ' + w.key);
      nodes.set('more ' + w.key, { id: 'more ' + w.key, head: number(w.more) + ' more',
        foot: 'wait for it', title: number(w.more) + ' more wait for ' + w.name, level: -1,
        pale: true });
    }
    if (to.length === 0) {
      to.push('free ' + w.key);
      nodes.set('free ' + w.key, { id: 'free ' + w.key, head: 'nobody', foot: 'holds it',
        title: 'Nobody holds ' + w.name, level: -1, pale: true });
    }
    for (const f of from) for (const t of to) arrow(f, t, w.key, w.name, false);
  }
  return split(nodes, [...arrows.values()]).map((part) => level(part, rings));
}

// split returns the connected parts of the graph, those with red nodes first.
function split(nodes, arrows) {
  const root = new Map([...nodes.keys()].map((id) => [id, id]));
  const find = (id) => {
    while (root.get(id) !== id) {
      root.set(id, root.get(root.get(id)));
      id = root.get(id);
    }
    return id;
  };
  for (const a of arrows) root.set(find(a.from), find(a.to));
  const parts = new Map();
  for (const n of nodes.values()) {
    const id = find(n.id);
    if (!parts.has(id)) parts.set(id, { nodes: [], arrows: [] });
    parts.get(id).nodes.push(n);
  }
  for (const a of arrows) parts.get(find(a.from)).arrows.push(a);
  const reds = (p) => p.nodes.filter((n) => n.red).length;
  return [...parts.values()].filter((p) => p.arrows.length > 0)
    .sort((a, b) => reds(b) - reds(a) || b.nodes.length - a.nodes.length);
}

// level puts those who wait for nobody, and deadlocks, at the right, and the others by their distance
// from there.
function level(part, rings) {
  const by = new Map(part.nodes.map((n) => [n.id, n]));
  const waits = new Set(part.arrows.map((a) => a.from));
  let next = [];
  for (const ring of rings) {
    for (const id of ring) {
      const n = by.get(id);
      if (n && n.level < 0) {
        n.level = 0;
        next.push(n);
      }
    }
  }
  for (const n of part.nodes) {
    if (n.level < 0 && !waits.has(n.id)) {
      n.level = 0;
      next.push(n);
    }
  }
  if (next.length === 0) {
    part.nodes[0].level = 0;
    next.push(part.nodes[0]);
  }
  const columns = [];
  for (let at = 0; next.length > 0; at++) {
    columns.push(next);
    const ids = new Set(next.map((n) => n.id));
    next = [];
    for (const a of part.arrows) {
      const n = by.get(a.from);
      if (ids.has(a.to) && n.level < 0) {
        n.level = at + 1;
        next.push(n);
      }
    }
  }
  place(columns);
  return part;
}

// place gives each node its place.
function place(columns) {
  const stacked = columns[0].some((n) => n.red);
  const gaps = columns.map((_, i) => (i === 0 && stacked ? apart : down));
  const heights = columns.map((c, i) => c.length * high + (c.length - 1) * gaps[i]);
  const height = Math.max(...heights);
  columns.forEach((column, i) => {
    column.forEach((n, k) => {
      n.x = edge + (columns.length - 1 - i) * (wide + across);
      n.y = edge + (height - heights[i]) / 2 + k * (high + gaps[i]);
    });
  });
}

// paint draws a part.
function paint(part, open) {
  const by = new Map(part.nodes.map((n) => [n.id, n]));
  const bows = part.arrows.some((a) => by.get(a.from).x === by.get(a.to).x);
  const width = Math.max(...part.nodes.map((n) => n.x)) + wide + edge + (bows ? bow + 84 : 0);
  const height = Math.max(...part.nodes.map((n) => n.y)) + high + edge;
  const names = part.arrows.filter((a) => a.red).length;
  const art = draw('svg', { width, height, viewBox: '0 0 ' + width + ' ' + height, role: 'img',
    'aria-label': 'Graph of ' + many(part.nodes.length, 'process', 'processes') + (names ?
      ', with a deadlock' : '') + '; the list below says the same' });
  art.style.minWidth = Math.min(width, 340) + 'px'; // below that it is scrolled
  art.append(draw('defs', {}, tip('tip', ''), tip('tip-red', 'red')));
  const labels = [];
  for (const a of part.arrows) {
    const { path, x, y, anchor } = route(by.get(a.from), by.get(a.to), part.nodes);
    const text = [...a.keys.values()].join(', ');
    art.append(draw('path', { d: path, class: 'arrow' + (a.red ? ' red' : ''),
      'marker-end': a.red ? 'url(#tip-red)' : 'url(#tip)' }));
    const label = draw('text', { x, y, class: 'arrow-name' + (a.red ? ' red' : ''),
      'text-anchor': anchor }, short(text, 17), draw('title', {}, text));
    const key = [...a.keys.keys()][0];
    if (key) label.addEventListener('click', () => open(key));
    labels.push(label);
  }
  for (const n of part.nodes) {
    art.append(draw('g', { class: 'box' + (n.red ? ' red' : '') + (n.pale ? ' pale' : '') },
      draw('title', {}, n.title),
      draw('rect', { x: n.x, y: n.y, width: wide, height: high, rx: 8 }),
      draw('text', { x: n.x + 12, y: n.y + 20, class: 'head' }, short(n.head, 19)),
      draw('text', { x: n.x + 12, y: n.y + 36, class: 'foot' }, short(n.foot, 23))));
  }
  art.append(...labels); // above the boxes
  return art;
}

function tip(id, kind) {
  return draw('marker', { id, viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 8,
    markerHeight: 8, orient: 'auto-start-reverse' },
  draw('path', { d: 'M0 .6 8 4 0 7.4z', class: 'tip ' + kind }));
}

// route returns how an arrow goes, and where its name is.
function route(a, b, nodes) {
  if (a.x !== b.x) {
    const x1 = a.x > b.x ? a.x : a.x + wide, x2 = a.x > b.x ? b.x + wide : b.x;
    const y1 = a.y + high / 2, y2 = b.y + high / 2, half = (x2 - x1) / 2;
    return { path: 'M' + x1 + ' ' + y1 + 'C' + (x1 + half) + ' ' + y1 + ' ' + (x2 - half) + ' ' +
      y2 + ' ' + (x2 - 1) + ' ' + y2, x: x1 + half * 0.7, y: y1 * 0.86 + y2 * 0.14 - 5,
    anchor: 'middle' };
  }
  const between = nodes.some((n) => n.x === a.x && (n.y - a.y) * (n.y - b.y) < 0);
  if (b.y > a.y && !between) {
    const x = a.x + wide / 2;
    return { path: 'M' + x + ' ' + (a.y + high) + 'L' + x + ' ' + (b.y - 1), x: x + 10,
      y: (a.y + high + b.y) / 2 + 4, anchor: 'start' };
  }
  const x = a.x + wide, y1 = a.y + high / 2, y2 = b.y + high / 2;
  return { path: 'M' + x + ' ' + y1 + 'C' + (x + bow * 1.34) + ' ' + y1 + ' ' + (x + bow * 1.34) +
    ' ' + y2 + ' ' + (x + 1) + ' ' + y2, x: x + bow + 6, y: (y1 + y2) / 2 + 4, anchor: 'start' };
}
