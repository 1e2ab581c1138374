// Heads with a role that can be named: a fixed distance, the pieces of a word.

const STRONG_ROLE = 0.5;  // share of its weight from which a head is named for a role

function showButton(head) {
  if (!((run.maps || {}).sentences || []).length) return '';
  return el('button', { type: 'button', class: 'show', 'aria-label': `Show ${headName(head)} in the sentences`, onclick: () => showInMaps(head.layer, head.head) }, 'Show');
}

// How many heads a list names: all that are strong, else the three strongest.
function namedHeads(heads, most) {
  const known = heads.filter(head => isNumber(head.weight));
  const strong = known.filter(head => head.weight >= STRONG_ROLE);
  return { list: (strong.length ? strong : known.slice(0, 3)).slice(0, most), strong: strong.length };
}

function roleList(list, text) {
  return el('ol', { class: 'role-list' }, list.map(head => el('li', {}, el('span', { class: 'role-name' }, headName(head)), el('span', { class: 'role-text' }, text(head)),
    el('span', { class: 'role-bar', 'aria-hidden': 'true' }, el('i', { style: `width:${Math.min(1, Math.max(0, head.weight)) * 100}%` })), el('span', { class: 'role-value' }, percent(head.weight)), showButton(head))));
}

function positionalPanel(heads) {
  const { list, strong } = namedHeads(heads, 12);
  if (!list.length) return absent('heads.json', 'positional heads');
  const chance = isNumber(run.heads.uniform_weight) ? ` Equal weights would give ${percent(run.heads.uniform_weight)}.` : '';
  const title = strong ? `Positional heads: ${count(strong)}` : 'Positional heads: none';
  return panel(title, (strong ? 'Heads that put at least half of their weight on the token at one distance.' : 'No head puts half of its weight at one distance; the strongest are these.') + chance,
    roleList(list, head => `${signed(head.offset)}, ${offsetName(head.offset)}`));
}

function mergingPanel(heads) {
  if (!heads.length) {
    return panel('Word-joining heads', null, el('p', { class: 'note' }, 'The texts had no word in several pieces, or the tokenizer does not mark them, so there is nothing to measure.'));
  }
  const { list, strong } = namedHeads(heads, 12);
  const groups = (run.heads.data || {}).subword_groups;
  return panel(strong ? `Word-joining heads: ${count(strong)}` : 'Word-joining heads: none',
    `The largest share that a piece of a word puts on the other pieces, averaged over ${isNumber(groups) ? count(groups) : 'the'} words in pieces.${strong ? '' : ' No head reaches a half; the strongest are these.'}`,
    roleList(list, () => 'pieces of one word'));
}

// Rows are the strongest positional heads, columns the distances.
function offsetProfile() {
  const { offsets, at_offset: tables, positional_heads: heads } = run.heads;
  if (!Array.isArray(offsets) || !Array.isArray(tables) || !(heads || []).length) return null;
  const rows = heads.slice(0, 16);
  const cells = rows.flatMap((head, y) => offsets.map((offset, x) => ({ head, offset, value: (tables[x][head.layer] || [])[head.head], x, y }))).filter(cell => isNumber(cell.value));
  const option = width => ({
    grid: { left: 4, right: 4, top: 4, bottom: 34, containLabel: true },
    xAxis: { type: 'category', data: offsets.map(signed), name: 'distance in tokens', nameLocation: 'middle', nameGap: 24, ...axisStyle(), splitLine: { show: false }, axisLine: { show: false } },
    yAxis: { type: 'category', inverse: true, data: rows.map(head => `${head.layer + 1} · ${head.head + 1}`), ...axisStyle(), splitLine: { show: false }, axisLine: { show: false } },
    visualMap: { show: false, type: 'continuous', min: 0, max: 1, dimension: 2, inRange: { color: ramp('sequential') } },
    tooltip: { ...tooltipStyle(), formatter: item => tooltipCard(headName(item.data.head), [[`${signed(item.data.offset)}, ${offsetName(item.data.offset)}`, percent(item.data.real)]]) },
    series: [{ type: 'heatmap', data: cells.map(({ head, offset, value, x, y }) => ({ value: [x, y, Math.sqrt(value)], real: value, head, offset,
      label: { show: width / offsets.length > 46, color: Math.sqrt(value) > 0.55 ? (isDark() ? '#10130f' : '#ffffff') : (isDark() ? '#dfe5dc' : '#2a302c'), fontSize: 10.5, formatter: () => fixed(value, 2) } })),
      itemStyle: { borderColor: colour('--surface'), borderWidth: 1.5, borderRadius: 2 }, emphasis: { itemStyle: { borderColor: colour('--ink') } } }],
  });
  return panel('Where these heads look', `Mean weight at each distance, for the ${count(rows.length)} heads that are strongest at one of them; “3 · 5” is layer 3, head 5. Colour runs with the square root.`,
    chart(`Mean weight at distances ${offsets.map(signed).join(', ')} of ${rows.length} heads`, option, `${Math.max(9, rows.length * 1.75 + 2.6)}rem`),
    numbers(['Head', ...offsets.map(signed)], rows.map(head => [headName(head), ...offsets.map((_, x) => fixed((tables[x][head.layer] || [])[head.head], 3))]), 'Mean weight at each distance'));
}

function showRoles() {
  const { positional_heads: positional, subword_merging_heads: merging } = run.heads;
  mount('roles', el('div', { class: 'grid-2' }, positionalPanel(positional || []), mergingPanel(merging || [])), offsetProfile());
}
