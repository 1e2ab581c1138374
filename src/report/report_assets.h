// The page's parts, made part of the library at build time by embed.cmake.
#pragma once

#include <string_view>

namespace hedgerow::report {

struct ReportAssets {
  std::string_view page;              // page/template.html, with {{placeholders}}
  std::string_view run_sections;      // of a conversion
  std::string_view heads_sections;    // of heads.json
  std::string_view spectra_sections;  // of spectra.json
  std::string_view quality_sections;  // of quality.json
  std::string_view style;             // page/*.css
  std::string_view script;            // page/*.js, in order of their names
  std::string_view fonts;             // @font-face rules
  std::string_view charts;            // the bundle of Apache ECharts
  std::string_view notices;           // licences of the last two
};

extern const ReportAssets kReportAssets;

}  // namespace hedgerow::report
