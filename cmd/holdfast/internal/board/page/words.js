// What all parts of the page need: nodes of the document, and how times are told.
//
// Names, labels and errors are text of other programs, so they only become text nodes.

// el makes an element. An attribute whose value is null or false is left out.
export function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// draw makes an element of a drawing.
export function draw(tag, attributes, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === 'click') node.addEventListener('click', value);
    else if (value === true) node.setAttribute(name, '');
    else if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, String(value));
    }
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== '') {
      node.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
  }
  return node;
}

// replace puts other nodes into a box, and restores the focus.
export function replace(box, ...nodes) {
  const had = box.contains(document.activeElement) ? document.activeElement.dataset.focus : '';
  const open = new Set([...box.querySelectorAll('details[open]')].map((d) => d.dataset.focus));
  box.replaceChildren(...nodes.flat().filter(Boolean));
  for (const d of box.querySelectorAll('details')) d.open = open.has(d.dataset.focus);
  if (had) {
    for (const node of box.querySelectorAll('[data-focus]')) {
      if (node.dataset.focus === had) node.focus({ preventScroll: true });
    }
  }
}

// span returns a number of milliseconds as text.
export function span(ms) {
  const seconds = Math.max(ms, 0) / 1000;
  if (seconds < 9.95) return seconds.toFixed(1) + ' s';
  const whole = Math.round(seconds);
  if (whole < 60) return whole + ' s';
  const minutes = Math.floor(whole / 60), two = (n) => String(n).padStart(2, '0');
  if (minutes < 60) return minutes + ' min ' + two(whole % 60) + ' s';
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return hours + ' h ' + two(minutes % 60) + ' min';
  return Math.floor(hours / 24) + ' d ' + (hours % 24) + ' h';
}

// clock returns a time of day as text.
export function clock(ms) {
  const d = new Date(ms), two = (n) => String(n).padStart(2, '0');
  return two(d.getHours()) + ':' + two(d.getMinutes()) + ':' + two(d.getSeconds());
}

// many returns a number of things as text.
export function many(n, one, more) {
  return number(n) + ' ' + (n === 1 ? one : more || one + 's');
}

// number returns a number with thin spaces between thousands.
export function number(n) {
  return String(n).replace(/\B(?=(\d{3})+$)/g, '\u202f');
}

// who returns a line that names a holder or a waiter.
export function who(p) {
  if (!p) return 'nobody';
  const at = p.pid ? 'pid ' + p.pid + ' on ' + p.host : '';
  if (!p.who) return at || 'another library';
  return at ? p.who + ' (' + at + ')' : p.who;
}

// short cuts a text to a number of characters.
export function short(text, most) {
  const all = Array.from(text);
  return all.length > most ? all.slice(0, most - 1).join('') + '…' : text;
}

// put sets a text only if it has changed, because screen readers read it out again.
export function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
