#include "convert/config.h"

#include <cstdio>

#include "formats/json.h"
#include "hedgerow/error.h"

namespace hedgerow::convert {

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = [] {
    Preset quick{"quick", "seconds; to see that everything works", {}, {}, {}};
    quick.distil.steps = 20;
    quick.distil.tokens = 256;
    quick.distil.lengths = {32, 64};
    quick.recover.steps = 20;
    quick.recover.batch = 8;
    quick.recover.length = 64;
    quick.verify = {100, {64, 128}, 512};

    Preset demo{"demo", "within 12 minutes on 2 cores for a model like MiniLM-L6", {}, {}, {}};
    demo.distil.steps = 300;
    demo.recover.steps = 420;
    demo.recover.lr = 2e-4;

    Preset thorough{"thorough", "up to an hour on 2 cores", {}, {}, {}};
    thorough.distil.steps = 600;
    thorough.distil.tokens = 2048;
    thorough.recover.steps = 4500;
    thorough.recover.lr = 3e-4;
    thorough.recover.recut = 0.75;
    thorough.thorough_options = true;
    return std::vector<Preset>{quick, demo, thorough};
  }();
  return all;
}

const Preset& preset(const std::string& name) {
  std::string known;
  for (const Preset& p : presets()) {
    if (name == p.name) return p;
    known += concat(known.empty() ? "" : ", ", p.name);
  }
  throw Error(concat("--preset: must be one of ", known, "; got ", name));
}

namespace {

// TOML's basic strings escape as JSON's do.
std::string quoted(const std::string& text) { return formats::dump_json(formats::Json(text)); }

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  const std::string whole = text;
  return whole.find_first_of(".en") == std::string::npos ? whole + ".0" : whole;
}

std::string list(const std::vector<int64_t>& values) {
  std::string out = "[";
  for (size_t i = 0; i < values.size(); ++i) out += concat(i == 0 ? "" : ", ", values[i]);
  return out + "]";
}

std::string toml(const nn::OptionValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return quoted(*text);
  if (const auto* real = std::get_if<double>(&value)) return number(*real);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  return concat(std::get<int64_t>(value));
}

}  // namespace

std::string to_toml(const ConvertConfig& c, const std::string& data_md5) {
  std::string out = concat("task = \"convert\"\nmodel = ", quoted(c.model),
                           "\nkind = ", quoted(c.kind), "\npreset = ", quoted(c.preset),
                           "\nlayers = ", c.layers.empty() ? "\"all\"" : list(c.layers),
                           "\njoin = ", c.join ? "true" : "false", "\nseed = ", c.seed,
                           "\nthreads = ", c.threads, "\n\n[options]\n");
  for (const auto& [name, value] : c.options) out += concat(name, " = ", toml(value), "\n");
  out += concat("\n[data]\nfile = ", quoted(c.data), "\nheldout = ", quoted(c.heldout),
                "\ncolumn = ", c.column, "\nmd5 = ", quoted(data_md5), "\n");
  out += concat("\n[distil]\nsteps = ", c.distil.steps, "\nlr = ", number(c.distil.lr),
                "\nwarmup_steps = ", c.distil.warmup_steps, "\ntokens = ", c.distil.tokens,
                "\nlengths = ", list(c.distil.lengths),
                "\nbfloat16 = ", c.distil.bfloat16 ? "true" : "false", "\n");
  out += concat(
      "\n[recover]\nsteps = ", c.recover.steps, "\nlr = ", number(c.recover.lr),
      "\nmixer_lr = ", number(c.recover.mixer_lr), "\nwarmup_steps = ", c.recover.warmup_steps,
      "\nbatch = ", c.recover.batch, "\nlength = ", c.recover.length,
      "\nlora_rank = ", c.recover.lora_rank, "\nhidden_weight = ", number(c.recover.hidden_weight),
      "\nrecut = ", number(c.recover.recut), "\nmax_grad_norm = ", number(c.recover.max_grad_norm),
      "\nbfloat16 = ", c.recover.bfloat16 ? "true" : "false", "\n");
  out +=
      concat("\n[verify]\ntexts = ", c.verify.texts, "\nkl_lengths = ", list(c.verify.kl_lengths),
             "\nkl_tokens = ", c.verify.kl_tokens, "\n");
  return out;
}

}  // namespace hedgerow::convert
