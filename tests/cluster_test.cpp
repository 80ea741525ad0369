// The scripts for several machines (scripts/cluster) with a real mpirun and a real torchrun, on
// this machine. Their command lines alone, and Slurm's, are checked by
// scripts/check_cluster_scripts.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "common/core/timer.hpp"
#include "common/testing/process_test.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Cluster : public ProcessTest {
 protected:
  Cluster() { seconds_ = 60; }

  static std::string training(const std::string& step, const std::string& options) {
    return concat(trainer(step), "--layers 1 --heads 2 --channels 20 --context 16 ", options);
  }
  static std::string step4(const std::string& options) {
    return training("step4_bucketed_ddp", options);
  }
  static std::string script(const std::string& name) {
    return one_word(concat(LADDER_SOURCE, "/scripts/cluster/", name)) + " ";
  }
  static std::string over_hosts() { return script("mpirun_hosts.sh") + "--hosts localhost:2 "; }
};

#ifdef LADDER_TORCHRUN
// The port is one that no other test uses at the same time.
std::string torchrun_script() {
  return concat("env LADDER_TORCHRUN=", one_word(LADDER_TORCHRUN), " ",
                one_word(LADDER_SOURCE "/scripts/cluster/torchrun.sh"),
                " --master localhost:", 20000 + ::getpid() % 10000, " ");
}
#endif

// Torchrun with the store that it serves, and where rank 0 has to serve one.
TEST_F(Cluster, EveryLauncherTrainsToTheSameBits) {
  const std::string options = "--steps 5 --eval-every 2 --eval-samples 6 --quiet --out ";
  std::vector<std::string> runs = {"hosts"};
  run(over_hosts() + step4(options + "hosts"));
#ifdef LADDER_TORCHRUN
  runs.insert(runs.end(), {"torchrun", "rank_0_serves"});
  run(torchrun_script() + "--ranks-per-node 2 " + step4(options + "torchrun"));
  run(concat("env OMP_NUM_THREADS=1 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 ",
             one_word(LADDER_TORCHRUN), " --standalone --nproc-per-node 2 --no-python ",
             step4(options + "rank_0_serves")));
#endif
  run(mpirun(2) + step4(options + "plain"));
  run(compared("hosts", "plain"), 0, {"equal to the bit: 5 steps"});
  const Json wanted = report_of("plain");
  for (const std::string& out : runs) {
    SCOPED_TRACE(out);
    const Json found = report_of(out);
    EXPECT_EQ(found["world_size"], 2);
    for (const char* key : {"losses", "grad_norms", "param_norms", "val_losses", "param_hash",
                            "traffic", "data_bytes_read"}) {
      EXPECT_EQ(found[key], wanted[key]) << key;
    }
    for (const int rank : {0, 1}) {
      std::int64_t bytes_sent = 0;
      for (const Json& operation : found["traffic"][rank])
        bytes_sent += operation["bytes_sent"].get<std::int64_t>();
      EXPECT_EQ(bytes_sent, found["traffic_theory"][rank]["bytes_sent"]) << "rank " << rank;
    }
  }
}

// Torchrun has an exit code of its own.
TEST_F(Cluster, SignalsAndExitCodesArePassedOn) {
  run(over_hosts() + step4("--stepz 1"), 2, {"rank 0: error: unknown option --stepz"});
  std::vector<std::pair<std::string, int>> launchers = {{over_hosts(), 75}};
#ifdef LADDER_TORCHRUN
  launchers.emplace_back(torchrun_script() + "--ranks-per-node 2 ", 1);
#endif
  for (const auto& [launcher, exit_code] : launchers) {
    const std::string out = concat("run", exit_code);
    run_until("step 3/", SIGTERM, launcher + step4("--steps 100000 --log-every 1 --out " + out),
              exit_code);
    EXPECT_TRUE(report_of(out)["was_stopped"].get<bool>());
  }
}

// Ctrl-C under "| tee LOG" ends tee as well: nobody reads what mpirun and the launcher say.
TEST_F(Cluster, AReaderThatHasGoneCostsNoStepAndNoSave) {
  const std::string command = over_hosts() + step4("--steps 100000 --log-every 1 --out run");
  Program program({"bash", "-c", "exec " + command + " > >(grep -m1 step\\ 1/ >first) 2>&1"},
                  folder_.path());
  const auto num_steps = [&] {
    std::ifstream metrics(folder_.path("run/metrics.jsonl"));
    return std::count(std::istreambuf_iterator<char>(metrics), {}, '\n');
  };
  const Timer timer;
  while (num_steps() < 50 && timer.seconds() < seconds_) ::usleep(10'000);
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(seconds_), 75);
  EXPECT_TRUE(report_of()["was_stopped"].get<bool>());
  EXPECT_THAT(read_text_file(folder_.path("first")), HasSubstr("step 1/"));
}

TEST_F(Cluster, WhoIsKilledIsNamed) {
  for (const char* who : {"rank 1 on ", "mpirun"}) {
    Program program = start(over_hosts() + step4("--steps 100000 --log-every 1"));
    ASSERT_TRUE(program.wait_for_output("step 3/")) << program.output();
    const pid_t mpirun = program.children().at(0);
    const std::vector<pid_t> ranks = children_of(mpirun);
    ::kill(*who == 'r' ? *std::max_element(ranks.begin(), ranks.end()) : mpirun, SIGKILL);
    EXPECT_EQ(program.wait(seconds_), 128 + SIGKILL);
    EXPECT_THAT(program.output(),
                AllOf(HasSubstr(concat("ladder: ", who)),
                      HasSubstr(" was killed by signal 9 (KILL): by somebody, or ")));
  }
}

