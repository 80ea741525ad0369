// For the judge, level 5: what owners with rows of their own gather, add up and return, forward and
// backward; and the gradients of weights that are used in pieces of rows, whoever has the pieces.
// Each rank is an owner.
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/core/tree_sum.hpp"
#include "common/model/parts.hpp"
#include "common/testing/examination.hpp"
#include "step8_pipeline_ga/tensor_parallel/exercise/f_and_g_checks.hpp"

namespace ladder::tensor_parallel {

class RowChecks : public Examination {
 public:
  // Sequences of `tokens` tokens for each rank.
  RowChecks(Communicator& comm, std::int64_t sequences, std::int64_t tokens, std::int64_t channels)
      : Examination(comm),
        own_shape_{sequences, tokens, channels},
        whole_shape_{sequences, tokens * comm.size(), channels} {
    say_only_first();
  }

  void judge(const std::string& where) {
    begin_faults_with(where);
    if (comm_.size() > 1) {
      examine_next(where + "to_parts()", &RowChecks::gathers_before_parts);
      examine_next(where + "from_parts()", &RowChecks::scatters_behind_parts);
    }
    for (const int total : {2, 3, 4, 6})
      uses_weights_in_pieces(where + "one process", total, Rows::kOfOneProcess);
    for (const int own : {1, 2, 4}) {
      if (comm_.size() == 1) break;
      const int total = own * comm_.size();
      uses_weights_in_pieces(where + "rows of each rank", total, Rows::kOfEachRank);
      uses_weights_in_pieces(where + "all rows on each rank", total, Rows::kNotCut);
    }
    begin_faults_with("");
  }

  void gathers_before_parts(LockstepCommunicator& comm) {
    prefix_ = "to_parts(): ";
    const Parts parts = parts_on(comm, 1);
    for (const bool is_transposed : {false, true}) {  // as a product may leave it
      const at::Tensor x = laid_out(own_shape_, is_transposed, comm.rank()).set_requires_grad(true),
                       before = x.detach().clone();
      const std::size_t start = comm.calls().size();
      const Meanwhile meanwhile = std::make_shared<WeightGradientQueue>();
      const at::Tensor weight = numbers({3}, 2).set_requires_grad(true);
      int num_meanwhile = 0;
      const at::Tensor all = to_parts(x, parts, meanwhile);
      expect("what it returns, all owners' rows in turn,", all.detach(),
             in_turn([&](int rank) { return numbers(own_shape_, rank); }));
      expect("its input", x.detach(), before);
      expect_calls(comm, start, "forward", {"all_gather"});
      const at::Tensor dy = laid_out(whole_shape_, is_transposed, 10 + comm.rank()),
                       dy_before = dy.clone();
      meanwhile->push({weight, [&] {
                         num_meanwhile += is_traveling_ ? 1 : 0;
                         return numbers({3}, 3);
                       }});
      all.backward(dy);
      expect("the gradient of x", x.grad(), own_rows(sum_of_all(10), comm.rank()));
      expect("the gradient that autograd has passed, and others may use,", dy, dy_before);
      expect("the number of gradients computed while the sum travels", num_meanwhile, 1);
      expect_calls(comm, start, "forward and backward", {"all_gather", "reduce_scatter"});
    }
    const at::NoGradGuard evaluation;
    expect("in an evaluation, what it returns", to_parts(numbers(own_shape_, comm.rank()), parts),
           in_turn([&](int rank) { return numbers(own_shape_, rank); }));
  }

