// The time line: who had what, as far as the board has seen it.
import { clock, draw, el, number, put, replace, short, span, who } from './words.js';

const mostLines = 16, lineHeight = 26, top = 6, axis = 24, listed = 50;

// lines chooses the locks of the time line, each with its holds: those that have changed last, then
// those that others wait for, then those that are held longest.
function lines(state, from, now) {
  const by = new Map();
  const line = (id, name) => {
    if (!by.has(id)) by.set(id, { id, name, holds: [], last: 0, waiting: 0, since: now });
    return by.get(id);
  };
  for (const h of state.past) {
    if (h.until < from) continue;
    const l = line(h.key, h.name);
    l.holds.push({ by: h.by, from: h.by.since || h.by.seen, until: h.until, about: h.about });
    l.last = Math.max(l.last, h.until);
  }
  const quiet = [];
  for (const r of state.rows.values()) {
    const known = by.has(r.id);
    const changed = r.holders.some((p) => p.seen > state.first && p.seen > from);
    if (!known && !changed) {
      if (r.held) quiet.push(r);
      continue;
    }
    current(line(r.id, r.name), r);
  }
  const chosen = [...by.values()].sort((a, b) => b.last - a.last || order(a.name, b.name));
  const count = chosen.length;
  chosen.splice(mostLines);
  const room = Math.min(mostLines - chosen.length, Math.max(8 - chosen.length, 0));
  if (room > 0) {
    quiet.sort((a, b) => b.waiting - a.waiting || begin(a) - begin(b) || order(a.name, b.name));
    for (const r of quiet.slice(0, room)) {
      const l = { id: r.id, name: r.name, holds: [], last: 0 };
      current(l, r);
      chosen.push(l);
    }
  }
  chosen.sort((a, b) => order(a.name, b.name));
  return { chosen, left: count - Math.min(count, mostLines) };
}

const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
const begin = (r) => (r.holders[0] ? r.holders[0].since || r.holders[0].seen : Infinity);

function current(line, r) {
  for (const p of r.holders) {
    line.holds.push({ by: p, from: p.since || p.seen, until: 0, open: !p.since });
    line.last = Math.max(line.last, p.seen);
  }
}

// hue gives a holder one of six colours.
function hue(p) {
  let sum = 0;
  for (const c of (p.who || '') + ' ' + (p.host || '') + (p.pid || '')) {
    sum = (sum * 31 + c.codePointAt(0)) % 9973;
  }
  return 'hue' + (sum % 6);
}

// steps are how far the marks of the axis may lie apart, in milliseconds.
const steps = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600].map((s) => s * 1000);

export class TimeLine {
  constructor(body, count, open) {
    this.body = body;
    this.count = count;
    this.open = open;
    this.list = el('details', { 'data-focus': 'past list' },
      el('summary', { 'data-focus': 'past summary' }, 'As a list'), el('ol', { class: 'log' }));
    this.box = el('div', { class: 'canvas' });
    body.append(this.box, this.list);
  }

