// Judges recomputed(). First two layers that note their calls, one below the other, beside the same
// two without it: bits, calls, bytes, hooks, and what must be refused. Then models of both families.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/check.hpp"
#include "common/core/memory_ledger.hpp"
#include "common/core/torch_types.hpp"
#include "common/core/trace.hpp"
#include "common/model/build_layers.hpp"
#include "common/model/family.hpp"
#include "common/model/model_cost.hpp"
#include "common/model/recompute.hpp"
#include "common/model/weight_gradients.hpp"
#include "common/testing/draw.hpp"
#include "common/testing/examination.hpp"
#include "common/testing/judge_main.hpp"

namespace ladder {
namespace recompute {
namespace {

// The same for the same seed.
at::Tensor numbers(at::IntArrayRef shape, std::int64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed)));
}

struct Shape {
  std::int64_t rows, channels;
  std::int64_t seed;
};

// A layer that notes its calls: tanh(tanh(x · first + fixed) · second). `fixed` is frozen.
struct Probe {
  struct Seen {
    bool needs_input_gradient, has_graph;
  };

  Probe(const Shape& shape, std::int64_t number, bool is_trained) {
    fixed = numbers({shape.channels}, shape.seed);
    for (at::Tensor* weight : {&first, &second}) {
      *weight = numbers({shape.channels, shape.channels}, shape.seed + 10 * number++);
      weight->set_requires_grad(is_trained);
      if (is_trained) weight->mutable_grad() = at::zeros_like(*weight);
    }
    layer = {{"probe", {{"fixed", fixed}, {"first", first}, {"second", second}}},
             [this](const at::Tensor& x) {
               const at::Tensor y = x.matmul(first).add(fixed).tanh().matmul(second).tanh();
               calls.push_back({x.requires_grad(), y.requires_grad()});
               check(!is_backward || y.requires_grad(),  // libtorch would crash
                     "backward computes a layer again, and its output needs no gradient: is the "
                     "graph off, or is nothing to be trained?");
               return y;
             }};
  }
  Probe(const Probe&) = delete;  // its layer refers to it

  at::Tensor fixed, first, second;
  Layer layer;
  std::vector<Seen> calls;
  bool is_backward = false;
};

// What needs a gradient.
struct Needs {
  const char* what;
  bool input, lower, upper;
};
constexpr Needs kAll = {"all need a gradient", true, true, true};
constexpr Needs kWeights = {"only weights need a gradient", false, true, true};
constexpr Needs kNeeds[] = {kAll,
                            kWeights,
                            {"only the input needs a gradient", true, false, false},
                            {"only the upper layer's weights need a gradient", false, false, true},
                            {"nothing needs a gradient", false, false, false}};

struct Probes {
  Probes(const Shape& shape, const Needs& needs)
      : lower(shape, 1, needs.lower),
        upper(shape, 3, needs.upper),
        input(numbers({shape.rows, shape.channels}, shape.seed).set_requires_grad(needs.input)) {}
  std::vector<NamedTensor> leaves() const {
    return {{"the input", input},
            {"the lower layer's first weight", lower.first},
            {"the lower layer's second weight", lower.second},
            {"the upper layer's first weight", upper.first},
            {"the upper layer's second weight", upper.second}};
  }

  Probe lower, upper;
  at::Tensor input;
};

std::int64_t held_bytes() {
  return read_memory().live(MemoryCategory::kActivations);
}

class AfterSum final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit AfterSum(std::int64_t& count) : count_(count) {}
  void operator()(const at::Tensor& /*parameter*/) override { ++count_; }

 private:
  std::int64_t& count_;
};

class Checks : public Examination {
 public:
  explicit Checks(Communicator& comm) : Examination(comm) { say_only_first(); }

  // Two layers of this shape. `where` begins each fault.
  void judge_layers(const Shape& shape, const std::string& where) {
    shape_ = shape;
    begin_faults_with(where);
    examine_next(where + "gradients", &Checks::trains_as_without);
    examine_next(where + "bytes", &Checks::keeps_only_the_input);
    examine_next(where + "hooks", &Checks::runs_the_hooks_once);
    examine_next(where + "a second backward", &Checks::goes_backward_while_the_graph_is_there);
    begin_faults_with("");
  }

