// Data, DOM helpers and number formats that every section uses.

const run = JSON.parse(document.getElementById('run-data').textContent);

const STAGES = [
  { key: 'before', name: 'Before', colour: '--before', dash: [2, 3], symbol: 'emptyCircle' },
  { key: 'after_distil', name: 'After distillation', colour: '--distil', dash: [7, 4], symbol: 'diamond' },
  { key: 'after', name: 'After', colour: '--after', dash: 'solid', symbol: 'circle' },
];

// Makes an element. Strings become text nodes, never markup.
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'style') node.style.cssText = value;
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  node.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
  return node;
}

function mount(section, ...children) {
  document.querySelector(`#${section} .mount`).append(...children.filter(Boolean));
}

function absent(file, what) {
  return el('p', { class: 'absent' }, el('strong', {}, 'Not recorded. '),
    `This run folder has no ${what || ''}${what ? ' in ' : ''}`, el('code', {}, file), '.');
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function isNumber(value) {
  return typeof value === 'number' && Number.isFinite(value);
}

function finiteOf(values) {
  return values.filter(isNumber);
}

function largest(values, start = -Infinity) {
  return values.reduce((a, b) => (b > a ? b : a), start);
}

function smallest(values, start = Infinity) {
  return values.reduce((a, b) => (b < a ? b : a), start);
}

function mean(values) {
  const numbers = finiteOf(values);
  return numbers.length ? numbers.reduce((a, b) => a + b, 0) / numbers.length : null;
}

function median(values) {
  const numbers = finiteOf(values).sort((a, b) => a - b);
  if (!numbers.length) return null;
  const middle = numbers.length >> 1;
  return numbers.length % 2 ? numbers[middle] : (numbers[middle - 1] + numbers[middle]) / 2;
}

// Three significant digits, exponents only for the very small and very large.
function short(value, digits = 3) {
  if (!isNumber(value)) return '–';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(digits - 1).replace('e+', 'e').replace('-', '−');
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return value.toLocaleString('en', { minimumFractionDigits: 0, maximumFractionDigits: Math.min(decimals, 8) })
    .replace('-', '−');
}

function fixed(value, decimals) {
  return isNumber(value) ? value.toFixed(decimals).replace('-', '−') : '–';
}

function count(value) {
  return isNumber(value) ? value.toLocaleString('en', { maximumFractionDigits: 0 }) : '–';
}

function bytes(value) {
  if (!isNumber(value)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; Math.abs(value) >= 1024 && unit < units.length - 1; ++unit) value /= 1024;
  return `${short(value)} ${units[unit]}`;
}

function seconds(value) {
  if (!isNumber(value)) return '–';
  if (value < 1) return `${short(value * 1000)} ms`;
  if (value < 120) return `${short(value)} s`;
  const minutes = Math.floor(value / 60);
  if (minutes < 120) return `${minutes} min ${Math.round(value % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function milliseconds(value) {
  if (!isNumber(value)) return '–';
  return value >= 1000 ? `${short(value / 1000)} s` : `${short(value)} ms`;
}

// "after_distil" -> "After distil"; known names have their own texts where they are shown.
function words(key) {
  const text = String(key).replace(/[_-]+/g, ' ').trim();
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function table(headings, rows, caption) {
  return el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
    el('table', {}, el('caption', { class: 'hidden' }, caption),
      el('thead', {}, el('tr', {}, headings.map(text => el('th', { scope: 'col' }, text)))),
      el('tbody', {}, rows.map(row => el('tr', {}, row.map((cell, i) =>
        i === 0 ? el('th', { scope: 'row' }, cell) : el('td', {}, cell)))))));
}

function numbers(headings, rows, caption) {
  return el('details', { class: 'numbers' }, el('summary', {}, 'Numbers'), table(headings, rows, caption));
}

// A figure in a panel: title, one sentence that says how to read it, content.
function panel(title, sentence, ...content) {
  return el('figure', { class: 'panel', role: 'group', 'aria-label': title },
    el('figcaption', {}, el('h3', {}, title), sentence && el('p', {}, sentence)), ...content);
}

let choiceCount = 0;
// Radio buttons that look like one control; keyboard works as for any radio group.
function choice(label, options, chosen, onchange) {
  const name = `choice-${++choiceCount}`;
  return el('div', { class: 'field' }, el('span', { class: 'label', id: `${name}-label` }, label),
    el('div', { class: 'choice', role: 'radiogroup', 'aria-labelledby': `${name}-label` },
      options.map(option => el('label', {},
        el('input', { type: 'radio', name, value: option.value, checked: option.value === chosen,
          onchange: () => onchange(option.value) }),
        el('span', {}, option.name)))));
}

// A select between two buttons that move it by one.
function stepper(label, select, move, id = `pick-${label.toLowerCase()}`) {
  select.id = id;
  return el('div', { class: 'field' }, el('label', { for: id }, label), el('div', { class: 'stepper' },
    el('button', { type: 'button', class: 'step', 'aria-label': `Previous ${label.toLowerCase()}`, onclick: () => move(-1) }, '‹'), select,
    el('button', { type: 'button', class: 'step', 'aria-label': `Next ${label.toLowerCase()}`, onclick: () => move(1) }, '›')));
}

function pairs(entries) {
  return el('dl', { class: 'pairs' }, entries.flatMap(([name, value]) => [el('dt', {}, name), el('dd', { dir: 'auto' }, value)]));
}

function plain(value) {
  if (value === null || value === undefined) return '–';
  if (typeof value === 'number') return Number.isInteger(value) ? String(value) : short(value, 6);
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}
