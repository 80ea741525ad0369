// For the judge, level 4: the cross-entropy of parts, beside that of whole logits in double. One
// process plays all owners, one after the other: twice, because what they add up is known only when
// the last one has filled in its own.
#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/core/memory_ledger.hpp"
#include "common/data/batch.hpp"
#include "common/testing/examination.hpp"
#include "step0_single_gpu/cross_entropy_in_parts.hpp"
#include "step8_pipeline_ga/tensor_parallel/exercise/f_and_g_checks.hpp"

namespace ladder::tensor_parallel {

class CrossEntropyChecks : public Examination {
 public:
  // vocab_size ≥ 4
  CrossEntropyChecks(Communicator& comm, std::int64_t vocab_size)
      : Examination(comm), vocab_size_(vocab_size) {
    say_only_first();
  }

  void judge(const std::string& where) {
    begin_faults_with(where);
    const std::int64_t V = vocab_size_;
    // Rows of each kind by themselves, so that the fault names it.
    for (std::int64_t token = 0; token < V; ++token)
      rows_are_right(concat("a target that is token ", token, " of ", V), random_logits(1),
                     at::full({1}, token, at::kLong));
    const at::Tensor far = random_logits(V);
    for (std::int64_t token = 0; token < V; ++token) far[token][token] += 300;
    rows_are_right("a largest logit that is 300 above all others", far,
                   at::arange(V).flip(0).contiguous());
    rows_are_right("logits of 1000 and more", random_logits(V) + 1000, at::arange(V));
    rows_are_right("logits of -1000 and less", random_logits(V) - 1000, at::arange(V));
    const at::Tensor targets = at::arange(V + 2).remainder(V);
    for (const std::int64_t row : {std::int64_t{1}, V}) targets[row] = kIgnoredTarget;
    rows_are_right("rows without a target", random_logits(V + 2), targets);
    rows_are_right("no target at all", random_logits(3), at::full({3}, kIgnoredTarget, at::kLong));
    examine_next(where + "bytes", &CrossEntropyChecks::keeps_exponentials_only);
    begin_faults_with("");
  }

 private:
  struct Result {
    at::Tensor loss, gradient;
  };

  at::Tensor random_logits(std::int64_t rows) const { return numbers({rows, vocab_size_}, 20) * 3; }

  void rows_are_right(const std::string& what, const at::Tensor& logits,
                      const at::Tensor& targets) {
    examine_next(what, [&](Communicator&) {
      const at::Tensor leaf = logits.to(at::kDouble).set_requires_grad(true);
      const at::Tensor wanted = at::cross_entropy_loss(leaf, targets, {}, at::Reduction::Sum);
      wanted.backward();
      for (const int total : {2, 3, 4}) {
        std::vector<Result> known;
        for (int owners = 1; owners <= total; ++owners) {
          const int own = total / owners;
          if (total % owners != 0 || (owners > 1 && own == 3)) continue;
          prefix_ = concat(what, ", ", total, " parts of ", owners,
                           owners == 1 ? " owner: " : " owners: ");
          const Result found = of_owners(logits, targets, total, owners);
          expect_close("the loss", found.loss, wanted.detach());
          expect_close("the gradient", found.gradient, 3 * leaf.grad());
          known.push_back(found);
          expect("against one owner, the loss", found.loss, known[0].loss);
          expect("against one owner, the gradient", found.gradient, known[0].gradient);
        }
      }
    });
  }

  // For backward, one number of each logit, and a few of each row.
  void keeps_exponentials_only() {
    constexpr std::int64_t kRows = 50;
    VocabParts parts;
    static_cast<Parts&>(parts) = all_parts(4);
    parts.vocab_size = 100;
    const at::Tensor leaf = numbers({kRows, 100}, 21).set_requires_grad(true);
    const at::Tensor targets = at::arange(kRows);
    const std::int64_t before = read_memory().total_live_bytes;
    at::Tensor logits = leaf * 1;  // which nobody else keeps
    const at::Tensor loss = cross_entropy_sum(logits, targets, parts);
    logits.reset();
    const std::int64_t kept = read_memory().total_live_bytes - before;
    const std::int64_t most = 4 * leaf.numel() + 128 * kRows;
    if (kept > most)
      fault(concat("forward keeps ", kept, " bytes for backward, more than ", most,
                   ": 4 for each logit, and a few for each row"));
  }

