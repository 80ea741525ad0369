// Two machines of some ranks each, which the scripts for clusters start. scripts/cluster/two_hosts.sh
// makes them of this one. Where it cannot, because it needs root and the kernel's namespaces, both
// are this one: then mpirun's ranks are on one machine, and torchrun's are still two groups.
//
// The scripts, mpirun, torchrun and the trainer are real. ssh and Slurm's commands are stand-ins.
#include <unistd.h>

#include <array>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "common/comm/launcher_environment.hpp"
#include "common/testing/process_test.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// Programs of the machines, in bin.
struct Script {
  const char* name;
  const char* text;
};
constexpr Script kScripts[] = {
    {"ssh", R"(while [[ $1 == -* ]]; do shift; done
shift
exec bash -c "$*"
)"},
    // Runs the job at once, on the first machine, from a copy of the script.
    {"sbatch", R"(export SLURM_JOB_ID=7 SLURM_JOB_NODELIST=$NODES SLURM_NTASKS_PER_NODE=$4
export SLURM_NTASKS=$(($2 * $4)) SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_SUBMIT_DIR=$PWD
cp "$5" job_script
exec bash job_script "${@:6}"
)"},
    {"scontrol", "tr , ' ' <<<$3\n"},
    // mpirun starts its tasks, which find the variables of Slurm, and none of mpirun's.
    {"srun", R"([[ $* == *--distribution=block* ]] || exit 1
while [[ $1 == --* ]]; do shift; done
tasks=$SLURM_NTASKS
unset "${!SLURM_@}"
exec mpirun --host "$HOSTS" -n $tasks --map-by slot --bind-to none --wdir "$PWD" bin/task "$@"
)"},
    {"task", R"(export SLURM_STEP_NUM_TASKS=$OMPI_COMM_WORLD_SIZE
export SLURM_PROCID=$OMPI_COMM_WORLD_RANK SLURM_LOCALID=$OMPI_COMM_WORLD_LOCAL_RANK
unset "${!OMPI_COMM_WORLD_@}"
exec "$@"
)"},
    // torchrun on machine N.
    {"node", R"(exec "$SOURCE/scripts/cluster/torchrun.sh" --nodes 2 --node-rank $1 \
  --ranks-per-node 2 --master $MASTER bin/program
)"}};

// How each launcher starts bin/program, two ranks on each machine.
constexpr char kMpirun[] =
    R"("$SOURCE/scripts/cluster/mpirun_hosts.sh" --hosts $HOSTS bin/program)";
constexpr char kSlurm[] =
    R"("$SOURCE/scripts/cluster/slurm.sbatch" --nodes 2 --ranks-per-node 2 bin/program)";
#ifdef LADDER_TORCHRUN
constexpr char kTorchrun[] =
    R"("$SSH" node2 "cd $(printf %q "$PWD") && exec bin/node 1" &
bin/node 0 && wait $!)";
#endif

// Folders that the machines share: they have a /tmp of their own.
struct InSharedFolder {
  InSharedFolder() { ::setenv("TMPDIR", "/var/tmp", 1); }
};

class TwoMachines : InSharedFolder, public ProcessTest {
 protected:
  TwoMachines() {
    ::unsetenv("TMPDIR");
    seconds_ = 60;
    fs::create_directory(folder_.path("bin"));
    for (const auto& [name, text] : kScripts) write_program(name, text);
    are_two_ = start(two_hosts() + "test -x " + step3()).wait(seconds_) == 0;
  }

  static std::string two_hosts() {
    return one_word(LADDER_SOURCE "/scripts/cluster/two_hosts.sh") + " ";
  }
  static std::string step3() { return trainer("step3_naive_dp"); }
  static std::string training(const std::string& options) {
    return concat(step3(), "--layers 1 --heads 2 --channels 20 --context 16 ", options, " ");
  }

  void write_program(const std::string& name, const std::string& text) const {
    fs::permissions(folder_.write("bin/" + name, "#!/bin/bash\n" + text), fs::perms::owner_all);
  }
  // What every rank runs. It leaves its process id.
  void set_program(const std::string& command) const {
    write_program("program", concat(R"(rank=${SLURM_STEP_NUM_TASKS:+$SLURM_PROCID}
echo $$ >pid_${rank:-${OMPI_COMM_WORLD_RANK:-$RANK}}
exec )",
                                    command, "\n"));
  }

  // Starts a command line of bash on the first machine. "$SSH" node2 COMMAND runs one on the other.
  Program on_machines(const std::string& command, int ranks_per_machine = 2) const {
    const std::string hosts =
        are_two_ ? concat("node1:", ranks_per_machine, ",node2:", ranks_per_machine)
                 : concat("localhost:", 2 * ranks_per_machine);
    std::string variables = concat(
        "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PATH=\"$PWD/bin:$PATH\" ",
        "SSH=\"${SSH:-$PWD/bin/ssh}\" HOSTS=", hosts,
        " NODES=", are_two_ ? "node1,node2" : "localhost",
        " MASTER=", are_two_ ? "node1" : "127.0.0.1", ":", 20000 + ::getpid() % 10000,
        " SOURCE=", one_word(LADDER_SOURCE));
#ifdef LADDER_TORCHRUN
    variables += concat(" LADDER_TORCHRUN=", one_word(LADDER_TORCHRUN));
#endif
    std::vector<std::string> words = {"bash", "-c", concat(variables, "\n", command)};
    if (are_two_) words.insert(words.begin(), LADDER_SOURCE "/scripts/cluster/two_hosts.sh");
    return Program(words, folder_.path());
  }
  std::string run_on_machines(const std::string& command, int ranks_per_machine = 2) const {
    Program program = on_machines(command, ranks_per_machine);
    EXPECT_EQ(program.wait(seconds_), 0) << command << "\n" << program.output();
    return program.output();
  }

  pid_t process_of(int rank) const {
    return std::stoi(read_text_file(folder_.path(concat("pid_", rank))));
  }
  void kill_rank(int rank) const {
    ::kill(process_of(rank), SIGKILL);
  }
  // Kills all processes on the rank's machine: those with its host name's namespace.
  void kill_machine_of(int rank) const {
    const auto machine_of = [](const std::string& process) {
      std::error_code ignored;
      return fs::read_symlink("/proc/" + process + "/ns/uts", ignored);
    };
    const fs::path machine = machine_of(std::to_string(process_of(rank)));
    if (machine.empty() || machine == machine_of("self")) return kill_like_a_machine(rank);
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string process = entry.path().filename();
      if (std::isdigit(process[0]) != 0 && machine_of(process) == machine)
        ::kill(std::stoi(process), SIGKILL);
    }
  }
  // Both ranks, and who has started them.
  void kill_like_a_machine(int rank) const {
    std::ifstream stat(concat("/proc/", process_of(rank), "/stat"));
    std::string id, name, state;
    pid_t parent = 0;
    if (stat >> id >> name >> state >> parent && parent > 1) ::kill(parent, SIGKILL);
    for (const int other : {rank, rank ^ 1}) kill_rank(other);
  }

  bool are_two_ = false;
};

