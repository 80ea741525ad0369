#include "common/train/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "common/core/byte_hash.hpp"
#include "common/core/check.hpp"
#include "common/core/json.hpp"
#include "common/core/torch_types.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/checkpoint/safetensors.hpp"
#include "common/train/options/option_values.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;

constexpr int kFormatVersion = 2;  // 1 had no state_hash
constexpr const char* kPartialPrefix = ".partial_";
constexpr const char* kShapeHint =
    " (compare --model, --layers, --heads, --kv-heads, --head-channels, --channels, "
    "--mlp-channels, --context, --vocab-size, --tie-embeddings, --precision, with the config in "
    "state.json)";

fs::path folder_of(const fs::path& run) {
  return run / "checkpoints";
}

// step_000100, or diverged_000100.
std::string folder_name(const char* kind, std::int64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "%s_%06lld", kind, static_cast<long long>(step));
  return name;
}

// The step in a folder name "step_NNNNNN"; -1 for any other name.
std::int64_t step_of(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename().string();
  if (!name.starts_with("step_") || name.size() < 11 || name.size() > 20) return -1;
  if (name.find_first_not_of("0123456789", 5) != std::string::npos) return -1;
  return std::stoll(name.substr(5));
}

// Nothing if it is damaged.
std::optional<std::vector<std::int64_t>> history_of(const fs::path& checkpoint) {
  try {
    return describe_checkpoint(checkpoint).history;
  } catch (const CheckError&) {
    return std::nullopt;
  }
}

// Renames what is to be deleted: a kill in between must not leave half a checkpoint under its name.
fs::path hide(const fs::path& checkpoint) {
  const fs::path hidden =
      checkpoint.parent_path() / concat(kPartialPrefix, "old_", checkpoint.filename().string());
  fs::rename(checkpoint, hidden);
  return hidden;
}

void delete_checkpoint(const fs::path& checkpoint) {
  fs::remove_all(hide(checkpoint));
}

// A file of a checkpoint, and the tensors that are to be read from it.
class TensorFile {
 public:
  // Throws CheckError unless the file holds those and no others, in their shapes and types.
  TensorFile(const fs::path& path, const StateTensors& tensors, std::string hash)
      : path_(path), reader_(path), tensors_(tensors), hash_(std::move(hash)) {
    // Only the state of an optimizer may be empty.
    check(reader_.tensors().empty() == tensors_.stored.empty(), path_,
          tensors_.stored.empty()
              ? ": holds the state of AdamW, but this run has --optimizer sgd"
              : ": holds no state, as after SGD, but this run has --optimizer adamw",
          "; --init-from takes only the parameters");
    std::vector<FoundTensor> found;
    for (const StoredTensor& tensor : reader_.tensors()) found.push_back({tensor, path_});
    const auto fits = [](const StoredTensor& a, const StoredTensor& b) {
      return a.dtype == b.dtype && a.shape == b.shape;
    };
    check_found(found, tensors_, path_, fits, kShapeHint);
  }

  void read() {
    const std::string actual = fill_all(
        tensors_,
        [&](const std::string& name, const at::Tensor& values) { reader_.read(name, values); });
    check(actual == hash_, path_, ": damaged: its tensors hash to ", actual, ", state.json says ",
          hash_);
  }

 private:
  std::string path_;
  SafetensorsReader reader_;
  StateTensors tensors_;
  std::string hash_;
};

// The parameters of a checkpoint.
TensorFile parameters_of(const fs::path& checkpoint, const TrainState& state,
                         const LoadedCheckpoint& saved) {
  return {checkpoint / "model.safetensors", state.parameters, saved.param_hash};
}

// Returns the hash of what was written.
std::string write_all(const fs::path& path, const StateTensors& tensors) {
  SafetensorsWriter writer(path, tensors.stored);
  TensorHash hash;
  tensors.for_each([&](const std::string& name, const at::Tensor& values) {
    writer.write(values);
    hash.update(name, values);
  });
  writer.finish();
  return hash.digest();
}

// Writes them to model.safetensors and, as this type unless it is fp32, to another file of that name
// in a folder named for the type. Returns the hash of the former.
std::string write_parameters(const fs::path& checkpoint, StateTensors tensors,
                             at::ScalarType copied_as) {
  const fs::path folder = checkpoint / format_name(copied_as);
  std::optional<SafetensorsWriter> copy;
  if (copied_as != at::kFloat) {
    make_folders(folder);
    std::vector<StoredTensor> stored = tensors.stored;
    for (StoredTensor& tensor : stored) tensor.dtype = copied_as;
    copy.emplace(folder / "model.safetensors", stored);
    tensors.for_each = [&, for_each = tensors.for_each](const TensorVisitor& visit) {
      for_each([&](const std::string& name, const at::Tensor& values) {
        visit(name, values);
        copy->write(values.to(copied_as));
      });
    };
  }
  const std::string hash = write_all(checkpoint / "model.safetensors", tensors);
  if (copy) {
    copy->finish();
    sync_to_disk(folder);
  }
  return hash;
}