  // Two microbatches, whose gradients add up.
  void trains_as_without() {
    const std::string beginning = prefix_;
    for (const Needs& needs : kNeeds) {
      prefix_ = concat(beginning, "where ", needs.what, ": ");
      Probes plain(shape_, needs), again(shape_, needs);
      const auto lower = recomputed(again.lower.layer), upper = recomputed(again.upper.layer);
      for (int microbatch = 1; microbatch <= 2; ++microbatch) {
        again.lower.calls.clear(), again.upper.calls.clear();
        const at::Tensor between = lower(again.input * microbatch), y = upper(between);
        const at::Tensor wanted =
            plain.upper.layer.forward(plain.lower.layer.forward(plain.input * microbatch));
        expect("the output", y.detach(), wanted.detach());
        expect_forward("lower layer", again.lower);
        expect_forward("upper layer", again.upper);
        if (y.requires_grad() != wanted.requires_grad())
          return fault(y.requires_grad() ? "the output needs a gradient"
                                         : "the output needs none: backward will not come here");
        if (!y.requires_grad()) continue;
        int num_arrivals = 0;
        const auto arrive = [&](const at::Tensor&) {
          check(++num_arrivals == 1,
                "backward comes to the lower layer twice: the backward inside "
                "the upper one must end at its input");
        };
        if (between.requires_grad()) between.register_hook(arrive);
        const at::Tensor dy = numbers(y.sizes(), shape_.seed + 5);
        again.lower.is_backward = again.upper.is_backward = true;
        y.backward(dy);
        again.lower.is_backward = again.upper.is_backward = false;
        wanted.backward(dy);
        const bool trains_lower = needs.input || needs.lower;
        if (trains_lower) expect_backward("lower layer", again.lower, needs.input);
        expect_backward("upper layer", again.upper, trains_lower);
        expect_gradients(concat(" after ", microbatch, " of 2 microbatches"), again, plain);
      }
    }
  }

  void keeps_only_the_input() {
    Probes probes(shape_, kWeights);
    const auto layer = recomputed(probes.upper.layer);
    const auto new_input = [&] { return numbers(probes.input.sizes(), shape_.seed); };
    const auto input_bytes = static_cast<std::int64_t>(probes.input.nbytes());
    const std::int64_t before = held_bytes();
    const auto expect_held = [&](const char* when, std::int64_t wanted, const char* hint) {
      const std::int64_t found = held_bytes() - before;
      if (found != wanted)
        fault(concat(when, ", ", found, " bytes more are held, not ", wanted, hint));
    };
    constexpr std::int64_t kLoss = 4;
    {
      const at::Tensor loss = layer(probes.input).sum();
      expect_held("after the forward of an input that its owner holds", kLoss,
                  ", the loss: keep that input, no copy, and nothing else");
    }
    {
      const at::Tensor loss = layer(new_input()).sum();
      expect_held("after the forward of an input that nobody else holds", kLoss + input_bytes,
                  ", the loss and the input: nothing else may be kept");
      loss.backward();
      expect_held("after backward", kLoss,
                  ", the loss: the input, and what was computed again, must be gone");
    }
    probes.upper.calls.clear();
    const at::NoGradGuard evaluation;
    const at::Tensor y = layer(new_input());
    expect("the number of forwards of an evaluation", probes.upper.calls.size(), std::size_t{1});
    if (y.requires_grad() || probes.upper.calls.back().has_graph)
      fault("an evaluation has a graph, which keeps activations");
    expect_held("after an evaluation", input_bytes, ", the output: it needs no input later");
  }

  // ZeRO-3 takes the parameters away after forward, and a hook on the output brings them back. The
  // backward inside frees what it has used; whoever holds the output has one tensor more meanwhile.
  void runs_the_hooks_once() {
    Probes plain(shape_, kAll), again(shape_, kAll);
    std::int64_t num_parts = 0, num_sums = 0, before = 0, held = 0;
    const auto doubled = [&](const at::Tensor& part) {
      ++num_parts;
      held = held_bytes() - before;
      return 2 * part;
    };
    plain.upper.first.register_hook(doubled);
    again.upper.first.register_hook(doubled);
    torch::autograd::impl::set_post_acc_grad_hooks(again.upper.first,
                                                   std::make_unique<AfterSum>(num_sums));
    const at::Tensor dy = numbers(plain.input.sizes(), shape_.seed + 5);
    const at::Tensor parameter = again.upper.first.detach(), values = parameter.clone();
    before = held_bytes();
    plain.upper.layer.forward(plain.input).backward(dy);
    const std::int64_t most = held + static_cast<std::int64_t>(dy.nbytes());
    num_parts = 0;
    before = held_bytes();
    {
      const at::Tensor y = recomputed(again.upper.layer)(again.input);
      parameter.fill_(std::nan(""));
      y.register_hook([&](const at::Tensor&) {
        check(again.upper.calls.size() == 1 && num_parts == 0,
              "the layer is computed again before the hooks on its output have run, of which one "
              "brings the parameters back (ZeRO-3)");
        parameter.copy_(values);
      });
      y.backward(dy);
    }
    expect("the number of calls of a hook on a weight's gradient", num_parts, std::int64_t{1});
    expect("the number of calls of a hook that follows the addition to .grad", num_sums,
           std::int64_t{1});
    expect_gradients(", if one was away between forward and backward", again, plain);
    if (held > most)
      fault(concat("when backward comes to the first weight, ", held, " bytes are held, not ", most,
                   " at most: the backward inside must free what it has used"));
  }

