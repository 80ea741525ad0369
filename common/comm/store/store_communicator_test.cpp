// What only the store transport does. That it keeps the contract of all transports is tested by
// comm_test --store. Here ranks are threads, each with a connection of its own.
#include "common/comm/store/store_communicator.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include "common/comm/contract/rank_values.hpp"
#include "common/comm/store/key_value_store.hpp"
#include "common/comm/threads/run_as_threads.hpp"
#include "common/core/check.hpp"
#include "common/core/timer.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/expect_throws.hpp"
#include "common/testing/rank_test.hpp"

namespace ladder {
namespace {

class StoreTransport : public ::testing::Test {
 protected:
  // Runs `body` on so many ranks.
  void on_ranks(int size, const std::function<void(Communicator&)>& body, double timeout_s = 60) {
    run_as_threads(size, [&](Communicator& thread) {
      body(*store_communicator(connect(), "test/", thread.rank(), size, timeout_s));
    });
  }
  std::shared_ptr<KeyValueStore> connect() {
    return std::make_shared<KeyValueStore>("localhost", server_->port(), /*is_server=*/false, 60);
  }

  std::optional<KeyValueStore> server_{std::in_place, "localhost", 0, /*is_server=*/true, 60};
};

TEST_F(StoreTransport, LeavesNothingInTheStore) {
  const std::int64_t before = server_->num_keys();
  on_ranks(3, [](Communicator& comm) {
    for (int step = 0; step < 3; ++step) {
      const at::Tensor sum = values_of(comm.rank(), 1000, at::kFloat);
      comm.all_reduce(sum)->wait();
      EXPECT_TRUE(bits_equal(sum, fold_of_all(comm.size(), 1000, at::kFloat)));
      const auto part = comm.split(comm.rank() % 2, 0);
      const auto some = comm.split(comm.rank() - 1, 0);
      part->broadcast(sum, 0)->wait();
      const at::Tensor received = at::zeros({1000});
      const WorkPtr sent = comm.send(sum, (comm.rank() + 1) % 3, 7);
      comm.recv(received, (comm.rank() + 2) % 3, 7)->wait();
      sent->wait();
      comm.barrier();
    }
  });
  EXPECT_EQ(server_->num_keys(), before);
}

// The server drops the connection of a client that puts a longer value than it accepts.
TEST_F(StoreTransport, LongMessagesTravelInPackets) {
  const std::int64_t num_keys = server_->num_keys();
  on_ranks(2, [](Communicator& comm) {
    for (const std::int64_t more : {-1, 0, 1}) {
      const std::int64_t bytes = KeyValueStore::kMaxValueBytes + more;
      const at::Tensor sent = values_of(0, bytes, at::kInt).to(at::kByte);
      const at::Tensor tensor = comm.rank() == 0 ? sent.clone() : at::zeros({bytes}, at::kByte);
      const Traffic counted = sent_in(comm, [&] { comm.broadcast(tensor, 0)->wait(); });
      EXPECT_TRUE(bits_equal(tensor, sent));
      EXPECT_EQ(counted[CommOp::kBroadcast].messages, comm.rank() == 0 ? 1 : 0);
    }
  });
  EXPECT_EQ(server_->num_keys(), num_keys);
}

TEST_F(StoreTransport, RanksThatDisagreeOnTheOperationAreFound) {
  on_ranks(2, [](Communicator& comm) {
    const at::Tensor full = at::zeros({8});
    const bool is_first = comm.rank() == 0;
    const WorkPtr work = is_first ? comm.all_reduce(full) : comm.all_gather(at::zeros({4}), full);
    expect_throws<CheckError>([&] { work->wait(); },
                              {is_first ? "rank 0 of 2: all_reduce: " : "rank 1 of 2: all_gather: ",
                               is_first ? "rank 1 called all_gather" : "rank 0 called all_reduce"});
  });
}

// What a stranger has put under the key of rank 1's message, a packet under each of its keys.
TEST_F(StoreTransport, APacketOfTheWrongLengthIsRefused) {
  using Bytes = std::string;
  const std::size_t most = KeyValueStore::kMaxValueBytes / 2;  // bytes of a message in a packet
  const auto first = [](std::int64_t length, std::size_t num_bytes, CommOp op = CommOp::kSend) {
    Bytes packet(9 + num_bytes, 1);
    packet[0] = static_cast<char>(op);
    std::memcpy(packet.data() + 1, &length, sizeof length);
    return packet;
  };
  const auto expected = static_cast<std::int64_t>(most) + 4;
  const std::vector<std::vector<Bytes>> wrong = {{Bytes(3, 1)},
                                                 {first(expected, most + 1000), Bytes(4, 1)},
                                                 {first(expected, most), Bytes(most, 1)},
                                                 {first(expected, most), {}},
                                                 {first(expected, most)},
                                                 {first(-1, 0)},
                                                 {first(8, 9)},
                                                 {first(std::int64_t{1} << 62, most)},
                                                 {first(INT64_MAX, most), Bytes(most, 1)},
                                                 {first(expected, most, CommOp{77})}};
  const auto comm = store_communicator(connect(), "test/", 0, 2, /*timeout_s=*/2);
  for (std::size_t message = 0; message < wrong.size(); ++message) {
    const std::string key = concat("test/p7/1>0/", message);
    for (std::size_t i = 0; i < wrong[message].size(); ++i)
      connect()->put(i == 0 ? key : concat(key, "/", i), wrong[message][i]);
    const at::Tensor tensor = at::zeros({expected}, at::kByte);
    const WorkPtr work = comm->recv(tensor, 1, 7);
    SCOPED_TRACE(message);
    expect_throws<CheckError>([&] { work->wait(); },
                              {"rank 0 of 2: recv: the message of rank 1", key, "another program"});
  }
}

TEST_F(StoreTransport, ARankThatDoesNotComeIsNamedAfterTheTimeOut) {
  const auto wait_for_rank_1 = [](Communicator& comm) {
    if (comm.rank() == 1) return;
    const WorkPtr work = comm.all_reduce(at::zeros({8}));
    expect_throws<CheckError>(
        [&] { work->wait(); },
        {concat("rank ", comm.rank(), " of 3: all_reduce: "), "rank 1 has sent nothing for 0.5 s"});
  };
  on_ranks(3, wait_for_rank_1, /*timeout_s=*/0.5);
}

TEST_F(StoreTransport, AnAnnouncedFailureEndsTheWaiting) {
  const Timer timer;
  on_ranks(2, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      connect()->put(store_failure_key("test/"), "rank 1");
    } else {
      expect_throws<CheckError>([&] { comm.barrier(); },
                                {"rank 0 of 2: barrier: rank 1 has failed"});
    }
  });
  EXPECT_LT(timer.seconds(), 20);
}

TEST_F(StoreTransport, AServerThatHasGoneIsNamed) {
  const auto comm = store_communicator(connect(), "test/", 0, 2);
  const WorkPtr work = comm->all_reduce(at::zeros({8}));
  const std::string address = concat("localhost:", server_->port());
  server_.reset();
  expect_throws<CheckError>([&] { work->wait(); },
                            {"rank 0 of 2: all_reduce: the store at ", address});
}

}  // namespace
}  // namespace ladder