// Returns what state.json says of them.
Json write_extras(const fs::path& checkpoint, const TrainState& state) {
  Json hashes = Json::object();
  for (const ExtraFile& file : state.extra_files) {
    const fs::path path = checkpoint / file.name;
    make_folders(path.parent_path());
    hashes[file.name] = write_all(path, file.tensors);
    sync_to_disk(path.parent_path());
  }
  return {{"files", hashes}, {"counts", state.extra_counts}};
}

bool has_all_extras(const std::map<std::string, std::string>& saved, const TrainState& state) {
  return !state.extra_files.empty() && saved.size() == state.extra_files.size() &&
         std::all_of(state.extra_files.begin(), state.extra_files.end(),
                     [&](const ExtraFile& file) { return saved.contains(file.name); });
}

Json loss_scale_json(const std::optional<LossScaleState>& state) {
  if (!state) return nullptr;
  return {{"scale", static_cast<std::int64_t>(state->scale)},
          {"good_steps", state->good_steps},
          {"skipped_steps", state->skipped_steps}};
}

std::optional<LossScaleState> loss_scale_in(const Json& json, const fs::path& path) {
  const auto found = json.find("loss_scale");
  if (found == json.end() || found->is_null()) return std::nullopt;
  const LossScaleState state = {.scale = static_cast<double>(count_in(*found, "scale", path)),
                                .good_steps = count_in(*found, "good_steps", path),
                                .skipped_steps = count_in(*found, "skipped_steps", path)};
  check(state.scale >= 1, path.string(), ": damaged: the loss scale is ", state.scale,
        ", it must be at least 1");
  return state;
}

// The hash of everything else in state.json, as one line: indentation does not matter,
// the order of keys does.
std::string state_hash(Json json) {
  json.erase("state_hash");
  const std::string text = to_text(json);
  ByteHash hash;
  hash.update(text.data(), text.size());
  return hash.digest();
}

void check_state_hash(const Json& json, const fs::path& path) {
  check(json.contains("state_hash"), path.string(), ": damaged: \"state_hash\" is missing");
  const auto wanted = json["state_hash"].get<std::string>();
  const std::string actual = state_hash(json);
  check(actual == wanted, path.string(), ": damaged: its values hash to ", actual,
        ", its state_hash is ", excerpt(wanted),
        "; take an older checkpoint of this run (to --resume from it, choose another --out)");
}

// What no shape tells of a model: what its tokens mean, how its channels are divided into heads, …
// An option that the checkpoint's program did not have yet was as it is by default.
void check_same_model(const LoadedCheckpoint& saved, const TrainState& state,
                      const fs::path& path) {
  const fs::path kept = path.parent_path().parent_path() / "tokenizer";
  check(saved.tokenizer == state.tokenizer, path.string(), ": was trained with the tokenizer '",
        excerpt(saved.tokenizer), "', but this run's data use '", state.tokenizer,
        "'; name the same one with --tokenizer",
        fs::is_directory(kept) ? ", for example " + kept.string() : "");
  const Json &config = saved.config, defaults = unshaped_options({});
  if (!config.contains("heads")) return;  // it does not say
  const Json own = state.model ? unshaped_options(*state.model) : Json();
  for (const auto& [name, now] : own.items()) {
    const Json& before = config.contains(name) ? config[name] : defaults[name];
    const std::string option = concat("--", name, " ", excerpt(to_text(before)));
    check(before == now, path.string(), ": was trained with ", option, ", this run has --", name,
          " ", to_text(now), ": its parameters would fit, but mean something else; give ", option);
  }
}

// A reference that changes in the middle of a run would be another objective, and nothing would
// show.
void check_same_reference(const LoadedCheckpoint& saved, const TrainState& state,
                          const fs::path& path) {
  const std::string &before = saved.reference_hash, &now = state.reference.hash;
  check(before.empty() || now.empty() || before == now, path.string(),
        ": was trained with the reference model ", excerpt(before), ", this run has ", now, ". ",
        state.reference.advice);
}

