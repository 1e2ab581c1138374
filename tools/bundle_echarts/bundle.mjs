// node bundle.mjs FOLDER: writes FOLDER/{echarts.js,fonts.css,notices.txt} from FOLDER/node_modules.
import { createRequire } from 'node:module';
import { copyFileSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const folder = resolve(process.argv[2]);
const modules = join(folder, 'node_modules');
const esbuild = createRequire(join(folder, 'package.json'))('esbuild');

const fonts = [
  { family: 'Hedgerow Sans', package: '@fontsource-variable/inter', file: 'inter-latin-wght-normal.woff2', weight: '100 900' },
  { family: 'Hedgerow Serif', package: '@fontsource-variable/source-serif-4', file: 'source-serif-4-latin-wght-normal.woff2', weight: '200 900' },
];

// Written beside its place and renamed, so that an interrupted run leaves no half file.
function write(name, text) {
  writeFileSync(join(folder, name + '.partial'), text);
  renameSync(join(folder, name + '.partial'), join(folder, name));
}

// The entry is copied so that its imports resolve to the folder's packages.
copyFileSync(join(dirname(fileURLToPath(import.meta.url)), 'entry.js'), join(folder, 'entry.js'));
const built = await esbuild.build({
  entryPoints: [join(folder, 'entry.js')],
  bundle: true,
  minify: true,
  write: false,
  format: 'iife',
  globalName: 'echarts',
  target: 'es2019',
  charset: 'ascii',
  legalComments: 'none',
  define: { 'process.env.NODE_ENV': '"production"' },
});
// A script element ends at the first "</script", wherever it stands.
write('echarts.js', built.outputFiles[0].text.replace(/<\/(script)/gi, '<\\/$1').replace(/<!--/g, '<\\!--'));

write('fonts.css', fonts.map(font => {
  const bytes = readFileSync(join(modules, font.package, 'files', font.file)).toString('base64');
  return `@font-face{font-family:"${font.family}";font-style:normal;font-weight:${font.weight};` +
    `font-display:block;src:url(data:font/woff2;base64,${bytes}) format("woff2")}`;
}).join('\n') + '\n');

const version = name => JSON.parse(readFileSync(join(modules, name, 'package.json'), 'utf8')).version;
const text = (name, file) => readFileSync(join(modules, name, file), 'utf8').trim();
write('notices.txt', [
  `This page contains parts of Apache ECharts ${version('echarts')}, under the Apache License 2.0, and of`,
  `its renderer ZRender ${version('zrender')}, under the BSD 3-Clause License.`,
  '', text('echarts', 'NOTICE'), '', text('echarts', 'LICENSE'), '',
  `ZRender ${version('zrender')}`, '', text('zrender', 'LICENSE'), '',
  `tslib ${version('tslib')}`, '', text('tslib', 'LICENSE.txt'), '',
  ...fonts.flatMap(font => [`Typeface ${font.package} ${version(font.package)}`, '', text(font.package, 'LICENSE'), '']),
].join('\n') + '\n');
