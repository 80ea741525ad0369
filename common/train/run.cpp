#include "common/train/run.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/core/check.hpp"
#include "common/core/torch_types.hpp"
#include "common/model/family.hpp"
#include "common/train/checkpoint/checkpoint.hpp"
#include "common/train/checkpoint/disk.hpp"
#include "common/train/options/option_table.hpp"
#include "common/train/run_start.hpp"

namespace ladder {

namespace fs = std::filesystem;

namespace {

constexpr const char* kQuanta = "quanta";

// Layers in other parts have other blocks, whose quanta are learned anew.
std::string quanta_name(const TrainOptions& options) {
  const std::int64_t parts = options.model.product_parts;
  return concat(kQuanta, parts > 1 ? concat("_of_", parts, "_parts") : "", ".safetensors");
}

// The options that affect the computation and differ from those of the run that wrote a checkpoint:
// the run then continues, but not as the old one would have. The data is among them, as its files
// may hold something else by now.
std::string describe_changes(const LoadedCheckpoint& saved, const TrainOptions& options,
                             const Json& data) {
  std::set<std::string> harmless = options_that_change_no_bits(options);
  if (saved.loss_scale) harmless.insert("loss-scale");  // it is for a run that begins
  const Json now = to_json(options);
  std::string changes;
  const auto add = [&](const std::string& name, const std::string& value,
                       const std::string& before) {
    changes += concat(changes.empty() ? "" : ", ", name, " ", value, " (was ", before, ")");
  };
  const Json& before = saved.config;
  for (const auto& [name, value] : now.items()) {
    if (harmless.contains(name) || !before.contains(name) || before[name] == value) continue;
    add("--" + name, to_text(value), to_text(before[name]));
  }
  const auto describe = [](const Json& contents) {
    const auto count = [&](const char* of) { return contents.value(of, std::int64_t{0}); };
    return concat(count("samples"), " samples, ", count("tokens"), " tokens, hash ",
                  contents.value("hash", ""));
  };
  for (const auto& [name, old] : saved.data_contents.items()) {
    const Json contents = data.value(name, old);
    if (contents.value("hash", "") != old.value("hash", ""))
      add(name + " data", describe(contents), describe(old));
  }
  return changes;
}

// The first value that is infinite or not a number; null if all are finite. With a loss scale, the
// gradient norm may be either: that step was skipped.
const char* non_finite_value(const StepRecord& record, bool has_loss_scale) {
  if (!std::isfinite(record.loss)) return "loss";
  if (!has_loss_scale && !std::isfinite(record.grad_norm)) return "gradient norm";
  if (!std::isfinite(record.param_norm)) return "parameter norm";
  return nullptr;
}

std::string explain_divergence(const StepRecord& record, const char* value, std::int64_t step,
                               const TrainOptions& options) {
  const char* clipping = options.clip_norm == 0 ? "turn clipping on (--clip-norm 1)"
                                                : "clip harder (a smaller --clip-norm)";
  return concat("step ", step, ": the ", value, " is not finite (loss ", record.loss,
                ", gradient norm ", record.grad_norm, ", parameter norm ", record.param_norm,
                "): training has diverged. Nothing of this step was saved. Try a ",
                "lower --lr (now ", options.lr.lr, "), a longer warmup (--warmup-steps, now ",
                options.lr.warmup_steps, "), or ", clipping);
}

}  // namespace

void StepMeter::begin_step(std::int64_t step) {
  waited_s_ = world_.simulated_wait_s().value_or(0);
  timer_.restart();
  span_.emplace("step", TraceNumber{"step", step});
  counted_ = world_.traffic();
  computing_.restart();
}

void StepMeter::end_step() {
  if (const std::optional<double> waited_s = world_.simulated_wait_s()) {  // no time has passed
    report_.simulated_waits_s.push_back(*waited_s - waited_s_);
    report_.step_seconds.push_back(computing_.seconds() + report_.simulated_waits_s.back());
  } else {
    report_.step_seconds.push_back(timer_.seconds());
  }
  span_.reset();
  count_traffic();
}

void StepMeter::count_traffic() {
  Traffic traffic = world_.traffic();
  traffic -= std::exchange(counted_, traffic);
  report_.traffic += traffic;
}

void StepMeter::read_held_memory() {
  keep_training_peaks();
  MemoryReading now = read_memory();
  if (now.total_live_bytes < report_.memory.total_live_bytes) return;
  now.peak_bytes = report_.memory.peak_bytes;
  now.peak_bytes_by_category = report_.memory.peak_bytes_by_category;
  report_.memory = now;
}

void StepMeter::keep_training_peaks() {
  const MemoryReading now = read_memory();
  MemoryReading& kept = report_.memory;
  kept.peak_bytes = std::max(kept.peak_bytes, now.peak_bytes);
  for (std::size_t i = 0; i < now.peak_bytes_by_category.size(); ++i)
    kept.peak_bytes_by_category[i] =
        std::max(kept.peak_bytes_by_category[i], now.peak_bytes_by_category[i]);
}

void StepMeter::measure_save(const std::function<void()>& save) {
  keep_training_peaks();
  reset_memory_peaks();
  save();
  report_.save_peak_bytes = std::max(report_.save_peak_bytes, read_memory().peak_bytes);
  reset_memory_peaks();
}

Run::Run(const TrainOptions& options, const Mesh& mesh)
    : options_(options),
      mesh_(mesh),
      files_(options, writes_for_all(options, mesh.world.rank())),
      console_(writes_for_all(options, mesh.world.rank()) && !options.output.is_quiet),
      meter_(mesh_.world, report_),
      exact_sums_(options.gradient_sum == SumMode::kExact
                      ? microbatches_of_all(options, mesh.num_replicas())
                      : 0) {
  if (needs_loss_scale(options)) loss_scaler_ = LossScaler(options.loss_scale);
  if (options.device.is_cpu() && !has_instructions_for(options.model.precision.params))
    console_.line(
        "this CPU has no instructions for such numbers: products are computed in fp32, and what is "
        "widened for them takes time");
  report_.num_replicas = mesh.num_replicas();
  report_.num_stages = mesh.num_stages();
  report_.num_tensor_ranks = mesh.num_tensor_ranks();
}

void Run::resume(TrainState state) {
  const Span span("load");
  const OutputOptions& output = options_.output;
  if (state.summed) exact_sums_.cover(state.summed->whole, state.summed->leaves);
  batches_ = state.batches;
  if (exact_sums_.is_on()) state.extra_files.push_back(quanta_file());
  state.model = options_.model;
  for (const StoredTensor& tensor : state.parameters.stored)
    report_.num_parameters += c10::multiply_integers(tensor.shape);
  std::optional<fs::path> checkpoint;
  if (output.resume == "auto") {
    const std::vector<fs::path> all = files_.checkpoints();
    if (!all.empty()) checkpoint = all.back();
  } else if (output.resume != "none") {
    checkpoint = checkpoint_in("--resume", output.resume);
  }
  std::string hashes;
  if (checkpoint) {
    hashes = load(*checkpoint, state);
  } else if (!output.init_from.empty()) {
    check(options_.start != nullptr, "--init-from ", output.init_from,
          " has not been looked at: call finalize()");
    hashes = options_.start->load(state, options_.model.tie_embeddings);
    console_.line("starting from the parameters of " + options_.start->describe());
  }
  report_.first_step = steps_.taken;
  const Json training = state.data_contents->value("training", Json());
  const BatchShape batch = batch_shape(options_);
  const double step_share =
      std::min(1.0, 1.0 * batch.num_data_parts * rows_per_step(options_, mesh_.num_replicas()) /
                        training["samples"].get<double>());
  // The last step of an epoch takes what is left of it.
  const std::int64_t in_epoch = std::max<std::int64_t>(1, state.batches->steps_per_epoch());
  const double epochs = static_cast<double>(options_.num_steps / in_epoch) +
                        static_cast<double>(options_.num_steps % in_epoch) * step_share;
  console_.line(concat("data                ", training["samples"], " samples, ",
                       training["tokens"], " tokens: ", options_.num_steps, " steps take ",
                       batch.has_fixed_size ? "" : "at least ", std::round(1e4 * epochs) / 1e4,
                       " epochs"));
  std::set<std::string> ignored = state.batches->training_data().ignored_members();
  ignored.merge(std::set(state.batches->validation_data().ignored_members()));
  std::string names;
  for (const std::string& name : ignored) names += concat(names.empty() ? "" : ", ", name);
  if (!names.empty())
    console_.line("ignored             members of the data's lines that say nothing here: " +
                  names);
  resumed_from_ = std::make_shared<Json>(
      Json{{"steps taken", steps_.taken},
           {"hashes of the checkpoint to resume from", hashes},
           {"hash of the reference model", state.reference.hash},
           {"is the checkpoint to resume from the newest in --out", steps_.saved == steps_.taken}});
}

std::string Run::load(const fs::path& checkpoint, const TrainState& state) {
  const fs::path& out = files_.folder();
  // Every rank looks, because all must know whether this state is already saved.
  const std::vector<fs::path> all = files_.checkpoints();
  const bool is_own = !all.empty() && lies_in(checkpoint, out);
  check(!is_own || fs::equivalent(all.back(), checkpoint), "--resume ", checkpoint.string(),
        " is not the newest checkpoint in --out ", out.string(), ", which holds ",
        all.empty() ? "" : all.back().filename().string(),
        ": choose another --out for another continuation");
  const LoadedCheckpoint loaded = load_checkpoint(checkpoint, state);
  files_.continue_from(checkpoint);
  steps_.taken = loaded.step;
  if (exact_sums_.is_on() && loaded.has_read_extras) exact_sums_.set_known();
  if (loaded.loss_scale) {
    loss_scaler_.restore(*loaded.loss_scale);
    const double begun_with = loaded.config.value("loss-scale", options_.loss_scale.initial);
    if (loss_scaler_.is_on() && begun_with != options_.loss_scale.initial)
      console_.line(concat("the loss scale goes on at ", loss_scaler_.scale(), ": --loss-scale ",
                           options_.loss_scale.initial, " is for a run that begins"));
  }
  check_usage(loaded.step <= options_.num_steps, "--steps ", options_.num_steps,
              " counts from the start, but ", checkpoint.string(), " is already at step ",
              loaded.step);
  if (is_own) {  // then the state of this step is already saved
    steps_.saved = loaded.step;
    files_.began_with(loaded.step);
    report_.param_hash = loaded.param_hash;
  }
  console_.line(concat("resumed after step ", loaded.step, " from ", checkpoint.string()));
  const std::int64_t saved_ranks = loaded.config.contains("ranks")
                                       ? count_in(loaded.config, "ranks", checkpoint / "state.json")
                                       : num_replicas();
  if (saved_ranks != num_replicas())
    console_.line(concat("saved by ", count_of(saved_ranks, "rank"), ", now on ", num_replicas(),
                         exact_sums_.is_on() ? ""
                                             : ": steps now see different rows and sum gradients "
                                               "in another order"));
  const bool has_workers =
      !loaded.extra_hashes.empty() && !loaded.extra_hashes.begin()->first.starts_with(kQuanta);
  if (has_workers && !loaded.has_read_extras) {
    console_.line(concat("this checkpoint also holds what was each worker's own (",
                         loaded.extra_hashes.begin()->first,
                         " …), which only the step that saved it "
                         "can use, on ",
                         count_of(saved_ranks, "rank"),
                         ": here, training goes on from the global parameters"));
  }
  state.restore(loaded);
  const std::string changes = describe_changes(loaded, options_, *state.data_contents);
  if (!changes.empty()) console_.line("unlike the run that saved it: " + changes);
  return loaded.param_hash + " " + loaded.optimizer_hash;
}

void Run::continue_from(std::int64_t step) {
  files_.go_on_after(step);
  steps_.taken = step;
  steps_.saved = -1;
}

bool Run::next_step() {
  if (!std::exchange(steps_.have_begun, true)) {
    StopSignal::begin_training();
    files_.open(options_, steps_.taken);
    reset_memory_peaks();
  }
  meter_.read_held_memory();
  if (is_done()) return false;
  meter_.begin_step(steps_.taken + 1);
  exact_sums_.set_scale(loss_scaler_.scale());
  steps_.learning_rate = ladder::learning_rate(
      options_.lr, steps_.taken - loss_scaler_.state().skipped_steps, options_.num_steps);
  mesh_.world.begin_step(steps_.taken + 1);
  return true;
}

bool Run::decide_step(const Clipping& clip) {
  steps_.is_repeated = !exact_sums_.learn(clip.scaled.block_sums);
  if (steps_.is_repeated) {
    ++report_.repeated_steps;
    batches_->step_back();
    return false;
  }
  const double before = loss_scaler_.scale();
  bool is_taken = false;
  try {
    is_taken = loss_scaler_.accepts(clip.norm);
  } catch (const CheckError& error) {
    throw CheckError(error.what() + files_.find_way_back(/*is_good=*/false));
  }
  if (!is_taken) {
    ++report_.skipped_steps;
    console_.line(concat("step ", steps_.taken + 1,
                         ": a gradient overflowed; step skipped, loss scale ", before, " -> ",
                         loss_scaler_.scale()));
  }
  return is_taken;
}

void Run::end_step(const StepRecord& record) {
  if (steps_.is_repeated) return;  // next_step() begins it again
  end_step();
  this->record({record});
}

void Run::end_step() {
  report_.learning_rates.push_back(steps_.learning_rate);
  meter_.end_step();
  steps_.unrecorded.push_back(++steps_.taken);
}

void Run::record(const std::vector<StepRecord>& records) {
  const std::vector<std::int64_t> steps = std::exchange(steps_.unrecorded, {});
  for (std::size_t i = 0; i < records.size(); ++i) log_step(steps.at(i), records[i]);
  meter_.count_traffic();
}

void Run::log_step(std::int64_t step, const StepRecord& record) {
  const std::size_t i = report_.losses.size();
  // No later step can repair it: save nothing.
  if (const char* value = non_finite_value(record, needs_loss_scale(options_))) {
    files_.log({{"step", step}, {"diverged", concat("the ", value, " is not finite")}});
    const bool began_well = std::isfinite(record.loss) && std::isfinite(record.grad_norm);
    throw Diverged(explain_divergence(record, value, step, options_) +
                   files_.find_way_back(began_well));
  }
  if (std::isfinite(record.grad_norm)) files_.was_finite(step);
  const double seconds = report_.step_seconds[i];
  report_.losses.push_back(record.loss);
  report_.grad_norms.push_back(record.grad_norm);
  report_.param_norms.push_back(record.param_norm);
  report_.denominators.push_back(static_cast<std::int64_t>(record.denominator));
  report_.metrics.push_back(record.metrics);
  steps_.is_stopping = record.is_stop_requested;

  const BatchShape batch = batch_shape(options_);
  const bool is_logged =
      step % options_.output.log_every == 0 || i == 0 || (step == steps_.taken && is_done());
  if (i == 1) pace_ = {};  // without the warm-up
  pace_.add(record.denominator, seconds);
  pace_since_line_.add(record.denominator, seconds);
  const double mean_speed = report_.counted_per_second = pace_.per_second();
  const double seconds_per_step =
      mean_speed > 0 && record.denominator > 0 ? record.denominator / mean_speed : seconds;
  std::optional<double> seconds_left;
  if (i > 0) seconds_left = (options_.num_steps - step) * seconds_per_step;
  const bool is_tokens = batch.is_of_tokens();
  const double speed = pace_since_line_.per_second();
  const std::int64_t flops = is_tokens ? training_flops(options_.model) : 0;
  const std::int64_t peak_bytes = has_own_ledger(options_) ? read_memory().peak_bytes : 0;
  console_.progress({step, options_.num_steps, record, report_.learning_rates[i], speed, seconds,
                     seconds_left, batch.mean_over, speed * static_cast<double>(flops), peak_bytes},
                    is_logged);
  if (!is_logged) return;
  pace_since_line_ = {};
  Json line = {{"step", step},
               {"loss", finite_or_null(record.loss)},
               {"grad_norm", finite_or_null(record.grad_norm)},
               {"param_norm", finite_or_null(record.param_norm)},
               {"learning_rate", report_.learning_rates[i]},
               {is_tokens ? "target_tokens" : "units", report_.denominators.back()},
               {"step_seconds", seconds},
               {is_tokens ? "tokens_per_second" : "units_per_second", speed},
               {"live_bytes", nullptr}};
  if (has_own_ledger(options_)) line["live_bytes"] = read_memory().total_live_bytes;
  if (loss_scaler_.is_on()) line["loss_scale"] = loss_scaler_.scale();  // of the next step
  for (const auto& [name, value] : record.metrics) line[name] = finite_or_null(value);
  files_.log(line);
}

bool Run::should_evaluate() const {
  const std::int64_t every = options_.output.eval_every;
  return every > 0 && !steps_.is_stopping && !steps_.is_repeated &&
         (steps_.taken % every == 0 || steps_.taken == options_.num_steps);
}

void Run::record_validation(double loss, const Metrics& metrics) {
  if (loss == kStoppedLoss) return;
  const std::int64_t step = steps_.taken;
  ValidationLoss& entry = report_.val_losses.emplace_back(ValidationLoss{step, loss, metrics});
  std::string text = concat("step ", step, "/", options_.num_steps, "   validation loss ", loss);
  Json line = {{"step", step}, {"val_loss", finite_or_null(loss)}};
  const TargetText validated = batches_ == nullptr ? TargetText() : batches_->validation_text();
  if (batch_shape(options_).is_of_tokens() && validated.num_bytes > 0) {
    entry.nats_per_byte = loss * static_cast<double>(validated.num_targets) /
                          static_cast<double>(validated.num_bytes);
    text += concat("   ", *entry.nats_per_byte, " nats per byte");
    line["val_nats_per_byte"] = finite_or_null(*entry.nats_per_byte);
  }
  for (const auto& [name, value] : metrics) {
    text += concat("   ", name, " ", value);
    line["val_" + name] = finite_or_null(value);
  }
  console_.line(text);
  files_.log(line);
}

bool Run::should_sample() const {
  return !options_.output.sample.empty() && !steps_.is_stopping && is_done();
}

void Run::record_sample(const std::string& text) {
  report_.sample = text;
}

bool Run::should_save() const {
  return options_.output.save_every > 0 && steps_.taken % options_.output.save_every == 0 &&
         steps_.taken != steps_.saved && !steps_.is_repeated;
}

void Run::save(const TrainState& state) {
  const Span span("save");
  meter_.measure_save([&] { write_state(state); });
}

ExtraFile Run::quanta_file() const {
  return {quanta_name(options_), whole_tensors(exact_sums_.quanta_by_unit())};
}

void Run::write_state(TrainState state) {
  steps_.saved = steps_.taken;
  if (exact_sums_.is_known()) state.extra_files.push_back(quanta_file());
  if (!files_.are_written()) {
    files_.has_saved(steps_.taken);
    report_.param_hash = tensor_hash(state.parameters);
    const TensorVisitor nothing = [](const std::string&, const at::Tensor&) {};
    state.optimizer.for_each(nothing);  // sends its part
    for (const ExtraFile& file : state.extra_files) file.tensors.for_each(nothing);
    return;
  }
  Json config = to_json(options_);
  config["ranks"] = num_replicas();
  SaveOptions options = {.copy_dtype = to_torch(options_.output.save_dtype)};
  const LossScaleState& loss_scale = loss_scaler_.state();  // perhaps of an earlier run with fp16
  if (loss_scaler_.is_on() || loss_scale != LossScaleState()) options.loss_scale = loss_scale;
  const auto saved = save_checkpoint(files_.folder(), steps_.taken, state, config, options);
  report_.param_hash = saved.param_hash;
  files_.has_saved(steps_.taken);
  console_.line(concat("saved ", saved.path.string()));
}

void Run::finish(const TrainState& state) {
  StopSignal::begin_end();
  report_.resident = read_resident_memory();
  if (steps_.saved != steps_.taken && !is_simulated(options_)) save(state);
  report_.resident.peak_bytes = read_resident_memory().peak_bytes;
  report_.data_bytes_read = state.batches->training_data().bytes_read();
  report_.token_bytes = state.batches->training_data().token_bytes();
  report_.batch_counts = state.batches->counts();
  report_.was_stopped = steps_.is_stopping && steps_.taken < options_.num_steps;
  if (report_.was_stopped) {
    console_.line(
        concat("stopped on a signal after step ", steps_.taken, "; continue with --resume auto"));
  } else if (steps_.is_stopping) {
    console_.line("a signal came in the last step: the run is saved, and no more was done");
  }
}

namespace {

template <class Group>
StepSums summed(const StepSums& own, Group& group, CallSite where) {
  std::array<double, 2> sums = {own.loss, own.is_stop_requested ? 1.0 : 0.0};
  all_reduce_sum(sums, group, where);
  return {sums[0], sums[1] > 0};
}

}  // namespace

StepSums all_reduce_sum(const StepSums& own, Communicator& comm, CallSite where) {
  return summed(own, comm, where);
}

StepSums all_reduce_sum(const StepSums& own, const Mesh& mesh, CallSite where) {
  return summed(own, mesh, where);
}

}  // namespace ladder
