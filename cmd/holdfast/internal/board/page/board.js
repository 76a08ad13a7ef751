// The page: it follows the events of the board, and shows what they say.
import { clock, el, many, number, put, replace, span, who } from './words.js';
import { TimeLine } from './history.js';
import { Graph } from './graph.js';

const $ = (id) => document.getElementById(id);
const perPage = 100, silence = 16000, retry = 1500;

const state = { rows: new Map(), past: [], blind: [], nodes: [], findings: [], first: 0, good: 0,
  waits: { waits: [], cycles: [], processes: [] } };
let about = null, offset = 0, asking = 0, heard = 0, link = 'connecting', source = null;
let reason = ''; // why there is no room for this page
let sort = { by: 'name', down: false }, page = 0, shown = [], opened = '', freeing = null;

const now = () => Date.now() + offset; // by the clock of the board

// ---- Events

function connect() {
  disconnect();
  source = new EventSource('/events');
  heard = Date.now();
  source.addEventListener('state', (e) => take(JSON.parse(e.data)));
  source.addEventListener('beat', (e) => {
    const beat = JSON.parse(e.data);
    hear(beat.now);
    asking = beat.asking;
  });
  source.onerror = lose;
}

function disconnect() {
  if (source) source.close();
  source = null;
}

function hear(at) {
  heard = Date.now();
  offset = at - heard;
  if (link !== 'live') {
    if (link === 'lost') say('The board is there again.');
    link = 'live';
  }
}

// lose connects again, and finds out whether the connection ended because the token is missing.
function lose() {
  disconnect();
  if (link === 'live') say('The connection to the board is lost.');
  if (link !== 'token') link = link === 'connecting' ? 'connecting' : 'lost';
  tick();
  setTimeout(begin, retry);
}

async function begin() {
  try {
    const answer = await fetch('/session', { cache: 'no-store' });
    if (answer.status === 401) return ask();
    if (answer.ok) {
      $('login').hidden = true;
      return connect();
    }
    if (answer.status === 503) return full(await answer.text());
  } catch {
    // The board is not there; tick says so.
  }
  if (link !== 'connecting') link = 'lost';
  else if (about === null) put($('live-text'), 'No answer from the board; trying again');
  setTimeout(begin, retry);
}

// full says that too many pages watch, and asks again: one of them may be closed.
function full(why) {
  $('login').hidden = true;
  reason = why.trim();
  link = 'full';
  tick();
  setTimeout(begin, retry);
}

function take(m) {
  const before = { trouble: state.trouble, cycles: state.waits.cycles.length };
  if (m.full) {
    state.rows = new Map();
    state.past = [];
    about = m;
    put($('where'), m.title + (m.begins ? '  ' + m.begins + '…' : ''));
    document.title = 'Holdfast: ' + m.title;
    $('board').hidden = false;
  }
  for (const r of m.rows) state.rows.set(r.id, r);
  for (const id of m.gone) state.rows.delete(id);
  for (const r of m.rows) r.text = null;
  state.past = state.past.concat(m.ended).slice(-1000);
  for (const name of ['first', 'good', 'trouble', 'more', 'blind', 'waits', 'nodes', 'need',
    'findings', 'checked', 'checks', 'check_trouble']) state[name] = m[name];
  asking = 0;
  hear(m.now);
  const cycles = state.waits.cycles.length;
  if (cycles > before.cycles) say(many(cycles, 'possible deadlock') + ' found.');
  if (state.trouble && !before.trouble) say('The locks cannot be seen: ' + state.trouble);
  if (!state.trouble && before.trouble) say('The locks can be seen again.');
  render();
  if (opened) refresh();
}

function say(text) { put($('say'), text); }

// ---- The token

function ask() {
  link = 'token';
  $('board').hidden = true;
  $('login').hidden = false;
  $('token').focus();
  tick();
}

async function login(token) {
  put($('login-trouble'), '');
  try {
    const answer = await send('/login', { token });
    if (!answer.ok) {
      put($('login-trouble'), 'That is not the token of this board.');
      return ask();
    }
    $('login').hidden = true;
    link = 'connecting';
    connect();
  } catch {
    put($('login-trouble'), 'The board does not answer.');
    ask();
  }
}