// Two ranks on each machine. "By core" fills a machine before the next one; "by node" takes turns.
TEST_F(TwoMachines, EveryRankKnowsItsMachine) {
  const auto expect_places = [&](const std::string& said, const std::array<int, 4>& machines,
                                 const std::array<int, 4>& local_ranks) {
    std::string all;
    for (const int machine : machines) all += concat(" ", machine);
    for (std::size_t r = 0; r < 4; ++r) {
      EXPECT_THAT(said, HasSubstr(concat("rank ", r, " of 4: local rank ", local_ranks[r], " on ",
                                         are_two_ ? concat("node", machines[r] + 1) : host_name(),
                                         ", with ", std::thread::hardware_concurrency(),
                                         " cores, machines", all, "\n")));
    }
  };
  using Four = std::array<int, 4>;
  const Four by_core = are_two_ ? Four{0, 0, 1, 1} : Four{};
  const Four by_node = are_two_ ? Four{0, 1, 0, 1} : Four{};
  set_program(one_word(LADDER_BUILD "/tests/where_am_i"));
  for (const char* launch : {kMpirun, kSlurm}) {
    expect_places(run_on_machines(launch), by_core, are_two_ ? Four{0, 1, 0, 1} : Four{0, 1, 2, 3});
  }
  expect_places(run_on_machines(
                    "mpirun --host $HOSTS -n 4 --map-by node --bind-to none \"$PWD/bin/program\""),
                by_node, are_two_ ? Four{0, 0, 1, 1} : Four{0, 1, 2, 3});
#ifdef LADDER_TORCHRUN
  expect_places(run_on_machines(kTorchrun), {0, 0, 1, 1}, {0, 1, 0, 1});
#endif
}

TEST_F(TwoMachines, EightRanksByNodeTrainToTheBitsOfOneMachine) {
  const std::string command = training("--steps 3 --quiet");
  run(mpirun(8) + command + "--out one");
  set_program(command + "--out two");
  run_on_machines("mpirun --host $HOSTS -n 8 --map-by node --bind-to none \"$PWD/bin/program\"", 4);
  EXPECT_EQ(report_of("two")["world_size"], 8);
  run(compared("two", "one"), 0, {"equal to the bit: 3 steps"});
}

// A rank is killed, or a machine loses power. Started again, the job ends on the bits of a run that
// nothing has interrupted, on one machine.
TEST_F(TwoMachines, AKilledJobGoesOn) {
  const std::string options = "--steps 100 --save-every 10 --log-every 1 --resume auto --out ";
  run(mpirun(4) + training(options + "whole"));
  const auto run_until_killed = [&](const std::string& launch, int step, const auto& kill) {
    Program program = on_machines(launch);
    EXPECT_TRUE(program.wait_for_output(concat("step ", step, "/100"))) << program.output();
    kill();
    EXPECT_NE(program.wait(seconds_), 0) << program.output();
    EXPECT_THAT(program.output(), Not(HasSubstr("step 100/100")));
  };
  const auto expect_to_go_on = [&](const std::string& launch, const std::string& out) {
    EXPECT_THAT(run_on_machines(launch), HasSubstr("resumed after step "));
    EXPECT_EQ(report_of(out)["world_size"], 4);
    EXPECT_EQ(report_of(out)["param_hash"], report_of("whole")["param_hash"]);
  };

  set_program(training(options + "by_mpirun"));
  run_until_killed(kMpirun, 20, [&] { kill_rank(3); });
  run_until_killed(kMpirun, 40, [&] { kill_machine_of(2); });
  expect_to_go_on(kMpirun, "by_mpirun");

  set_program(training(options + "by_slurm"));
  run_until_killed(kSlurm, 20, [&] { kill_rank(2); });
  expect_to_go_on(kSlurm, "by_slurm");
#ifdef LADDER_TORCHRUN
  set_program(training(options + "by_torchrun"));
  run_until_killed(kTorchrun, 20, [&] {
    kill_machine_of(2);
    kill_machine_of(0);  // whose ranks would wait for ten minutes
  });
  expect_to_go_on(kTorchrun, "by_torchrun");
#endif
}

}  // namespace
}  // namespace ladder
