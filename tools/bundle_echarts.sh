#!/bin/sh
# Fetches what the report page embeds (Apache ECharts and two typefaces, versions and hashes pinned
# in tools/bundle_echarts/package-lock.json) and bundles it into build/echarts. Does nothing when
# that is there and up to date.
#
#   tools/bundle_echarts.sh [FOLDER]      FOLDER: default build/echarts
set -eu
here=$(cd "$(dirname "$0")" && pwd)
source=$here/bundle_echarts
folder=${1:-$here/../build/echarts}

wanted=$(cat "$source"/package-lock.json "$source"/entry.js "$source"/bundle.mjs | sha256sum | cut -d' ' -f1)
if [ -f "$folder/bundle.sha256" ] && [ "$(cat "$folder/bundle.sha256")" = "$wanted" ]; then
  exit 0
fi
for tool in node npm; do
  if ! command -v "$tool" >/dev/null; then
    echo "error: bundle_echarts: $tool is needed (Debian: apt-get install nodejs npm)" >&2
    exit 2
  fi
done
mkdir -p "$folder"
cp "$source/package.json" "$source/package-lock.json" "$folder/"
npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel=error
node "$source/bundle.mjs" "$folder"
printf '%s\n' "$wanted" >"$folder/bundle.sha256"
echo "report charts bundled in $folder"