function send(path, body) {
  return fetch(path, { method: 'POST', body: JSON.stringify(body), credentials: 'same-origin',
    headers: { 'Content-Type': 'application/json', 'Holdfast-Board': '1' } });
}

// fromAddress takes the token out of the address, and reports whether there is one.
function fromAddress() {
  if (!location.hash.startsWith('#token=')) return false;
  const token = decodeURIComponent(location.hash.slice('#token='.length));
  history.replaceState(null, '', location.pathname);
  login(token);
  return true;
}

// ---- The table

const first = (r) => r.holders[0] || {};
const last = (r) => r.holders[r.holders.length - 1] || {};
const since = (r) => (r.held === 1 ? first(r).since || first(r).seen : 0);
const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

// Each column has its title and its order. A lock without a value in it comes last.
const columns = [
  { id: 'name', title: 'Name', of: (r) => r.name },
  { id: 'holder', title: 'Holder', of: (r) => holderText(r) },
  { id: 'host', title: 'Host', of: (r) => first(r).host || '\uffff' },
  { id: 'for', title: 'Held for', number: true, of: (r) => since(r) || Infinity },
  { id: 'lease', title: 'Lease', number: true, of: (r) => last(r).ends || Infinity },
  { id: 'waiting', title: 'Waiting', number: true, of: (r) => -r.waiting },
];

function holderText(r) {
  if (r.held === 0) return 'nobody';
  if (r.held > 1) return r.held + ' share it';
  return (first(r).who || '–') + (r.shared ? ' (shares)' : '');
}

function matches(r, words, stuck) {
  if (r.text === null) {
    r.text = [r.name, ...r.holders.map((p) => who(p)), holderText(r), r.leaks || '']
      .join(' ').toLowerCase();
  }
  return words.every((w) => (w === 'is:waiting' ? r.waiting > 0 : w === 'is:left' ? r.leaks :
    w === 'is:stuck' ? stuck.has(r.id) : r.text.includes(w)));
}

// stuckKeys are the locks in a deadlock.
function stuckKeys() {
  return new Set(state.waits.cycles.flatMap((c) => c.steps.map((s) => s.key)));
}

function heads() {
  $('heads').replaceChildren(...columns.map((c) => el('th', { role: 'columnheader', scope: 'col',
    class: c.number ? 'number' : null, 'data-column': c.id,
    'aria-sort': sort.by === c.id ? (sort.down ? 'descending' : 'ascending') : 'none' },
  el('button', { type: 'button', 'data-focus': 'head ' + c.id, click: () => sortBy(c.id) },
    c.title, el('span', { class: 'arrow-up', 'aria-hidden': 'true' },
      sort.by === c.id ? (sort.down ? '↓' : '↑') : '')))));
}

function sortBy(id) {
  sort = { by: id, down: sort.by === id && !sort.down };
  page = 0;
  heads();
  arrange();
  const head = document.querySelector('[data-focus="head ' + id + '"]');
  if (head) head.focus();
}

// arrange finds the rows of this page of the table, in their order, and shows them.
function arrange() {
  const words = $('find').value.toLowerCase().split(/\s+/).filter(Boolean);
  const stuck = stuckKeys(), of = columns.find((c) => c.id === sort.by).of;
  shown = [];
  for (const r of state.rows.values()) {
    if (matches(r, words, stuck)) shown.push({ r, by: of(r) });
  }
  const sign = sort.down ? -1 : 1;
  shown.sort((a, b) => sign * compare(a.by, b.by) || compare(a.r.name, b.r.name) ||
    compare(a.r.id, b.r.id));
  page = Math.max(0, Math.min(page, Math.ceil(shown.length / perPage) - 1));
  const from = page * perPage, rows = shown.slice(from, from + perPage);
  show(rows.map((s) => s.r), stuck);
  const all = state.rows.size;
  put($('count'), words.length ? number(shown.length) + ' of ' + many(all, 'lock') :
    (state.more ? 'the first ' : '') + many(all, 'lock') + (state.more ? ', and there are more' :
    ''));
  $('pager').hidden = shown.length <= perPage;
  put($('place'), number(from + 1) + '–' + number(from + rows.length) + ' of ' +
    number(shown.length));
  $('before').disabled = page === 0;
  $('after').disabled = from + perPage >= shown.length;
  $('none').hidden = shown.length > 0;
  put($('none'), words.length ? 'No lock matches.' : state.good ? 'No lock is held.' : 'Looking.');
  $('table').hidden = shown.length === 0;
}

