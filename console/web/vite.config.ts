import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { resolve } from 'node:path';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig, type Plugin } from 'vite';

const fonts = ['inter', 'jetbrains-mono'];

/** Writes the list of files that the hub embeds, and the licences of the fonts. */
function embed(): Plugin {
  let dist: URL;
  return {
    name: 'embed',
    apply: 'build',
    configResolved(config) {
      dist = pathToFileURL(`${resolve(config.root, config.build.outDir)}/`);
    },
    closeBundle() {
      for (const font of fonts) {
        const text = readFileSync(new URL(`node_modules/@fontsource-variable/${font}/LICENSE`, import.meta.url));
        writeFileSync(new URL(`assets/${font}-license.txt`, dist), text);
      }
      const names = readdirSync(new URL('assets/', dist)).sort();
      const entries = names.map((name) => `    ("${name}", include_bytes!("assets/${name}")),\n`);
      const all = ['    ("index.html", include_bytes!("index.html")),\n', ...entries].join('');
      writeFileSync(new URL('files.rs', dist), `&[\n${all}]\n`);
    },
  };
}

export default defineConfig({
  base: './',
  plugins: [svelte(), embed()],
  build: {
    outDir: '../dist',
    emptyOutDir: true,
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: {
      output: {
        // Names stay, so that a change of one file is a change of one file in git.
        entryFileNames: 'assets/app.js',
        chunkFileNames: 'assets/[name].js',
        assetFileNames: 'assets/[name][extname]',
        codeSplitting: {
          groups: [
            { name: 'editor', test: /node_modules\/(@codemirror|@lezer|style-mod|w3c-keyname|crelt)/ },
          ],
        },
      },
    },
  },
  server: { proxy: { '/api': 'http://127.0.0.1:20006', '/generate_with_mcp': 'http://127.0.0.1:20006' } },
});