  void scatters_behind_parts(LockstepCommunicator& comm) {
    prefix_ = "from_parts(): ";
    const Parts parts = parts_on(comm, 1);
    for (const bool is_transposed : {false, true}) {
      const at::Tensor own = laid_out(whole_shape_, is_transposed, 10 + comm.rank())
                                 .set_requires_grad(true),
                       before = own.detach().clone();
      const std::size_t start = comm.calls().size();
      const at::Tensor y = from_parts(own, parts);
      expect("what it returns, this owner's rows of the sum,", y.detach(),
             own_rows(sum_of_all(10), comm.rank()));
      expect("its input", own.detach(), before);
      expect_calls(comm, start, "forward", {"reduce_scatter"});
      y.backward(laid_out(own_shape_, is_transposed, comm.rank()));
      expect("the gradient of its input, of all owners' rows,", own.grad(),
             in_turn([&](int rank) { return numbers(own_shape_, rank); }));
      expect_calls(comm, start, "forward and backward", {"reduce_scatter", "all_gather"});
    }
  }

  enum class Rows { kOfOneProcess, kOfEachRank, kNotCut };

  // x · scale + the position's shift, in as many pieces of rows as there are parts.
  void uses_weights_in_pieces(const std::string& what, int total, Rows rows_of) {
    const bool are_cut = rows_of == Rows::kOfEachRank;
    const int num_here = are_cut ? total / comm_.size() : total;
    const std::int64_t num_rows = c10::multiply_integers(whole_shape_) / whole_shape_[2],
                       T = whole_shape_[1], C = whole_shape_[2];
    const at::Tensor all = numbers(whole_shape_, 20).flatten(0, 1),
                     all_dy = numbers(whole_shape_, 21).flatten(0, 1);
    const auto begin_of = [&](int piece) { return part_begin(num_rows, piece, total); };
    std::string begins;
    const auto act = [&](const at::Tensor& rows, const std::vector<at::Tensor>& weights,
                         std::int64_t first) {
      begins += concat(begins.empty() ? "" : " ", first);
      const at::Tensor positions = at::arange(first, first + rows.size(0)).remainder(T);
      return rows * weights[0] + weights[1].index_select(0, positions);
    };
    const auto weights = [&] {
      return std::vector{numbers({C}, 22).set_requires_grad(true),
                         numbers({T, C}, 23).set_requires_grad(true)};
    };
    const auto own = [&](const at::Tensor& rows) {
      return are_cut ? own_rows(rows.view(whole_shape_), comm_.rank()) : rows.view(whole_shape_);
    };
    const auto parts_of = [&](Communicator& comm) {
      prefix_ = concat(total, " pieces of rows",
                       are_cut ? concat(", ", num_here, " of them on each rank: ")
                       : rows_of == Rows::kNotCut ? ", all of them on each rank: "
                                                  : " in one process: ");
      if (rows_of == Rows::kOfOneProcess) return all_parts(total);
      Parts parts = parts_on(comm, total / comm.size());
      if (!are_cut) parts.gather_rows = nullptr, parts.start_sum_of_rows = nullptr;
      return parts;
    };
    examine_next(what, [&](LockstepCommunicator& comm) {
      const at::NoGradGuard evaluation;
      const at::Tensor wanted = own(act(all, weights(), 0));
      std::string wanted_begins;
      for (int i = 0; i < num_here; ++i)
        wanted_begins +=
            concat(i > 0 ? " " : "", begin_of(i + (are_cut ? num_here * comm.rank() : 0)));
      const Parts parts = parts_of(comm);
      begins.clear();
      const at::Tensor y = over_rows(parts, own(all), weights(), act);
      expect("the row that each begins at", begins, wanted_begins);
      expect("what over_rows() returns", y, wanted);
    });
    examine_next(what + ", backward", [&](LockstepCommunicator& comm) {
      const std::vector<at::Tensor> found = weights();
      const at::Tensor x = own(all).clone().set_requires_grad(true);
      const at::Tensor y = over_rows(parts_of(comm), x, found, act);
      expect("the number of sums in forward", comm.calls().size(), std::size_t{0});
      y.backward(own(all_dy));
      expect("the gradient of x", x.grad(), own(all_dy * found[0].detach()));
      for (const std::size_t weight : {0, 1}) {
        const auto of_piece = [&](int piece) {
          const std::vector<at::Tensor> leaves = weights();
          act(all.slice(0, begin_of(piece), begin_of(piece + 1)), leaves, begin_of(piece))
              .backward(all_dy.slice(0, begin_of(piece), begin_of(piece + 1)));
          return leaves[weight].grad();
        };
        expect(weight == 0 ? "the gradient of a weight, added up by the tree over all pieces,"
                           : "the gradient of positions, added up by the tree over all pieces,",
               found[weight].grad(), tree_sum(0, total, of_piece, std::plus<at::Tensor>()));
      }
      expect("the number of sums in backward, one for each weight that owners use in other rows,",
             comm.calls().size(), static_cast<std::size_t>(are_cut ? 2 : 0));
    });
  }

