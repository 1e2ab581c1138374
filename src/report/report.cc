#include "report/report.h"

#include <chrono>
#include <ctime>
#include <filesystem>
#include <functional>

#include "base/atomic_file.h"
#include "hedgerow/error.h"
#include "hedgerow/version.h"
#include "report/escape.h"
#include "report/json_rules.h"
#include "report/report_assets.h"

namespace hedgerow::report {
namespace {

// Copies the template and puts values in place of {{name}}.
std::string filled(std::string_view page,
                   const std::function<std::string(std::string_view)>& value_of) {
  std::string out;
  while (true) {
    const size_t open = page.find("{{");
    out += page.substr(0, open);
    if (open == std::string_view::npos) return out;
    const size_t close = page.find("}}", open);
    out += value_of(page.substr(open + 2, close - open - 2));
    page = page.substr(close + 2);
  }
}

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// What a page shows of some files: sections in order, and the function of the scripts that fills
// them.
struct PagePart {
  std::vector<std::pair<const char*, const char*>> sections;  // id, name in the navigation
  std::string_view body;
  const char* start;
};

std::vector<PagePart> page_parts(const RunFolder& run) {
  const PagePart conversion = {{{"results", "Results"},
                                {"training", "Training"},
                                {"fidelity", "Fidelity"},
                                {"maps", "Maps"},
                                {"embeddings", "Embeddings"},
                                {"speed", "Speed"}},
                               kReportAssets.run_sections,
                               "showConversion();"};
  const PagePart heads = {{{"glance", "At a glance"},
                           {"density", "Density"},
                           {"learned", "Learned"},
                           {"spread", "Spread"},
                           {"roles", "Roles"},
                           {"maps", "Sentences"}},
                          kReportAssets.heads_sections,
                          "showHeads();"};
  const PagePart spectra = {{{"dimension", "Dimension"},
                             {"spectra", "Spectra"},
                             {"overlap", "Overlap"},
                             {"positions", "Positions"},
                             {"reconstruction", "Reconstruction"},
                             {"matrices", "Matrices"},
                             {"cost", "Cost"}},
                            kReportAssets.spectra_sections,
                            "showSpectraPart();"};
  const PagePart quality = {
      {{"quality", "Quality"}}, kReportAssets.quality_sections, "showQualityPart();"};
  std::vector<PagePart> parts;
  if (run.is_conversion()) parts.push_back(conversion);
  // A conversion's page is about the conversion; `hedgerow analyze` gives heads a page of their
  // own.
  if (run.is_analysis() && run.has("heads")) parts.push_back(heads);
  if (run.has("spectra")) parts.push_back(spectra);
  if (run.has("quality")) parts.push_back(quality);
  return parts;
}

// One member of every part, one after the other.
template <typename Member>
std::string joined(const std::vector<PagePart>& parts, Member member) {
  std::string out;
  for (const PagePart& part : parts) out += part.*member;
  return out;
}

std::string navigation(const std::vector<PagePart>& parts) {
  std::string out;
  for (const PagePart& part : parts)
    for (const auto& [id, name] : part.sections)
      out += concat("<a href=\"#", id, "\">", name, "</a>\n    ");
  return out;
}

std::string page_title(const RunFolder& run) {
  const char* source = run.is_conversion() ? "summary" : run.has("heads") ? "heads" : "spectra";
  const Json& name = member(member(member(run.data, source), "model"), "name");
  return name.is_string() ? name.get<std::string>() : run.name;
}

// One element per sentence and side: the page decodes only the head that it shows.
std::string map_elements(const RunFolder& run) {
  std::string out;
  for (size_t i = 0; i < run.maps.size(); ++i) {
    const auto element = [&](const char* side, const std::string& weights) {
      out += concat("<script type=\"text/plain\" id=\"maps-", i, "-", side, "\">");
      out += weights;
      out += "</script>\n";
    };
    if (!run.maps[i].teacher.empty()) element("teacher", run.maps[i].teacher);
    element("model", run.maps[i].model);
  }
  return out;
}

}  // namespace

std::string render_report(const RunFolder& run) {
  Json data = run.data;
  data["run"] = run.name;
  data["missing"] = run.missing;
  data["generated"] = utc_now();
  data["hedgerow"] = HEDGEROW_VERSION;
  const std::vector<PagePart> parts = page_parts(run);
  return filled(kReportAssets.page, [&](std::string_view name) -> std::string {
    if (name == "eyebrow") return run.is_analysis() ? "Hedgerow analysis" : "Hedgerow report";
    if (name == "skip") return run.is_analysis() ? "Skip to the figures" : "Skip to the results";
    if (name == "navigation") return navigation(parts);
    if (name == "sections") return joined(parts, &PagePart::body);
    if (name == "start") return joined(parts, &PagePart::start);
    if (name == "title") return escape_html(page_title(run));
    if (name == "fonts") return std::string(kReportAssets.fonts);
    if (name == "style") return std::string(kReportAssets.style);
    if (name == "charts") return std::string(kReportAssets.charts);
    if (name == "script") return std::string(kReportAssets.script);
    if (name == "notices") return escape_html(kReportAssets.notices);
    if (name == "maps") return map_elements(run);
    if (name == "data")
      return escape_json_for_script(data.dump(-1, ' ', false, Json::error_handler_t::replace));
    throw Failure(concat("report: the template names an unknown part ", name));
  });
}

std::string write_report(const std::string& run_folder, const std::string& html_path) {
  const std::string page = render_report(read_run_folder(run_folder));
  const std::string path =
      html_path.empty() ? (std::filesystem::path(run_folder) / "report.html").string() : html_path;
  write_file_atomically(path, page);
  return path;
}

}  // namespace hedgerow::report
