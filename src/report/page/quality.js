// Several conversions side by side: quality, multiplications and time against the number of positions.

const QUALITY_KINDS = { partial: 'Partial scores', linformer: 'Linformer', window: 'Local window', selected_keys: 'Selected keys only' };
const QUALITY_MEASURES = {
  embedding_cosine: row => row.embedding_cosine,
  nn_agreement: row => row.nn_agreement,
  top10_overlap: row => row.top10_overlap,
  accuracy: row => (row.retrieval || {}).accuracy,
  kept: row => (row.retrieval || {}).kept,
};
const RETRIEVAL_MEASURES = {
  accuracy: { name: 'Retrieval accuracy', show: percent, text: 'Share of searches that return the right text first.' },
  kept: { name: 'Retrieval kept', show: percent, text: 'Retrieval accuracy as a share of the teacher’s.' },
};

function qualityMeasure(key) {
  return RETRIEVAL_MEASURES[key] || MEASURES[key];
}

function kindName(kind) {
  return QUALITY_KINDS[kind] || words(kind);
}

// Rows that differ in nothing but their positions form one series.
function qualitySeries(rows) {
  const trained = new Set(rows.map(row => row.trained || '')).size > 1;
  const all = new Map();
  for (const row of rows) {
    const key = JSON.stringify([row.kind, row.sharing, row.r, row.trained]);
    const name = [kindName(row.kind), row.sharing && lower(words(row.sharing)), row.r && `${row.r} R`, trained && row.trained && lower(words(row.trained))].filter(Boolean).join(', ');
    if (!all.has(key)) all.set(key, { name, rows: [], ...paletteLine(all.size) });
    all.get(key).rows.push(row);
  }
  for (const series of all.values()) series.rows.sort((a, b) => a.positions - b.positions);
  return [...all.values()];
}

function seriesLines(series, read) {
  return series.map(({ rows, ...line }) => ({ ...line, points: rows.map(row => [row.positions, read(row)]) })).filter(line => finiteOf(line.points.map(point => point[1])).length);
}

function positionsAxis(lines) {
  return { name: 'positions', log: true, format: count, ticks: [...new Set(lines.flatMap(line => line.points.map(point => point[0])))].sort((a, b) => a - b) };
}

function lineEnds(lines, show) {
  return lines.map(line => { const [at, value] = line.points.filter(point => isNumber(point[1])).pop(); return `${line.name} ${show(value)} at ${count(at)} positions`; }).join('; ');
}

function qualityPanel(series, key) {
  const { name, show, text } = qualityMeasure(key);
  const lines = seriesLines(series, QUALITY_MEASURES[key]);
  if (!lines.length) return panel(name, text, absent('quality.json', `${lower(name)} for this choice`));
  const axis = roundAxis(lines.flatMap(line => finiteOf(line.points.map(point => point[1]))));
  return panel(name, `${text} Higher is better. Curves are named by attention, sharing, R and what was trained.`, chart(`${name}: ${lineEnds(lines, show)}`, width => linesOption(width, lines, {
    x: positionsAxis(lines), y: { format: show, low: axis.min, top: axis.max, interval: axis.interval }, heading: at => `${count(at)} positions` }), '26rem'));
}

function timeShare({ seconds: time }) {
  return time && isNumber(time.this) && time.exact > 0 ? time.this / time.exact : null;
}

// Two charts of shares of exact attention with one height, so that they can be compared.
function costAndTime(series, part) {
  const cost = seriesLines(series, row => (row.cost || {})[part]), time = seriesLines(series, timeShare);
  const values = [...cost, ...time].flatMap(line => finiteOf(line.points.map(point => point[1])));
  const top = Math.max(1.1, Math.ceil(largest(values, 0) * 10 + 1e-9) / 10);
  const draw = (title, sentence, lines, what) => (lines.length ? panel(title, sentence, chart(`${title}: ${lineEnds(lines, percent)}`, width => linesOption(width, lines, {
    x: positionsAxis(lines), y: { format: percentTick, show: percent, top }, marks: [1], heading: at => `${count(at)} positions`, legend: false }), '19rem')) : panel(title, sentence, absent('quality.json', `${what} for this choice`)));
  return el('div', { class: 'grid-2' },
    draw(part ? `Multiplications: ${lower(costName(part))}` : 'Multiplications', 'As a share of exact attention’s; on or above the dashed line nothing is saved. Colours and marks are those above.', cost, 'multiplications'),
    draw('Measured time', 'As a share of exact attention’s in the same process; on or above the dashed line nothing is saved.', time, 'times'));
}