 private:
  // Rows are added up by the one who waits, from what they were.
  Parts parts_on(Communicator& comm, int own) {
    const auto gather_rows = [&comm](const at::Tensor& rows) {
      expect_rows(rows, "gather_rows");
      const at::Tensor all = at::empty({rows.size(0) * comm.size(), rows.size(1)});
      comm.all_gather(rows, all)->wait();
      return all;
    };
    const auto start_sum_of_rows = [this, &comm](const at::Tensor& all,
                                                 const at::Tensor& rows) -> Parts::Wait {
      expect_rows(all, "start_sum_of_rows");
      expect_rows(rows, "start_sum_of_rows");
      is_traveling_ = true;
      return
          [this, &comm, summands = all.clone(), memory = all.storage().getWeakStorageImpl(), rows] {
            check(!memory.expired(), "the summands are gone before their sum is there");
            is_traveling_ = false;
            comm.reduce_scatter(summands, rows)->wait();
          };
    };
    return {.total = own * comm.size(),
            .first = own * comm.rank(),
            .own = own,
            .start_sum = [&comm](const at::Tensor& values) -> Parts::Wait {
              return [sum = std::shared_ptr(comm.all_reduce(values))] { sum->wait(); };
            },
            .gather_rows = gather_rows,
            .start_sum_of_rows = start_sum_of_rows};
  }
  static void expect_rows(const at::Tensor& rows, const std::string& name) {
    check(rows.dim() == 2 && rows.is_contiguous(), name, "() gets ", rows.sizes(),
          rows.is_contiguous() ? "" : ", not contiguous", "; it takes rows, [N, C], as they lie");
  }
  void expect_calls(const LockstepCommunicator& comm, std::size_t start, const std::string& when,
                    const std::vector<std::string>& wanted) {
    std::string found, all;
    for (std::size_t i = start; i < comm.calls().size(); ++i)
      found += concat(i > start ? ", " : "", comm.calls()[i].substr(0, comm.calls()[i].find(' ')));
    for (const std::string& call : wanted) all += concat(all.empty() ? "" : ", ", call);
    expect("what is called in " + when, found, all);
  }

  // The same numbers, with or without gaps.
  static at::Tensor laid_out(at::IntArrayRef shape, bool is_transposed, std::int64_t seed) {
    const at::Tensor all = numbers(shape, seed);
    return is_transposed ? all.transpose(1, 2).contiguous().transpose(1, 2) : all;
  }
  // Of all owners, one after the other.
  at::Tensor in_turn(const std::function<at::Tensor(int)>& of_rank) const {
    std::vector<at::Tensor> all;
    for (int rank = 0; rank < comm_.size(); ++rank) all.push_back(of_rank(rank).flatten(0, 1));
    return at::cat(all).view(whole_shape_);
  }
  at::Tensor sum_of_all(std::int64_t seed) const {
    return tree_sum(
        0, comm_.size(), [&](int rank) { return numbers(whole_shape_, seed + rank); },
        std::plus<at::Tensor>());
  }
  at::Tensor own_rows(const at::Tensor& all, int rank) const {
    return all.flatten(0, 1).chunk(comm_.size())[static_cast<std::size_t>(rank)].reshape(
        own_shape_);
  }

  std::vector<std::int64_t> own_shape_, whole_shape_;
  bool is_traveling_ = false;  // a sum of rows
};

}  // namespace ladder::tensor_parallel