const lines = new Map(); // the rows that are in the document, by key

function show(rows, stuck) {
  const body = $('rows'), wanted = new Set(rows.map((r) => r.id));
  const had = body.contains(document.activeElement) ? document.activeElement : null;
  const place = had ? [...body.children].indexOf(had.closest('tr')) : 0;
  for (const [id, line] of lines) {
    if (!wanted.has(id)) {
      line.row.remove();
      lines.delete(id);
    }
  }
  let at = body.firstChild;
  for (const r of rows) {
    let line = lines.get(r.id);
    if (!line) {
      line = newLine(r.id);
      lines.set(r.id, line);
    }
    write(line, r, stuck.has(r.id));
    if (line.row === at) at = at.nextSibling;
    else body.insertBefore(line.row, at);
  }
  if (had && !had.isConnected) focusRow(Math.min(place, rows.length - 1));
  else if (had && had !== document.activeElement) had.focus({ preventScroll: true });
}

function newLine(id) {
  const name = el('button', { type: 'button', class: 'name', click: () => open(id) });
  const cell = (c, ...content) => el('td', { role: 'cell', 'data-column': c.id,
    'data-title': c.title, class: c.number ? 'number' : null }, content);
  const marks = el('span', { class: 'marks' });
  const cells = columns.map((c) => (c.id === 'name' ? cell(c, name, marks) : cell(c)));
  return { row: el('tr', { role: 'row' }, cells), name, marks, cells };
}

// write shows a row. A row object never changes, so it is written once.
const leaks = {
  'no-expiry': 'no end', 'process-gone': 'process gone', 'waiter-gone': 'dead waiter',
};

function write(line, r, stuck) {
  const mark = stuck + ' ' + (r.id === opened);
  if (line.r === r && line.mark === mark) return;
  line.r = r;
  line.mark = mark;
  put(line.name, r.name);
  const marks = [];
  if (stuck) marks.push(el('span', { class: 'mark bad' }, 'deadlock'));
  for (const l of r.leaks || []) {
    marks.push(el('span', { class: 'mark warn' }, leaks[l] || l));
  }
  line.marks.replaceChildren(...marks);
  line.row.classList.toggle('open', r.id === opened);
  line.name.setAttribute('aria-expanded', r.id === opened);
  const p = first(r), one = r.held === 1;
  const [, holder, host, held, lease, waiting] = line.cells;
  put(holder, holderText(r));
  holder.classList.toggle('quiet', r.held === 0 || one && !p.who);
  host.replaceChildren(...(one && p.pid ? [p.host, el('span', { class: 'pid' }, ' ' + p.pid)] :
    ['–']));
  held.replaceChildren(one ? ticking('since', since(r), !p.since) : '–');
  lease.replaceChildren(last(r).ends ? ticking('ends', last(r).ends) : '–');
  put(waiting, r.waiting ? number(r.waiting) : '0');
  waiting.classList.toggle('some', r.waiting > 0);
}

// ticking is a span of time that goes on by itself.
function ticking(kind, at, least) {
  const node = el('span', { ['data-' + kind]: at, 'data-least': least });
  put(node, kind === 'since' ? age(node, now()) : left(at));
  return node;
}

// age says how long ago something began, or at least, if only the first sight of it is known.
function age(node, at) {
  return ('least' in node.dataset ? '≥ ' : '') + span(at - Number(node.dataset.since));
}

function left(at) { return at - now() > -1000 ? span(at - now()) : 'over'; }

// ---- One lock