  void goes_backward_while_the_graph_is_there() {
    Probes once(shape_, kAll), again(shape_, kAll);
    const auto layer = recomputed(again.upper.layer);
    const at::Tensor y = layer(again.input), dy = numbers(y.sizes(), shape_.seed + 5);
    once.upper.layer.forward(once.input).backward(dy);
    y.backward(dy, /*retain_graph=*/true);
    expect_gradients(" after backward with retain_graph", again, once);
    y.backward(dy);
    for (const NamedTensor& leaf : once.leaves()) leaf.tensor.grad().mul_(2);
    expect_gradients(" after a second backward", again, once);
    const at::Tensor z = layer(again.input);
    expect_error("a gradient that is to have a graph itself (create_graph)", {"--recompute none"},
                 [&] { torch::autograd::grad({z}, {again.input}, {dy}, true, true); });
    const at::Tensor changed = layer(again.input);
    again.input.detach().add_(1);
    try {
      changed.backward(dy);
      fault(
          "backward says nothing of an input that was changed in place, and computes from that: "
          "save_for_backward() remembers its version");
    } catch (const c10::Error&) {
    }
  }

  struct Training {
    std::int64_t rows;
    bool is_frozen;  // the embedding, so that the first block's input needs no gradient
    bool is_halved;  // the gradients of weights are computed later, from a queue
  };

  // A model with and without. `draw`: where the options are from.
  void trains(ModelOptions options, const Training& training, const Draw* draw) {
    std::string what = concat(traits_of(options.family).name(),
                              training.is_frozen ? " with a frozen embedding" : "",
                              training.is_halved ? ", in halves" : "");
    if (draw != nullptr)
      what = draw->announce(
          concat(what, ", ", options.layers, " blocks of ", options.channels, " channels, ",
                 training.rows, " rows of ", options.context, " tokens, ",
                 options.precision.params == NumberFormat::kFp32 ? "fp32" : "bf16"));
    examine_next(what, [&](Communicator&) {
      const auto gradients = [&](Recompute way) {
        prefix_ = concat(what, ", ", way == Recompute::kNone ? "without: " : "recomputed: ");
        options.recompute = way;
        const Model model = build_layers(options, 1);
        for (const NamedTensor& leaf : model.layers[0].unit.tensors)
          leaf.tensor.set_requires_grad(!training.is_frozen);
        for (int microbatch = 1; microbatch <= 2; ++microbatch)
          go_through(model, options, training);
        std::vector<NamedTensor> found;
        for (const NamedTensor& leaf : model.leaves())
          found.push_back({leaf.name, leaf.tensor.grad()});
        return found;
      };
      const std::vector<NamedTensor> wanted = gradients(Recompute::kNone);
      const std::vector<NamedTensor> found = gradients(Recompute::kBlocks);
      for (std::size_t i = 0; i < wanted.size(); ++i)
        expect_gradient(concat("'", wanted[i].name, "'"), found[i].tensor, wanted[i].tensor);
    });
  }

