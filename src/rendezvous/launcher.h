// SPDX-License-Identifier: Apache-2.0
// Rendezvous "env": rank, world and rendezvous as a launcher's environment says. Pure: the
// environment is given.
//
// In this order, since one launcher may start another and the inner one's names count:
//
//   PARALLAX_RANK, PARALLAX_WORLD, PARALLAX_RENDEZVOUS
//   torchrun    RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
//   Open MPI    OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_SIZE; the job's id from PMIX_NAMESPACE or
//               OMPI_MCA_ess_base_jobid; MASTER_ADDR on several nodes
//   Slurm       SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, SLURM_STEP_NUM_NODES or
//               SLURM_NNODES; MASTER_ADDR, or the first of SLURM_STEP_NODELIST or
//               SLURM_JOB_NODELIST, or SLURM_LAUNCH_NODE_IPADDR; SLURM_JOB_ID, SLURM_STEP_ID
//
// For all launchers PARALLAX_RENDEZVOUS overrides the address that follows from these variables,
// and PARALLAX_HOST the name of this host. The port is PARALLAX_PORT; else MASTER_PORT + 1, since
// torch's own store has MASTER_PORT; else one from the job's id, the same on all ranks
// (port_of_job). Ranks of one node meet on loopback. Where nothing of a launcher is there, this is
// one rank alone.
#ifndef PARALLAX_RENDEZVOUS_LAUNCHER_H_
#define PARALLAX_RENDEZVOUS_LAUNCHER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "parallax/parallax.h"
#include "rendezvous/environment.h"

namespace parallax {

struct Launched {
  std::string launcher;  // "torchrun", for the log
  uint32_t rank = 0;
  uint32_t world = 1;
  std::string rendezvous;  // "" if world is 1
  std::string host;        // "" if the environment names none
};

// Whether a launcher's environment is there, though it may lack something.
bool is_launched(const Environment& environment);

// INVALID names the variable that is missing, unreadable or contradicts another.
Status read_launcher(const Environment& environment, Launched* launched);

// Fills in options whose rendezvous is "env" from the environment. Also fills in rank and world,
// from a launcher that started several ranks, where the program set neither and the rendezvous was
// set outside the program (`from_outside`). Leaves all other options alone. The strings belong to
// *launched. INVALID also where options.rank or options.world contradict the launcher.
Status apply_launcher(const Environment& environment, bool from_outside, Launched* launched,
                      parallax_options_t* options);

// The launcher's name for the job, the same on all its ranks; "" if there is no launcher, or it
// names none. At most kJobNameBytesMax bytes, printable.
std::string job_of_launcher(const Environment& environment);

// Of 20000 .. 29999, below the ports that the system gives out by itself.
uint16_t port_of_job(std::string_view job);
// "gpu003" of "gpu[003-006,009],cpu1".
std::string first_of_node_list(std::string_view list);

}  // namespace parallax

#endif  // PARALLAX_RENDEZVOUS_LAUNCHER_H_