  // Of three times the loss. The gradient is that of all owners, side by side.
  Result of_owners(const at::Tensor& logits, const at::Tensor& targets, int total, int num_owners) {
    std::vector<at::Tensor> filled, gradients;
    at::Tensor loss;
    const at::Tensor targets_before = targets.clone();
    for (const bool is_known : {false, true}) {
      for (int owner = 0; owner < num_owners; ++owner) {
        if (num_owners == 1 && !is_known) continue;
        int num_sums = 0;
        VocabParts parts;
        parts.total = total;
        parts.own = total / num_owners;
        parts.first = owner * parts.own;
        parts.vocab_size = vocab_size_;
        if (num_owners > 1) {
          parts.start_sum = [&](const at::Tensor& values) -> Parts::Wait {
            check(++num_sums == 1, "a second sum over the owners, where one is enough");
            expect_filled(values, num_owners, targets.numel());
            return [&, values] {
              if (!is_known) return filled.push_back(values.clone());
              const auto of_owner = [&](int i) { return filled.at(static_cast<std::size_t>(i)); };
              at::Tensor(values).copy_(tree_sum(0, num_owners, of_owner, std::plus<at::Tensor>()));
            };
          };
        }
        const std::int64_t begin = parts.begin(parts.first),
                           end = parts.begin(parts.first + parts.own);
        const at::Tensor before = logits.slice(1, begin, end).contiguous(),
                         own = before.clone().set_requires_grad(true);
        const at::Tensor own_loss = cross_entropy_sum(own, targets, parts);
        if (num_owners > 1) expect("the number of sums over the owners", num_sums, 1);
        if (!is_known) continue;
        expect("the logits, which are not the loss's to change,", own.detach(), before);
        expect("the targets", targets, targets_before);
        if (!std::isfinite(own_loss.item<double>()))
          fault(concat("the loss is ", own_loss.item<double>(),
                       ": what is largest in all parts must be subtracted before exp()"));
        if (loss.defined()) expect("the loss of another owner", own_loss.detach(), loss);
        loss = own_loss.detach();
        const at::Tensor thrice = own_loss * 3;
        thrice.backward({}, /*retain_graph=*/true);
        const at::Tensor gradient = own.grad().clone();
        own.mutable_grad().reset();
        thrice.backward();
        expect("after a second backward, the gradient", own.grad(), gradient);
        gradients.push_back(gradient);
      }
    }
    in_bf16_and_three_dimensions(logits, targets, total);
    return {loss, at::cat(gradients, 1)};
  }

  void expect_filled(const at::Tensor& values, int num_owners, std::int64_t num_rows) {
    const std::int64_t wanted = 3 * num_owners * num_rows;
    if (values.numel() != wanted || values.scalar_type() != at::kFloat || !values.is_contiguous())
      fault(concat("the sum over the owners is of ", values.numel(), " numbers in ",
                   values.scalar_type(), ", not of 3 for each owner and row, ", wanted,
                   " in fp32, contiguous"));
  }

  // The same as of what they are in fp32, [rows, 1, V].
  void in_bf16_and_three_dimensions(const at::Tensor& logits, const at::Tensor& targets,
                                    int total) {
    VocabParts parts;
    static_cast<Parts&>(parts) = all_parts(total);
    parts.vocab_size = vocab_size_;
    const at::Tensor narrow = logits.to(at::kBFloat16).unsqueeze(1).set_requires_grad(true);
    const at::Tensor wide = narrow.detach().to(at::kFloat).squeeze(1).set_requires_grad(true);
    const at::Tensor found = cross_entropy_sum(narrow, targets.unsqueeze(1), parts),
                     wanted = cross_entropy_sum(wide, targets, parts);
    expect("of logits in bf16, the loss", found.detach(), wanted.detach());
    found.backward();
    wanted.backward();
    expect("of logits in bf16, the gradient", narrow.grad(),
           wide.grad().to(at::kBFloat16).unsqueeze(1));
  }

  void expect_close(const std::string& what, const at::Tensor& found, const at::Tensor& wanted) {
    if (!found.defined() || found.sizes() != wanted.sizes())
      return fault(concat(what, " is ", found.defined() ? concat(found.sizes()) : "undefined",
                          ", not ", wanted.sizes()));
    const at::Tensor distance = (found.to(at::kDouble) - wanted).abs() / wanted.abs().clamp_min(1);
    const at::Tensor is_wrong = distance.le(2e-5).logical_not().flatten();  // also if it is nan
    if (!is_wrong.any().item<bool>()) return;
    const auto first = is_wrong.nonzero()[0].item<std::int64_t>();
    const double is = found.flatten()[first].item<double>(),
                 should_be = wanted.flatten()[first].item<double>();
    fault(concat(what,
                 wanted.dim() == 0
                     ? ""
                     : concat(" of row ", first / vocab_size_, ", token ", first % vocab_size_),
                 " is ", is, ", not ", should_be));
  }

  std::int64_t vocab_size_;
};

}  // namespace ladder::tensor_parallel
