// For the grader: passes everything on to a real communicator and writes down what is all-reduced,
// and how it is waited for.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/comm/communicator.hpp"

namespace ladder::step4 {

struct Recording {
  std::vector<at::Tensor> all_reduced;  // in the order in which they were started
  int num_tests = 0;                    // calls of test() on what was started
  int num_waits = 0;
};

class RecordingCommunicator final : public Communicator {
 public:
  explicit RecordingCommunicator(Communicator& inner) : inner_(inner) {}
  const Recording& recording() const { return *recording_; }

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  WorkPtr all_reduce(at::Tensor inout) override {
    recording_->all_reduced.push_back(inout);
    return std::make_unique<RecordedWork>(inner_.all_reduce(inout), recording_);
  }
  WorkPtr reduce_scatter(const at::Tensor& full, at::Tensor shard) override {
    return inner_.reduce_scatter(full, shard);
  }
  WorkPtr all_gather(const at::Tensor& shard, at::Tensor full) override {
    return inner_.all_gather(shard, full);
  }
  WorkPtr broadcast(at::Tensor inout, int root) override { return inner_.broadcast(inout, root); }
  WorkPtr send(const at::Tensor& tensor, int peer, int tag) override {
    return inner_.send(tensor, peer, tag);
  }
  WorkPtr recv(at::Tensor tensor, int peer, int tag) override {
    return inner_.recv(tensor, peer, tag);
  }
  void barrier() override { inner_.barrier(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return inner_.split(color, key);
  }
  Traffic traffic() const override { return inner_.traffic(); }

 private:
  class RecordedWork final : public Work {
   public:
    RecordedWork(WorkPtr inner, std::shared_ptr<Recording> recording)
        : inner_(std::move(inner)), recording_(std::move(recording)) {}
    bool test() override {
      ++recording_->num_tests;
      return inner_->test();
    }
    void wait() override {
      ++recording_->num_waits;
      inner_->wait();
    }

   private:
    WorkPtr inner_;
    std::shared_ptr<Recording> recording_;
  };

  Communicator& inner_;
  std::shared_ptr<Recording> recording_ = std::make_shared<Recording>();
};

}  // namespace ladder::step4
