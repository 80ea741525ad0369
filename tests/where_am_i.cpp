// What a rank knows of its place, for two_machines_test: "rank 2 of 4: local rank 0 on node2, with 2
// cores, machines 0 0 1 1".
#include <iostream>
#include <thread>

#include "common/comm/launcher_environment.hpp"
#include "common/comm/world.hpp"
#include "common/core/check.hpp"

int main() {
  using namespace ladder;
  World world(Transport::kAuto);
  std::string machines;
  for (const int machine : world.machine_of_rank()) machines += concat(" ", machine);
  std::cout << concat("rank ", world.comm().rank(), " of ", world.comm().size(), ": local rank ",
                      world.local_rank(), " on ", host_name(), ", with ",
                      std::thread::hardware_concurrency(), " cores, machines", machines, "\n")
            << std::flush;
}