function open(id) {
  const was = opened;
  opened = id;
  arrange();
  $('detail').hidden = id === '';
  document.body.classList.toggle('with-detail', id !== '');
  if (id === '') {
    const line = lines.get(was);
    (line ? line.name : $('locks')).focus();
    return;
  }
  const r = state.rows.get(id);
  put($('detail-head'), r ? r.name : 'Lock');
  if (was !== id) {
    refresh.mark = null;
    replace($('detail-body'), el('p', { class: 'none' }, 'Looking.'));
  }
  $('detail-head').focus();
  refresh();
}

// refresh asks for all that is known of the lock, one question at a time.
async function refresh() {
  if (refresh.busy) {
    refresh.again = true;
    return;
  }
  refresh.busy = true;
  const id = opened;
  try {
    const answer = await fetch('/lock?id=' + encodeURIComponent(id), { cache: 'no-store' });
    if (answer.ok) {
      const d = await answer.json();
      if (id === opened) describe(d);
    } else if (answer.status === 401) ask();
  } catch {
    // The board is not there; tick says so.
  }
  refresh.busy = false;
  if (refresh.again || id !== opened) {
    refresh.again = false;
    if (opened) setTimeout(refresh, id === opened ? 1000 : 0);
  }
}

const kinds = {
  permit: 'A permit: one slot of a semaphore, which is full when all are held.',
  gate: 'A gate of a semaphore: whoever has it is next to get a permit.',
  scout: 'Tells those who wait for permits whether others know another number of them.',
};

function describe(d) {
  // The times in it count on by themselves, without new nodes.
  const mark = JSON.stringify(d, (k, v) => (['now', 'ends', 'seen', 'is'].includes(k) ? 0 : v));
  for (const p of [...d.holders, ...d.waiters]) {
    for (const node of document.querySelectorAll('[data-of="' + p.id + '"]')) {
      node.dataset.ends = p.ends;
    }
  }
  refresh.latest = d;
  if (mark === refresh.mark) return;
  refresh.mark = mark;
  put($('detail-head'), d.name);
  const had = $('detail-body').contains(document.activeElement);
  replace($('detail-body'),
    d.trouble ? el('p', { class: 'bad' }, d.trouble) : null,
    kinds[d.kind] ? el('p', { class: 'quiet' }, kinds[d.kind]) : null,
    el('dl', {}, el('dt', {}, 'Key'), el('dd', { class: 'code' }, d.key)),
    el('h3', {}, d.unknown ? 'Who holds it is not known' : d.held === 0 ? 'Nobody holds it' :
      d.shared ? 'Shared by ' + number(d.held) : 'Held by'),
    d.holders.map((h) => holder(d, h)),
    d.held > d.holders.length ? el('p', { class: 'quiet' }, 'and ' +
      number(d.held - d.holders.length) + ' more') : null,
    el('h3', {}, d.waiting ? number(d.waiting) + ' waiting' : 'Nobody waits'),
    el('ol', { class: 'waiters' }, d.waiters.map((w) => el('li', {}, who(w), life(w)))),
    d.waiting > d.waiters.length ? el('p', { class: 'quiet' }, 'and ' +
      number(d.waiting - d.waiters.length) + ' more') : null,
    d.nodes.length ? [el('h3', {}, 'What each server says'),
      el('ul', { class: 'servers' }, d.nodes.map((n) => says(d, n)))] : null);
  if (had) keepFocus();
}

// keepFocus puts the focus on the lock when the button that had it is gone.
function keepFocus() {
  if (document.activeElement === document.body && opened) $('detail-head').focus();
}

function life(p) {
  if (p.life === 'gone') return el('span', { class: 'mark warn' }, 'process gone');
  return p.life === 'lives' ? el('span', { class: 'mark good' }, 'lives') : '';
}