// Returns the hash of the parameters.
std::string write_checkpoint(const fs::path& partial, std::int64_t step, const TrainState& state,
                             const Json& config, const SaveOptions& options) {
  const std::string param_hash = write_parameters(partial, state.parameters, options.copy_dtype);
  const std::string optimizer_hash = write_all(partial / "optimizer.safetensors", state.optimizer);
  Json json = {{"format_version", kFormatVersion},
               {"step", step},
               {"optimizer_steps", state.optimizer_steps},
               {"data",
                {{"epoch", state.data.epoch},
                 {"samples", state.data.samples},
                 {"tokenizer", state.tokenizer}}},
               {"rng",
                {{"kind", "derived from seed, stream and step"},
                 {"seed", config.value("seed", Json(nullptr))}}},
               {"loss_scale", loss_scale_json(options.loss_scale)},
               {"param_hash", param_hash},
               {"optimizer_hash", optimizer_hash},
               {"config", config}};
  if (state.data_contents) json["data"]["contents"] = *state.data_contents;
  if (!state.reference.hash.empty()) json["reference_hash"] = state.reference.hash;
  if (!state.history.empty()) json["history"] = state.history;
  if (!state.extra_files.empty()) json["extra"] = write_extras(partial, state);
  json["state_hash"] = state_hash(json);
  write_text_file(partial / "state.json", to_text(json, 2) + "\n");
  sync_to_disk(partial);
  return param_hash;
}

// Whether the state comes from the run that wrote the checkpoint, by way of one that is as new or
// newer.
bool goes_on_from(const fs::path& checkpoint, const TrainState& state) {
  const auto history = history_of(checkpoint);
  return history && !history->empty() && *history <= state.history;
}

}  // namespace

Json unshaped_options(const ModelOptions& model) {
  return {{"heads", model.heads},
          {"rope-theta", model.rope_theta},
          {"rope-scaling", model.rope_scaling},
          {"no-rope-interval", model.no_rope_interval},
          {"norm-eps", model.norm_eps},
          {"gelu", gelu_name(model.gelu)}};
}

SavedCheckpoint save_checkpoint(const fs::path& run, std::int64_t step, const TrainState& state,
                                const Json& config, const SaveOptions& options) {
  const fs::path target = checkpoint_path(run, step);
  const fs::path partial = folder_of(run) / (kPartialPrefix + target.filename().string());
  check(!fs::exists(target) || goes_on_from(target, state), target.string(),
        ": a checkpoint of this step already exists");
  fs::remove_all(partial);
  try {
    make_folders(partial);
    const std::string param_hash = write_checkpoint(partial, step, state, config, options);
    const fs::path replaced = fs::exists(target) ? hide(target) : fs::path();
    rename_on_disk(partial, target);
    fs::remove_all(replaced);
    return {target, param_hash};
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(partial, ignored);  // on a full disk, what is written is in the way
    throw;
  }
}

LoadedCheckpoint describe_checkpoint(const fs::path& checkpoint) {
  const fs::path path = checkpoint / "state.json";
  check(fs::is_directory(checkpoint), checkpoint.string(), ": no such checkpoint");
  const Json json = parse_json(read_text_file(path), path);
  const std::int64_t version = count_in(json, "format_version", path);
  check(version == 1 || version == kFormatVersion, path.string(), ": has format version ", version,
        ", this program reads 1 and ", kFormatVersion);
  try {
    const Json& data = json.at("data");
    LoadedCheckpoint saved;  // filled in one by one: each of these may throw
    saved.step = count_in(json, "step", path);
    saved.config = json.at("config");
    saved.param_hash = json.at("param_hash").get<std::string>();
    saved.optimizer_steps = count_in(json, "optimizer_steps", path);
    saved.data = {count_in(data, "epoch", path), count_in(data, "samples", path)};
    saved.tokenizer = data.at("tokenizer").get<std::string>();
    saved.data_contents = data.value("contents", Json(nullptr));
    saved.optimizer_hash = json.at("optimizer_hash").get<std::string>();
    check(saved.config.is_object(), path.string(), ": damaged: \"config\" is not an object");
    saved.reference_hash = json.value("reference_hash", "");
    saved.loss_scale = loss_scale_in(json, path);
    for (const Json& number : json.value("history", Json::array()))
      saved.history.push_back(number.get<std::int64_t>());
    if (json.contains("extra")) {
      const Json& extra = json.at("extra");
      saved.extra_hashes = extra.at("files").get<std::map<std::string, std::string>>();
      for (const auto& [name, value] : extra.at("counts").items())
        saved.extra_counts[name] = count_in(extra.at("counts"), name.c_str(), path);
    }
    if (version > 1 || json.contains("state_hash")) check_state_hash(json, path);
    return saved;
  } catch (const Json::exception& error) {
    throw CheckError(concat(path.string(), ": damaged: ", excerpt(json_problem(error.what()))));
  }
}

