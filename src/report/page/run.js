// What was run, and the start of the page.

const barRedraws = [];  // colour bars that follow the theme

function stageSeconds(value) {
  if (isNumber(value)) value = { total: value };
  const entries = Object.entries(value || {}).filter(([, time]) => isNumber(time));
  if (!entries.length) return absent('summary.json', 'stage times');
  const top = largest(entries.map(([, time]) => time), 0) || 1;
  return el('dl', { class: 'bars' }, entries.flatMap(([stage, time]) => [el('dt', {}, words(stage)), el('dd', { class: 'bar' }, el('i', { style: `width:${time / top * 100}%` })), el('dd', {}, seconds(time))]));
}

function showRun() {
  const summary = run.summary || {};
  if (!run.summary) return mount('run', absent('summary.json'));
  const model = summary.model || {};
  const command = Array.isArray(summary.command) ? summary.command.join(' ') : summary.command;
  const facts = [['Model', model.name], ['Architecture', model.architecture], ['Layers', model.layers], ['Heads', model.heads], ['Width', model.hidden],
    ['Attention', summary.kind], ['Feature map', summary.map], ['Seed', summary.seed]].filter(([, value]) => value !== undefined && value !== null).map(([name, value]) => [name, plain(value)]);
  const machine = Object.entries((run.bench || {}).machine || summary.machine || {});
  const versions = Object.entries(summary.versions || {});
  mount('run',
    panel('Command', null, command ? el('pre', { class: 'command', tabindex: 0 }, String(command)) : absent('summary.json', 'command')),
    el('div', { class: 'grid-2' },
      panel('Model and seed', null, facts.length ? pairs(facts) : absent('summary.json', 'model')),
      panel('Time per stage', null, stageSeconds(summary.seconds)),
      panel('Versions', null, versions.length ? pairs(versions.map(([name, value]) => [name, plain(value)])) : absent('summary.json', 'versions')),
      panel('Machine', null, machine.length ? pairs(machine.map(([name, value]) => [words(name), plain(value)])) : absent('bench.json', 'machine'))));
}

const darkQuery = matchMedia('(prefers-color-scheme: dark)');
let themeChoice = 'auto';

function applyTheme(forced) {
  const dark = forced ? forced === 'dark' : themeChoice === 'auto' ? darkQuery.matches : themeChoice === 'dark';
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  barRedraws.forEach(draw => draw());
  drawCharts();
}

function startTheme() {
  try { themeChoice = localStorage.getItem('hedgerow-theme') || 'auto'; } catch (error) { themeChoice = 'auto'; }
  for (const input of document.querySelectorAll('input[name=theme]')) {
    input.checked = input.value === themeChoice;
    input.addEventListener('change', () => {
      themeChoice = input.value;
      try { localStorage.setItem('hedgerow-theme', themeChoice); } catch (error) { /* a file may have no storage: the choice lasts for this view */ }
      applyTheme();
    });
  }
  darkQuery.addEventListener('change', () => applyTheme());
  addEventListener('beforeprint', () => applyTheme('light'));
  addEventListener('afterprint', () => applyTheme());
  applyTheme();
}

function startNavigation() {
  const links = new Map([...document.querySelectorAll('.topbar nav a')].map(link => [link.getAttribute('href').slice(1), link]));
  const seen = new Map();
  const observer = new IntersectionObserver(entries => {
    for (const entry of entries) seen.set(entry.target.id, entry.isIntersecting);
    const current = [...links.keys()].find(id => seen.get(id));
    for (const [id, link] of links) {
      if (id === current) link.setAttribute('aria-current', 'true'); else link.removeAttribute('aria-current');
    }
  }, { rootMargin: '-20% 0px -55% 0px' });
  for (const id of links.keys()) observer.observe(document.getElementById(id));
}

function showConversion() {
  showMasthead();
  showResults();
  showTraining();
  showHeadValues();
  showFidelity();
  showMaps();
  showEmbeddings();
  showSpeed();
  showRun();
}

// After the parts of a page have filled their sections.
function startPage() {
  startTheme();
  startNavigation();
  document.documentElement.dataset.ready = 'true';
}