function holder(d, h) {
  const seen = state.rows.get(d.id), known = seen && seen.holders.find((p) => p.id === h.id);
  const begin = h.since || (known ? known.seen : h.seen);
  return el('div', { class: 'holder' },
    el('p', { class: 'who' }, h.foreign ? h.who : h.who || 'without a label', life(h)),
    el('dl', {},
      h.pid ? [el('dt', {}, 'Process'), el('dd', {}, h.pid + ' on ' + h.host)] : null,
      el('dt', {}, 'Held for'), el('dd', {}, ticking('since', begin, !h.since),
        h.since ? ', since ' + clock(h.since) : ', as far as it was seen'),
      el('dt', {}, 'Lease'), el('dd', {}, h.ends ? leaseOf(h) : 'no end is known'),
      h.token ? [el('dt', {}, 'Token'), el('dd', { class: 'code' }, h.token)] : null),
    about.release ? el('button', { type: 'button', class: 'danger', 'data-focus': 'free ' + h.id,
      click: () => propose(d.id, h.id) }, 'Free this lock…') : null);
}

function leaseOf(h) {
  const node = ticking('ends', h.ends);
  node.dataset.of = h.id;
  return [node, h.foreign ? '' : ' left, unless renewed'];
}

function says(d, n) {
  const text = n.trouble ? 'does not answer: ' + n.trouble : n.holders.length === 0 ?
    (n.differs ? 'is behind: knows no holder' : 'knows no holder') :
    (n.differs ? 'differs: granted it to ' : 'granted it to ') + n.holders.join('; ');
  return el('li', { 'data-tone': n.trouble ? 'bad' : n.differs ? 'warn' : 'good' },
    el('span', { class: 'dot' }), el('b', {}, n.name), ' ' + text + (n.waiting ?
      '; ' + number(n.waiting) + ' waiting' : ''));
}

// ---- Freeing