// What is no cheaper than exact attention, by multiplications and by the clock.
function noSavings(rows, parts) {
  const part = parts[parts.length - 1];
  const costly = rows.filter(row => (row.cost || {})[part] >= 1), slow = rows.filter(row => timeShare(row) >= 1), timed = rows.filter(row => isNumber(timeShare(row)));
  const say = list => [...new Set(list.map(row => row.kind))].map(kind => {
    const sizes = [...new Set(list.filter(row => row.kind === kind).map(row => row.positions))].sort((a, b) => a - b).map(count);
    return `${lower(kindName(kind))} with ${sizes.join(', ').replace(/, ([^,]*)$/, ' and $1')} positions`;
  }).join(', ');
  return [costly.length ? `No multiplications of the ${lower(costName(part))} are saved by ${say(costly)}.` : '', slow.length ? `No time is saved by ${say(slow)}.` : timed.length ? 'Every conversion that was timed is faster than exact attention.' : ''].filter(Boolean).join(' ');
}

function qualityTable(rows, measures, parts) {
  const caption = 'Quality, multiplications and time of each conversion';
  const groups = [['Quality', measures.map(key => qualityMeasure(key).name)], ['Multiplications', parts.map(costName)], ['Time', ['Share', 'This', 'Exact']]].filter(([, names]) => names.length);
  const share = value => (isNumber(value) && value >= 1 ? [percent(value), 'over-share'] : [percent(value), '']);
  const cells = row => [
    ...measures.map((key, i) => [qualityMeasure(key).show(QUALITY_MEASURES[key](row)), i ? '' : 'edge']),
    ...parts.map((part, i) => { const [text, mark] = share((row.cost || {})[part]); return [text, `${i ? '' : 'edge'} ${mark}`]; }),
    [...share(timeShare(row))].map((text, i) => (i ? `edge ${text}` : text)), [seconds((row.seconds || {}).this), ''], [seconds((row.seconds || {}).exact), '']];
  const facts = row => [count(row.positions), row.sharing ? words(row.sharing) : '–', row.r ? words(row.r) : '–', row.trained ? words(row.trained) : '–'];
  return panel('All conversions', 'Shares are of exact attention; those of 100 % and more, in bold, save nothing. A dash: not recorded, or without such a choice.',
    el('div', { class: 'scroll quality-table', tabindex: 0, role: 'region', 'aria-label': caption }, el('table', {}, el('caption', { class: 'hidden' }, caption),
      el('thead', {}, el('tr', {}, ['Attention', 'Positions', 'Sharing', 'R', 'Trained'].map(name => el('th', { scope: 'col', rowspan: 2 }, name)), groups.map(([name, names]) => el('th', { scope: 'colgroup', colspan: names.length, class: 'edge' }, name))),
        el('tr', {}, groups.flatMap(([, names]) => names.map((name, i) => el('th', { scope: 'col', class: i ? '' : 'edge', style: 'text-align:right' }, name))))),
      el('tbody', {}, rows.map(row => el('tr', {}, el('th', { scope: 'row' }, kindName(row.kind)), facts(row).map(text => el('td', {}, text)), cells(row).map(([text, mark]) => el('td', { class: mark.trim() }, text))))))));
}

const EVERY = 'every';  // no kind of training is called so by a script

function showQuality() {
  const { rows } = run.quality;
  if (!rows.length) return mount('quality', absent('quality.json', 'rows'));
  const measures = Object.keys(QUALITY_MEASURES).filter(key => rows.some(row => isNumber(QUALITY_MEASURES[key](row))));
  const parts = [...new Set(rows.flatMap(row => Object.keys(row.cost || {})))];
  const kinds = [...new Set(rows.map(row => row.trained || ''))];
  const series = qualitySeries(rows).length;
  const chosen = { measure: measures[0], trained: kinds.length > 1 && series > 7 ? kinds[kinds.length - 1] : EVERY, part: parts[parts.length - 1] };
  const set = (key, show) => value => { chosen[key] = value; show(); };
  mount('quality', ...controlled(show => [
    keyChoice('Measure', measures, chosen.measure, key => qualityMeasure(key).name, set('measure', show)),
    keyChoice('Trained', kinds.length > 1 ? [...kinds, EVERY] : [], chosen.trained, kind => (kind === EVERY ? 'All' : kind ? words(kind) : 'Not named'), set('trained', show)),
    keyChoice('Multiplications of', parts, chosen.part, costName, set('part', show)),
  ], () => {
    const own = qualitySeries(rows.filter(row => chosen.trained === EVERY || (row.trained || '') === chosen.trained));
    return [measures.length ? qualityPanel(own, chosen.measure) : absent('quality.json', 'measures'), costAndTime(own, chosen.part)];
  }), el('p', { class: 'note' }, noSavings(rows, parts)), qualityTable(rows, measures, parts));
}

function showQualityPart() {
  const { teacher, n, rows } = run.quality;
  setMasthead(`${count(rows.length)} ${rows.length === 1 ? 'conversion' : 'conversions'}${teacher ? ` of ${teacher}` : ''}${isNumber(n) ? ` on texts of ${count(n)} tokens` : ''}.`);
  showQuality();
  mountFileRun('quality.json', [['Teacher', teacher], ['Tokens of a text', n], ['Conversions', rows.length]], run.quality);
}