LoadedCheckpoint load_checkpoint(const fs::path& checkpoint, const TrainState& state) {
  LoadedCheckpoint saved = describe_checkpoint(checkpoint);
  check_same_model(saved, state, checkpoint);
  check_same_reference(saved, state, checkpoint);
  std::vector<TensorFile> files;
  files.push_back(parameters_of(checkpoint, state, saved));
  files.emplace_back(checkpoint / "optimizer.safetensors", state.optimizer, saved.optimizer_hash);
  saved.has_read_extras = has_all_extras(saved.extra_hashes, state);
  for (const ExtraFile& file : state.extra_files) {
    if (!saved.has_read_extras || !file.is_read_here) continue;
    files.emplace_back(checkpoint / file.name,
                       file.as_saved ? file.as_saved(saved.extra_counts) : file.tensors,
                       saved.extra_hashes.at(file.name));
  }
  for (TensorFile& file : files) file.read();
  return saved;
}

std::string load_parameters(const fs::path& checkpoint, const TrainState& state) {
  const LoadedCheckpoint saved = describe_checkpoint(checkpoint);
  check_same_model(saved, state, checkpoint);
  parameters_of(checkpoint, state, saved).read();
  return saved.param_hash;
}

fs::path checkpoint_path(const fs::path& run, std::int64_t step) {
  return folder_of(run) / folder_name("step", step);
}

std::vector<fs::path> checkpoints_of(const fs::path& run) {
  using History = std::optional<std::vector<std::int64_t>>;
  std::vector<std::pair<History, fs::path>> found;
  if (!fs::is_directory(folder_of(run))) return {};
  History newest;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_of(run))) {
    if (!entry.is_directory() || step_of(entry.path()) < 0) continue;
    found.emplace_back(history_of(entry.path()), entry.path());
    newest = std::max(newest, found.back().first);
  }
  const auto age = [&](const std::pair<History, fs::path>& checkpoint) {
    return std::pair(checkpoint.first ? checkpoint.first : newest, step_of(checkpoint.second));
  };
  std::sort(found.begin(), found.end(),
            [&](const auto& a, const auto& b) { return age(a) < age(b); });
  std::vector<fs::path> paths;
  for (const auto& [history, path] : found) paths.push_back(path);
  return paths;
}

std::optional<fs::path> newest_checkpoint(const fs::path& run) {
  const std::vector<fs::path> all = checkpoints_of(run);
  return all.empty() ? std::nullopt : std::optional(all.back());
}

fs::path checkpoint_in(const std::string& option, const fs::path& folder) {
  std::error_code ignored;
  check(fs::is_directory(folder, ignored), option, " ", folder.string(), ": no such folder");
  if (fs::exists(folder / "state.json", ignored)) return folder;
  const std::optional<fs::path> newest = newest_checkpoint(folder);
  check(newest.has_value(), option, " ", folder.string(),
        ": holds neither a checkpoint (state.json) nor a run with checkpoints",
        option == "--init-from"
            ? ", nor a Hugging Face model (config.json and safetensors); of an adapter of peft, "
              "merge_and_unload() makes one"
            : "",
        fs::exists(folder / "config.json", ignored)
            ? "; of a Hugging Face folder, --init-from FOLDER --steps 0 makes one"
            : "");
  return *newest;
}

void prune_checkpoints(const fs::path& run, std::int64_t keep, std::int64_t num_unproven) {
  if (keep == 0) return;
  const std::vector<fs::path> all = checkpoints_of(run);
  const std::int64_t num_good = std::ssize(all) - num_unproven;
  for (std::int64_t i = 0; i < std::ssize(all); ++i) {
    const bool is_kept = i < num_good ? i >= num_good - keep : i + 1 == std::ssize(all);
    if (!is_kept) delete_checkpoint(all[static_cast<std::size_t>(i)]);
  }
}

void check_can_save(const fs::path& run) {
  const fs::path folder = folder_of(run);
  const fs::path tried = folder / (std::string(kPartialPrefix) + "try");
  const bool is_new = !fs::exists(folder);
  make_folders(tried);
  fs::remove(tried);
  if (is_new) fs::remove(folder);
}

fs::path set_aside_checkpoint(const fs::path& run, std::int64_t step) {
  std::vector<fs::path> former;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_of(run))) {
    if (entry.path().filename().string().starts_with("diverged_")) former.push_back(entry.path());
  }
  for (const fs::path& checkpoint : former) delete_checkpoint(checkpoint);
  const fs::path aside = folder_of(run) / folder_name("diverged", step);
  rename_on_disk(checkpoint_path(run, step), aside);
  return aside;
}

void sweep_partial_checkpoints(const fs::path& run) {
  if (!fs::is_directory(folder_of(run))) return;
  std::vector<fs::path> leftovers;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_of(run))) {
    if (entry.path().filename().string().starts_with(kPartialPrefix))
      leftovers.push_back(entry.path());
  }
  for (const fs::path& leftover : leftovers) fs::remove_all(leftover);
}

}  // namespace ladder
