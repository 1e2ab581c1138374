#include "report/report.h"

#include <chrono>
#include <ctime>
#include <filesystem>
#include <functional>

#include "base/atomic_file.h"
#include "hedgerow/error.h"
#include "hedgerow/version.h"
#include "report/escape.h"
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

// One kind of page: its sections in order, and the function of the scripts that fills them.
struct PageKind {
  const char* eyebrow;
  const char* skip;
  std::vector<std::pair<const char*, const char*>> sections;  // id, name in the navigation
  std::string_view body;
  const char* start;
};

const PageKind& page_kind(const RunFolder& run) {
  static const PageKind conversion = {"Hedgerow report",
                                      "Skip to the results",
                                      {{"results", "Results"},
                                       {"training", "Training"},
                                       {"fidelity", "Fidelity"},
                                       {"maps", "Maps"},
                                       {"embeddings", "Embeddings"},
                                       {"speed", "Speed"},
                                       {"run", "Run"}},
                                      kReportAssets.run_sections,
                                      "start();"};
  static const PageKind heads = {"Hedgerow analysis",
                                 "Skip to the figures",
                                 {{"glance", "At a glance"},
                                  {"density", "Density"},
                                  {"learned", "Learned"},
                                  {"spread", "Spread"},
                                  {"roles", "Roles"},
                                  {"maps", "Sentences"},
                                  {"run", "Run"}},
                                 kReportAssets.heads_sections,
                                 "startHeads();"};
  return run.is_analysis() ? heads : conversion;
}

std::string navigation(const PageKind& kind) {
  std::string out;
  for (const auto& [id, name] : kind.sections)
    out += concat("<a href=\"#", id, "\">", name, "</a>\n    ");
  return out;
}

std::string page_title(const RunFolder& run) {
  const Json& summary = run.data[run.is_analysis() ? "heads" : "summary"];
  if (summary.is_object() && summary.contains("model") && summary["model"].is_object())
    if (const auto name = summary["model"].find("name");
        name != summary["model"].end() && name->is_string())
      return name->get<std::string>();
  return run.name;
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
  const PageKind& kind = page_kind(run);
  return filled(kReportAssets.page, [&](std::string_view name) -> std::string {
    if (name == "eyebrow") return kind.eyebrow;
    if (name == "skip") return kind.skip;
    if (name == "navigation") return navigation(kind);
    if (name == "sections") return std::string(kind.body);
    if (name == "start") return kind.start;
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