function propose(id, owner) {
  const h = refresh.latest && refresh.latest.id === id &&
    refresh.latest.holders.find((p) => p.id === owner);
  if (!h) return;
  freeing = { id, holder: owner, token: h.token || '' };
  put($('free-is'), h.is + '.');
  put($('free-will'), sentence(h.will));
  $('free').showModal();
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + '.';

async function release() {
  const body = freeing;
  freeing = null;
  $('free').close();
  if (!body) return;
  let text = 'The board has not answered; look whether the lock is free.', good = false;
  try {
    const answer = await send('/release', body);
    good = answer.ok;
    text = (await answer.text()).trim();
    if (answer.headers.get('Content-Type') === 'application/json') text = JSON.parse(text).text;
  } catch {
    // The text says so.
  }
  put($('said'), text);
  $('said').dataset.tone = good ? 'good' : 'bad';
  $('said').hidden = false;
  clearTimeout(release.timer);
  release.timer = setTimeout(() => { $('said').hidden = true; }, 20000);
  refresh();
}

// ---- The rest

const timeline = new TimeLine($('past-body'), $('past-count'), open);
const graph = new Graph($('stuck-body'), $('stuck-count'), open);

function totals() {
  const tiles = [];
  let waiting = 0, gone = 0, oldest = Infinity, oldestRow = null;
  for (const r of state.rows.values()) {
    waiting += r.waiting;
    if (r.leaks) gone++;
    const at = since(r);
    if (at && at < oldest) {
      oldest = at;
      oldestRow = r;
    }
  }
  const marks = [];
  const tile = (title, value, tone, act) => {
    marks.push(title, value instanceof Node ? oldest : value, tone);
    tiles.push(el('button', { type: 'button', class: 'tile', 'data-tone': tone,
      'data-focus': 'tile ' + title, click: act },
    el('span', { class: 'value' }, value), el('span', { class: 'title' }, title)));
  };
  const find = (words) => () => {
    $('find').value = words;
    found();
    $('locks').scrollIntoView({ block: 'start' });
  };
  const go = (id) => () => {
    $(id).scrollIntoView({ block: 'start' });
    $(id).focus({ preventScroll: true });
  };
  const up = state.nodes.filter((n) => n.state === 'up').length;
  const cycles = state.waits.cycles.length, grave = state.findings.filter((f) =>
    f.severity !== 'note');
  const worst = grave.some((f) => f.severity === 'failure') ? 'bad' : 'warn';
  tile('Locks', number(state.rows.size) + (state.more ? '+' : ''), 'quiet', find(''));
  tile('Waiting', number(waiting), 'quiet', find('is:waiting'));
  tile('Held longest', oldestRow ? ticking('since', oldest, !first(oldestRow).since) :
    '–', 'quiet', () => {
    if (oldestRow) open(oldestRow.id);
  });
  tile('Left behind', number(gone), gone ? 'warn' : 'good', find('is:left'));
  tile('Deadlocks', number(cycles), cycles ? 'bad' : 'good', go('stuck'));
  if (state.nodes.length) {
    tile('Servers up', up + ' of ' + state.nodes.length, up === state.nodes.length ? 'good' :
      up < state.need ? 'bad' : 'warn', go('nodes'));
  }
  if (state.checks) {
    tile('Findings', number(grave.length), grave.length ? worst : state.checked ? 'good' :
      'quiet', go('found'));
  }
  const mark = marks.join('\n');
  if (mark === totals.mark) return;
  totals.mark = mark;
  replace($('totals'), tiles);
}

const tones = { up: 'good', down: 'bad', refusing: 'bad', duplicate: 'bad', quarantined: 'warn' };

function nodes() {
  $('nodes').hidden = state.nodes.length === 0;
  if (state.nodes.length === 0) return;
  const mark = JSON.stringify([state.nodes, state.need]);
  if (mark === nodes.mark) return;
  nodes.mark = mark;
  const up = state.nodes.filter((n) => n.state === 'up').length;
  put($('nodes-count'), up + ' of ' + state.nodes.length + ' are up; ' + state.need +
    ' make a majority');
  replace($('nodes-body'), el('ul', { class: 'servers' }, state.nodes.map((n) => el('li',
    { 'data-tone': tones[n.state] || 'quiet' }, el('span', { class: 'dot' }), el('b', {}, n.name),
    ' ' + n.state + (n.version ? ', version ' + n.version : '') + (n.quarantine ?
      ', takes part again in ' + span(n.quarantine) : ''),
    n.trouble ? el('span', { class: 'cause' }, n.trouble) : ''))));
}

function findings() {
  $('found').hidden = !state.checks;
  const mark = JSON.stringify([state.findings, state.checked, state.check_trouble]);
  if (!state.checks || mark === findings.mark) return;
  findings.mark = mark;
  put($('found-count'), state.checked ? 'examined at ' + clock(state.checked) : '');
  replace($('found-body'),
    state.check_trouble ? el('p', { class: 'bad' }, 'The servers could not be examined: ' +
      state.check_trouble) : null,
    state.findings.length === 0 && !state.check_trouble ? el('p', { class: 'none' },
      state.checked ? 'Nothing found.' : 'Examining.') : null,
    el('ul', { class: 'findings' }, state.findings.map((f) => el('li', {
      'data-tone': f.severity === 'failure' ? 'bad' : f.severity === 'warning' ? 'warn' : 'quiet' },
    el('p', {}, el('span', { class: 'mark' }, f.severity), f.node ? el('b', {}, f.node) : '',
      ' ' + f.summary), el('p', { class: 'quiet' }, f.advice, ' ',
      el('code', {}, f.code))))));
}

function render() {
  arrange();
  totals();
  graph.show(state.waits);
  nodes();
  findings();
  tick();
}

// tick updates the ages and times on the page.
function tick() {
  const at = now();
  for (const node of document.querySelectorAll('[data-since]')) {
    put(node, age(node, at));
  }
  for (const node of document.querySelectorAll('[data-ends]')) {
    put(node, left(Number(node.dataset.ends)));
  }
  if (source && link === 'live' && Date.now() - heard > silence) lose();
  const asOf = state.good ? 'as it was ' + span(at - state.good) + ' ago' : 'nothing was seen yet';
  const slow = asking && at - asking > 4000 + (about ? about.every : 0);
  let text = 'Live', tone = 'good', alarm = '';
  if (link === 'token') [text, tone] = ['Waiting for the token', 'warn'];
  else if (link === 'connecting') [text, tone] = [$('live-text').textContent, 'quiet'];
  else if (link === 'full') {
    [text, tone] = ['Not connected, ' + asOf, 'bad'];
    alarm = 'The board has no room for this page: ' + reason + '. This page tries again.';
  } else if (link === 'lost') {
    [text, tone] = ['Not connected, ' + asOf, 'bad'];
    alarm = 'The board does not answer. This page tries again, and shows what it saw last.';
  } else if (state.trouble) {
    [text, tone] = ['Not live, ' + asOf, 'bad'];
    alarm = 'The locks cannot be seen: ' + state.trouble;
  } else if (slow) {
    [text, tone] = ['Asking for ' + span(at - asking) + ', ' + asOf, 'warn'];
  } else if (!state.good) [text, tone] = ['Looking', 'quiet'];
  put($('live-text'), text);
  $('live').dataset.tone = tone;
  put($('alarm'), alarm);
  $('alarm').hidden = alarm === '';
  document.body.classList.toggle('stale', tone === 'bad');
  if (state.good && !$('past-body').matches(':hover')) {
    timeline.show(state, at, Number($('window').value));
  }
}

// ---- The keyboard, and the rest of the page

document.addEventListener('keydown', (e) => {
  const typing = e.target.matches('input, select, textarea');
  if (e.key === '/' && !typing && !e.ctrlKey && !e.metaKey && !e.altKey && !$('free').open) {
    e.preventDefault();
    $('find').focus();
    $('find').select();
  } else if (e.key === 'Escape' && !$('free').open) {
    if (e.target === $('find') && $('find').value) {
      $('find').value = '';
      found();
    } else if (opened) open('');
  } else if (e.key === 'ArrowDown' && e.target === $('find')) {
    e.preventDefault();
    focusRow(0);
  }
});

$('rows').addEventListener('keydown', (e) => {
  const row = e.target.closest('tr'), all = [...$('rows').children], at = all.indexOf(row);
  const moves = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 };
  if (!(e.key in moves)) return;
  e.preventDefault();
  const to = moves[e.key];
  if (to < 0 || to >= all.length) {
    const next = page + (to < 0 ? -1 : 1);
    if (next < 0 || next * perPage >= shown.length) return;
    page = next;
    arrange();
    focusRow(to < 0 ? perPage - 1 : 0);
  } else focusRow(to);
});