// A system that is out of memory may kill it, or an IDE. Ranks that lived on would hold the
// folder's lock.
TEST_F(Cluster, IfTheLauncherIsKilledTheRanksEnd) {
  run_until("step 3/", SIGKILL, over_hosts() + step4("--steps 1000000 --log-every 1 --out run"),
            128 + SIGKILL);
  const auto is_free = [&] {
    try {
      const FolderLock lock(folder_.path("run"), "run");
      return true;
    } catch (const CheckError&) {
      return false;
    }
  };
  const Timer timer;
  while (!is_free() && timer.seconds() < 20) ::usleep(100'000);
  EXPECT_TRUE(is_free());
}

// A job that starts from another run's parameters, as the recipes for preference pairs and for
// self-distillation do. The script adds --resume auto from the first turn on (to a step's name, not
// to a path, so here it is given). Slurm's own commands are stand-ins; the script, mpirun and the
// trainer are real.
TEST_F(Cluster, ASlurmJobThatStartsFromAnotherRunSurvivesARequeue) {
  std::string pairs;
  for (int i = 0; i < 40; ++i)
    pairs += concat(R"({"prompt": "sort )", i, R"(", "chosen": "a )", i * i,
                    R"(", "rejected": "b"})", "\n");
  folder_.write("self_distillation.txt", numbered_lines(40));
  folder_.write("dpo.jsonl", pairs);
  fs::create_directory(folder_.path("bin"));
  folder_.write("bin/scontrol",
                "#!/bin/sh\nif [ $1 = show ]; then echo here; else echo $2 >>requeued; fi\n");
  folder_.write("bin/srun",
                concat("#!/bin/sh\nwhile [ \"${1#--}\" != \"$1\" ]; do shift; done\nexec ",
                       mpirun(2), "\"$@\"\n"));
  run("chmod +x bin/scontrol bin/srun");
  const auto job = [&](const std::string& step, const std::string& options) {
    return concat("env SLURM_JOB_ID=7 SLURM_JOB_NODELIST=here SLURM_NTASKS_PER_NODE=2 LADDER_ROOT=",
                  one_word(LADDER_SOURCE),
                  " PATH=", one_word(concat(folder_.path("bin"), ":", ::getenv("PATH"))), " ",
                  script("slurm.sbatch"), training(step, "--layers 2 --log-every 1 " + options));
  };
  run(job("step8_pipeline_ga", "--data self_distillation.txt --steps 3 --seed 9 --out start"));
  for (const std::string data : {"dpo.jsonl", "self_distillation.txt"}) {
    const std::string objective = data.substr(0, data.find('.'));
    const std::string command =
        job("step8_pipeline_ga/objectives",
            concat("--steps 120 --init-from start --data ", data, " --resume auto --objective ",
                   objective, " --out ", objective));
    run(command + "_whole");
    run_until("step 20/120", SIGUSR1, command, 75);
    EXPECT_EQ(read_text_file(folder_.path("requeued")), "7\n");
    run(command, 0, {"resumed after step "});
    const Json found = report_of(objective), wanted = report_of(objective + "_whole");
    EXPECT_GE(found["first_step"], 20);
    EXPECT_EQ(found["losses"].back(), wanted["losses"].back());
    EXPECT_EQ(found["param_hash"], wanted["param_hash"]);
    fs::remove(folder_.path("requeued"));
  }
}

#ifdef LADDER_TORCHRUN
// The layout that the script prints is what torchrun's processes find.
TEST_F(Cluster, TorchrunStartsTheLayoutThatTheScriptPrints) {
  folder_.write("say.sh", "#!/bin/sh\necho $RANK $LOCAL_RANK of $WORLD_SIZE >said_$RANK\n");
  const std::string start_two = torchrun_script() + "--ranks-per-node 2 ";
  const std::string say = one_word(folder_.path("say.sh"));
  const std::string layout = run(start_two + "--dry-run " + say);
  run("chmod +x say.sh");
  run(start_two + say);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(read_text_file(folder_.path(concat("said_", rank))),
              concat(rank, " ", rank, " of 2\n"));
    EXPECT_THAT(layout, HasSubstr(concat("\n", rank, "     localhost            ", rank, "     ")));
  }
}

// Rank 0 waits for a rank that has failed, and learns it from the store.
TEST_F(Cluster, AFailureOfOneOfTorchrunsRanksEndsAll) {
  folder_.write("text.txt", std::string(3000, 'x'));
  folder_.write("start.sh",
                "#!/bin/sh\nif [ $RANK = 1 ]; then mkdir other; cd other; fi\nexec \"$@\"\n");
  run("chmod +x start.sh");
  const Timer timer;
  run(torchrun_script() + "--ranks-per-node 2 " + one_word(folder_.path("start.sh")) + " " +
          step4("--data text.txt --steps 5 --out failed"),
      1, {"rank 1: error: text.txt: cannot be opened"});
  EXPECT_LT(timer.seconds(), 25) << "torchrun ends a rank that waits after 30 s";
}

TEST_F(Cluster, TorchrunsRanksCannotUseMpi) {
  const std::string ranks = torchrun_script() + "--ranks-per-node ";
  run(ranks + "2 " + step4("--transport mpi --out two"), 1,
      {"rank 0: error: --transport mpi: torchrun started 2 ranks without MPI", "mpirun or srun",
       "exitcode  : 2"});
  run(ranks + "2 " + step4("--stepz 2"), 1, {"rank 0: error: unknown option --stepz"});
  run(ranks + "1 " + training("step0_single_gpu", "--steps 2 --quiet --out one"));
  EXPECT_EQ(report_of("one")["world_size"], 1);
}
#endif

}  // namespace
}  // namespace ladder