 private:
  void expect_forward(const std::string& layer, const Probe& probe) {
    expect("in forward, the number of calls of the " + layer, probe.calls.size(), std::size_t{1});
    if (probe.calls[0].has_graph)
      fault(concat("forward has a graph of the ", layer, ", which keeps everything"));
  }
  void expect_backward(const std::string& layer, const Probe& probe, bool needs_gradient) {
    expect("in backward, the number of calls of the " + layer, probe.calls.size() - 1,
           std::size_t{1});
    if (probe.calls.back().needs_input_gradient != needs_gradient)
      fault(concat("in backward, the input of the ", layer, " needs ",
                   needs_gradient ? "no gradient, in forward one"
                                  : "a gradient, in forward none: it is computed for nobody, and a "
                                    "linear layer is cut into other halves"));
  }
  void expect_gradients(const std::string& when, const Probes& found, const Probes& wanted) {
    for (std::size_t i = 0; i < wanted.leaves().size(); ++i)
      expect_gradient(wanted.leaves()[i].name + when, found.leaves()[i].tensor.grad(),
                      wanted.leaves()[i].tensor.grad());
  }
  void expect_gradient(const std::string& of, const at::Tensor& found, const at::Tensor& wanted) {
    if (wanted.defined()) {
      expect("the gradient of " + of, found, wanted);
    } else if (found.defined()) {
      fault(concat(of, " has a gradient and needs none"));
    }
  }

  // Forward and backward in scopes of their own, as on a thread of autograd's.
  void go_through(const Model& model, const ModelOptions& options, const Training& training) {
    const at::Tensor ids = at::randint(options.vocab_size, {training.rows, options.context},
                                       at::detail::createCPUGenerator(1), at::kLong);
    WeightGradientQueue queue, other_queue;
    TraceLog log, other_log;
    at::Tensor loss;
    {
      const DeferWeightGradients deferred(training.is_halved ? &queue : nullptr);
      const TraceScope traced(&log);
      const std::int64_t before = held_bytes();
      loss = at::cross_entropy_loss(widened(model.forward(ids)).flatten(0, 1), ids.flatten(), {},
                                    at::Reduction::Sum);
      constexpr std::int64_t kScalars = 2 * 4;  // the loss, and what it divides by
      const std::int64_t wanted = saved_activation_bytes(options, ids.size(0)) + kScalars;
      if (held_bytes() - before != wanted)
        fault(concat("forward keeps ", held_bytes() - before, " bytes, not ", wanted,
                     ", those of the blocks' inputs and of the head"));
    }
    const DeferWeightGradients deferred(&other_queue);
    const TraceScope traced(&other_log);
    loss.backward();
    if (!other_queue.empty() || queue.empty() == training.is_halved)
      fault(concat("the gradients of weights are ",
                   other_queue.empty() ? "computed at once" : "in the queue of backward's thread",
                   ", not in that of forward's thread"));
    queue.run();
    const std::int64_t wanted = options.recompute == Recompute::kBlocks ? options.layers : 0;
    expect("the number of spans 'recompute' in the trace of forward's thread", count(log), wanted);
    expect("the number of them in the trace of backward's thread", count(other_log),
           std::int64_t{0});
  }
  static std::int64_t count(const TraceLog& log) {
    return std::ranges::count(log.spans(), std::string_view("recompute"), &TracedSpan::name);
  }

  Shape shape_;
};

}  // namespace
}  // namespace recompute

std::vector<std::string> judge_linked(Communicator& comm) {
  install_memory_ledger();
  recompute::Checks checks(comm);
  checks.judge_layers({.rows = 5, .channels = 3, .seed = 1}, "");
  ModelOptions options = {.vocab_size = 13, .context = 8, .layers = 3, .heads = 2, .channels = 12};
  for (const ModelFamily family : all_families()) {
    options.family = family;
    options.tie_embeddings = family == ModelFamily::kGpt2;
    for (const bool is_frozen : {false, true}) {
      for (const bool is_halved : {false, true})
        checks.trains(options, {.rows = 2, .is_frozen = is_frozen, .is_halved = is_halved}, {});
    }
  }
  Draw draw(comm);
  const recompute::Shape shape = {
      .rows = draw.number(6, 20), .channels = draw.number(2, 9), .seed = draw.number(1, 999)};
  checks.judge_layers(shape, draw.announce(concat("two layers, ", shape.rows, " rows of ",
                                                  shape.channels, " numbers")) +
                                 ": ");
  options = {.family = draw.coin() ? ModelFamily::kGpt2 : ModelFamily::kLlama,
             .vocab_size = draw.number(2, 30),
             .context = draw.number(9, 16),
             .layers = draw.number(1, 4),
             .heads = draw.number(1, 3),
             .tie_embeddings = draw.coin()};
  options.channels = 2 * options.heads * draw.number(1, 4);
  options.precision.params = draw.coin() ? NumberFormat::kBf16 : NumberFormat::kFp32;
  checks.trains(options,
                {.rows = draw.number(1, 4), .is_frozen = draw.coin(), .is_halved = draw.coin()},
                &draw);
  return checks.faults();
}

}  // namespace ladder