function focusRow(i) {
  const row = $('rows').children[i];
  if (row) row.querySelector('button').focus();
}

// found shows what the search finds, and says how much when the typing is over.
function found() {
  page = 0;
  arrange();
  clearTimeout(found.timer);
  found.timer = setTimeout(() => say($('count').textContent), 500);
}

const turn = (by) => () => {
  page += by;
  arrange();
  // A button that is disabled loses the focus, so the other one gets it.
  if ($('after').disabled) $('before').focus({ preventScroll: true });
  if ($('before').disabled) $('after').focus({ preventScroll: true });
  $('locks').scrollIntoView({ block: 'start' });
};

const themes = ['auto', 'light', 'dark'];

function theme(name) {
  put($('theme'), 'Theme: ' + name);
  document.documentElement.dataset.theme = name;
}

function stored() {
  try {
    return localStorage.getItem('theme') || 'auto';
  } catch {
    return 'auto';
  }
}

$('theme').addEventListener('click', () => {
  const next = themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % 3];
  theme(next);
  try {
    localStorage.setItem('theme', next);
  } catch {
    // The setting is for this visit only.
  }
});
$('find').addEventListener('input', found);
$('before').addEventListener('click', turn(-1));
$('after').addEventListener('click', turn(1));
$('close').addEventListener('click', () => open(''));
$('window').addEventListener('change', tick);
$('free-no').addEventListener('click', () => $('free').close());
$('free-yes').addEventListener('click', release);
$('free').addEventListener('close', keepFocus);
$('login-form').addEventListener('submit', (e) => {
  e.preventDefault();
  login($('token').value);
  $('token').value = '';
});
addEventListener('hashchange', fromAddress);
addEventListener('resize', tick);

theme(stored());
heads();
if (!fromAddress()) begin();
setInterval(tick, 1000);