  // show draws the state as it is now, for a window of so many milliseconds.
  show(state, now, window) {
    const from = now - window;
    const { chosen, left } = lines(state, from, now);
    const ended = state.past.length;
    put(this.count, (ended ? number(ended) + (ended === 1 ? ' hold has' : ' holds have') +
      ' ended since ' + clock(state.first) : 'watched since ' + clock(state.first)) +
      (left ? '; ' + number(left) + ' more locks have changed' : ''));
    this.tell(state);
    const width = Math.max(this.body.clientWidth, 280);
    const narrow = width < 560, label = narrow ? 92 : 170;
    const height = top + chosen.length * lineHeight + axis;
    const x = (at) => label + Math.max(0, Math.min(1, (at - from) / window)) * (width - label - 1);
    const art = draw('svg', { width, height, viewBox: '0 0 ' + width + ' ' + height, role: 'img',
      'aria-label': 'Time line of ' + chosen.length + ' locks from ' + clock(from) + ' to ' +
        clock(now) + '; the list below says the same' });
    art.append(draw('defs', {}, draw('pattern', { id: 'hatch', width: 6, height: 6,
      patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
      draw('line', { x1: 0, y1: 0, x2: 0, y2: 6, class: 'hatch' }))));
    this.axis(art, from, now, window, x, height, narrow);
    chosen.forEach((l, i) => this.line(art, l, top + i * lineHeight, x, now, width, label));
    const blind = state.blind.concat(state.trouble && state.good ?
      [{ from: state.good, until: now }] : []);
    for (const b of blind) {
      if (b.until < from) continue;
      art.append(draw('rect', { x: x(b.from), y: 0, width: Math.max(x(b.until) - x(b.from), 1),
        height: height - axis, fill: 'url(#hatch)' },
        draw('title', {}, 'Nothing was seen from ' + clock(b.from) + ' to ' + clock(b.until))));
    }
    replace(this.box, chosen.length ? art : el('p', { class: 'none' }, 'Nothing is held.'));
  }

  axis(art, from, now, window, x, height, narrow) {
    const step = steps.find((s) => window / s <= (narrow ? 4 : 8)) || steps[steps.length - 1];
    const zone = new Date(now).getTimezoneOffset() * 60000;
    for (let at = Math.ceil((from - zone) / step) * step + zone; at <= now; at += step) {
      art.append(draw('line', { x1: x(at), x2: x(at), y1: 0, y2: height - axis, class: 'grid' }));
      if (x(at) < 40 + x(from)) continue;
      art.append(draw('text', { x: x(at), y: height - 7, class: 'tick', 'text-anchor':
        now - at < step / 2 ? 'end' : 'middle' },
        step < 60000 ? clock(at) : clock(at).slice(0, 5)));
    }
  }

  line(art, l, y, x, now, width, label) {
    const most = Math.floor(label / 7.4);
    art.append(draw('line', { x1: 0, x2: width, y1: y + lineHeight - 1, y2: y + lineHeight - 1,
      class: 'rule' }));
    art.append(draw('text', { x: 0, y: y + 17, class: 'line-name' }, short(l.name, most),
      draw('title', {}, l.name)));
    for (const h of l.holds) {
      const begin = x(h.from), end = h.until ? x(h.until) : x(now);
      const wide = Math.max(end - begin, 3);
      const text = (h.by.who || 'pid ' + h.by.pid);
      const bar = draw('g', { class: 'hold ' + hue(h.by) + (h.until ? '' : ' now') },
        draw('title', {}, l.name + ': ' + who(h.by) + ', ' + (h.open ? 'at least ' : '') +
          span((h.until || now) - h.from) + (h.until ? ' until ' + (h.about ? 'about ' : '') +
          clock(h.until) : ' until now')),
        draw('rect', { x: begin, y: y + 3, width: wide, height: lineHeight - 7, rx: 4 }));
      const room = Math.floor((wide - 10) / 6.6);
      if (room >= 4) {
        bar.append(draw('text', { x: begin + 6, y: y + 17 }, short(text, room)));
      }
      bar.addEventListener('click', () => this.open(l.id));
      art.append(bar);
    }
  }

  // tell writes the list, if it is open, for those who cannot see the drawing.
  tell(state) {
    const last = state.past[state.past.length - 1];
    const mark = state.past.length + ' ' + (last ? last.until + last.key : '');
    if (!this.list.open || mark === this.told) return;
    this.told = mark;
    const items = state.past.slice(-listed).reverse().map((h) => el('li', {},
      el('time', {}, clock(h.until)), ' ', el('b', {}, h.name), ': ' + who(h.by) + ' had it for ' +
      span(h.until - (h.by.since || h.by.seen)) + (h.by.since ? '' : ' or longer')));
    this.list.querySelector('ol').replaceChildren(...(items.length ? items :
      [el('li', {}, 'No hold has ended yet.')]));
  }
}
