/* SPDX-License-Identifier: Apache-2.0
 *
 * libparallax: exact, planned communication of dense and sparse gradients.
 *
 * This header is the whole contract. It is C11, C++11 and newer, and shows nothing of UCX, CUDA or
 * the C++ runtime.
 *
 *   open -> register... -> commit -> { step_begin -> pull, push, reduce -> step_end }... -> close
 *
 * Between steps more variables may be registered, and brought in by another commit.
 *
 * Threads. Any thread may call any function of a job, several at once, except that close must be
 * the last call on it. A request has one waiter at a time. Callbacks run on library threads (a
 * variable's rule_fn also on any that is in a call of the job) and must not call back into the
 * job. A forked child has no part in its parent's jobs: there every
 * call on them answers PARALLAX_STATE and does nothing. It may open jobs of its own, though not
 * over UCX once its parent has.
 *
 * Structs. Every struct opens with `size`, which the caller sets to sizeof(the struct). Zero is
 * the default of every other field, so `parallax_options_t o = {.size = sizeof o};` is complete. A
 * shorter struct (an older caller) is filled up with zeros; in a longer one (a newer caller) the
 * tail must be zero, else the call answers PARALLAX_UNSUPPORTED. Fields are only ever appended.
 *
 * Errors. Functions return a status; the sentence that goes with it names the thing and the
 * remedy: parallax_last_error() for the calling thread's last failed call, and
 * parallax_request_error() for a request; what it names is there as data too
 * (parallax_error_info_t), so that no program has to read English. No call ends the host process
 * (but UCX 1.13 can, where another process dies while the two connect, see docs/failure.md), and
 * none outlives its deadline: a wait that would answers PARALLAX_TIMEOUT and says what is missing.
 * A job that has failed (PEER_LOST, ABORTED, CANCELED, INTERNAL, MISMATCH of open, commit or
 * broadcast, LIMIT of commit or where the library itself runs out of memory) answers every later
 * call that would communicate, and completes every pending request, with that failure; then it can
 * be queried, and closed. The call in which it fails may take 200 ms more, in which the others are
 * told. A call that fails sets the handle it would have returned to NULL. Beside the statuses that
 * a function lists, any call answers INVALID for a null pointer, a misaligned struct and a wrong
 * size, STATE in a forked child, and LIMIT where memory or the PARALLAX_REQUESTS_MAX requests of a
 * job run out.
 *
 * Ownership. Buffers handed in a slice are borrowed until the request completes. Row results live
 * until their request is released. Requests belong to the caller until parallax_request_release.
 *
 * Since. All of it is since version 0.1.0, the first; what came later says so beside it. A field
 * that says "not yet" has its place already, so that no struct changes its layout when it comes;
 * until then 0 is its only value, and any other is UNSUPPORTED by name.
 */
/* Laid out by hand, so that comments stand in columns: */
/* clang-format off */
#ifndef PARALLAX_PARALLAX_H_
#define PARALLAX_PARALLAX_H_

#include <stddef.h>
#include <stdint.h>

#define PARALLAX_VERSION_MAJOR 0
#define PARALLAX_VERSION_MINOR 2
#define PARALLAX_VERSION_PATCH 0

#if defined(__GNUC__)
#define PARALLAX_API __attribute__((visibility("default")))
#else
#define PARALLAX_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Bounds ------------------------------------------------------------------------------- */

#define PARALLAX_WORLD_MAX 1048576    /* ranks in a job */
#define PARALLAX_NAME_MAX 127         /* bytes in a variable's or a host's name */
#define PARALLAX_FIELD_MAX 31         /* bytes in the name of a field or an option */
#define PARALLAX_VARIABLES_MAX 4096   /* variables in a job */
#define PARALLAX_REQUESTS_MAX 1024    /* requests not yet released, per job */
#define PARALLAX_SLICES_MAX 4096      /* slices in one call */
#define PARALLAX_RATES_MAX 64         /* groups of rates in a job */

/* ---- Status ------------------------------------------------------------------------------- */

typedef enum parallax_status {
  PARALLAX_OK = 0,
  PARALLAX_PENDING = 1,       /* parallax_request_test: not complete yet; not an error */
  PARALLAX_INVALID = -1,      /* an argument is wrong; nothing was done */
  PARALLAX_UNSUPPORTED = -2,  /* legal, but this build or version cannot do it; nothing was done */
  PARALLAX_STATE = -3,        /* legal, but not now (register within a step, push after step_end) */
  PARALLAX_TIMEOUT = -4,      /* the deadline passed; the error says who or what is missing */
  PARALLAX_PEER_LOST = -5,    /* a rank died, went silent, or left; the job can only be closed */
  PARALLAX_CANCELED = -6,     /* the request was cancelled */
  PARALLAX_ABORTED = -7,      /* parallax_abort was called, here or on another rank */
  PARALLAX_MISMATCH = -8,     /* ranks disagree; the error names variable, field and ranks */
  PARALLAX_LIMIT = -9,        /* memory, descriptors or a bound given at registration exceeded */
  PARALLAX_IO = -10,          /* a file, a socket or a device failed */
  PARALLAX_INTERNAL = -11     /* a bug of the library: please report it with the sentence */
} parallax_status_t;

/* A static string such as "PEER_LOST"; "UNKNOWN" for any other number. */
PARALLAX_API const char *parallax_status_string(int status);

/* The sentence of the calling thread's last failed call, "" if none failed; at most 2047 bytes, of
 * a longer one the beginning and "...". Valid until this thread's next call. */
PARALLAX_API const char *parallax_last_error(void);

/* A failure as data: what its sentence names. */
#define PARALLAX_NO_RANK UINT32_MAX
#define PARALLAX_NO_VARIABLE UINT32_MAX
#define PARALLAX_NO_SLICE UINT32_MAX
#define PARALLAX_NO_STEP UINT64_MAX
#define PARALLAX_NO_ROW (-1)

typedef struct parallax_error_info {
  size_t size;
  int32_t status;          /* parallax_status_t; OK where nothing failed */
  uint32_t rank;           /* where the failure was found; NO_RANK: here, or it is not known */
  uint32_t peer;           /* whom it names: the rank that is lost, left, is late or differs, of
                            * several the first; else NO_RANK */
  uint32_t variable;       /* from parallax_register, as this rank numbers them; or NO_VARIABLE */
  uint32_t slice;          /* index in the call, or NO_SLICE */
  uint32_t reserved;       /* 0 */
  uint64_t step;           /* or NO_STEP */
  uint64_t step_committed; /* of a job that failed: the last step committed here; else NO_STEP */
  int64_t row;             /* row id, or NO_ROW */
  char host[PARALLAX_NAME_MAX + 1];   /* peer's, "" where it is not known */
  char field[PARALLAX_FIELD_MAX + 1]; /* the field, argument, option or setting that is wrong or
                                       * differs, such as "rows_max"; "": none */
} parallax_error_info_t;

/* Fills *info, as far as info->size goes, with the failure that parallax_last_error() tells of.
 * INVALID for a null info; that failure stays the last. Since 0.2.0. */
PARALLAX_API parallax_status_t parallax_last_error_info(parallax_error_info_t *info);

/* The version of the library loaded: "0.2.0", and major * 10000 + minor * 100 + patch. */
PARALLAX_API const char *parallax_version_string(void);
PARALLAX_API uint32_t parallax_version(void);

/* ---- Log ---------------------------------------------------------------------------------- */

/* Lines that help to find the reason of something; errors are statuses and are not logged. Which
 * lines are logged is set by PARALLAX_DEBUG, PARALLAX_DEBUG_SUBSYS and PARALLAX_DEBUG_FILE (docs/
 * settings.md), read by parallax_open; warnings on standard error by default. */
typedef enum parallax_log_level {
  PARALLAX_LOG_NONE = 0,
  PARALLAX_LOG_WARN = 1,  /* something is wrong, but the job goes on */
  PARALLAX_LOG_INFO = 2,  /* a few lines per job: transport, device, plan, and why */
  PARALLAX_LOG_DEBUG = 3, /* what was tried */
  PARALLAX_LOG_TRACE = 4  /* step by step */
} parallax_log_level_t;

/* `level` is a parallax_log_level_t, `subsystem` a static string such as "INIT", `message` one line
 * without a line break, valid during the call. */
typedef void (*parallax_log_fn)(void *context, int level, const char *subsystem,
                                const char *message);

/* From now on the process's lines go to `callback`, not to standard error or a file; NULL undoes
 * that. `level`: the most detailed level wanted (parallax_log_level_t); 0: as PARALLAX_DEBUG says.
 * It is called by a thread of the library's own, one line after the other, and under no lock; it
 * must not call this function. When it is slow, lines are dropped and their number is logged. When
 * this returns, the previous callback will not be called again, so that its context may be freed.
 * INVALID for a level, STATE from within a callback. */
PARALLAX_API parallax_status_t parallax_set_log_callback(parallax_log_fn callback, void *context,
                                                         uint32_t level);

/* ---- Job ---------------------------------------------------------------------------------- */

typedef struct parallax_job parallax_job_t;
typedef struct parallax_request parallax_request_t;

/* A pin on the placement of managed variables. AUTO measures and plans. All pins train the same
 * model; they differ in what crosses the wire. */
typedef enum parallax_plan_mode {
  PARALLAX_PLAN_AUTO = 0,    /* by form at first, later once by measured sparsity */
  PARALLAX_PLAN_HYBRID = 1,  /* variables with declared row ids sharded, the others mirrored */
  PARALLAX_PLAN_PS = 2,      /* every managed variable sharded (parameter server) */
  PARALLAX_PLAN_AR = 3       /* every managed variable mirrored, by its best replicated method */
} parallax_plan_mode_t;

/* Called by the rendezvous to exchange small blobs between all ranks, in the style of UCC: `send`
 * holds `bytes` bytes; on return `recv` holds world * bytes, rank by rank. Blocks. Returns 0, or
 * anything else for a failure. It is called on the thread that calls parallax_open. */
typedef int (*parallax_allgather_fn)(void *context, const void *send, void *recv, size_t bytes);

/* 128 opaque bytes by which the ranks of one job find and know each other, in the style of NCCL:
 * rank 0's address, a port, a name of the job and a key, all random. Whoever has them can join the
 * job, so carry them to every rank by a channel that strangers do not see, and to nobody else. */
#define PARALLAX_UNIQUE_ID_BYTES 128
typedef struct parallax_unique_id_bytes {
  unsigned char bytes[PARALLAX_UNIQUE_ID_BYTES];
} parallax_unique_id_t;

/* Makes an id. The process that makes it listens at once and must be the one that opens the job as
 * rank 0 (other ranks may come first); one id makes one job. The address is that of the interface
 * that the setting net_device names (PARALLAX_NET_DEVICE), else of the default route's, else
 * loopback. Does not block. INVALID names the device; LIMIT; IO. Any thread. */
PARALLAX_API parallax_status_t parallax_unique_id(parallax_unique_id_t *id);

/* A field that is zero is taken from the environment (PARALLAX_LEASE_MS for lease_ms, ...), then
 * from a file, then from the default that is named below: docs/settings.md. The program's own value
 * always wins. PARALLAX_RANK and PARALLAX_WORLD are used only if rank, world and allgather are all
 * zero. */
typedef struct parallax_options {
  size_t size;
  uint32_t rank;          /* 0 <= rank < world */
  uint32_t world;         /* number of ranks; 0 means 1: one rank, no network, same calls */

  /* How ranks meet (world > 1): exactly one of rendezvous, allgather and unique_id (below). */
  const char *rendezvous; /* "inproc:NAME": ranks are threads of this process.
                           * "file:DIR": a directory that is new, or empty and writable for this
                           * user or root alone; processes. It is removed once all have met.
                           * "tcp:HOST:PORT" ("tcp:[::1]:29500"): rank 0 listens there until all
                           * have met, the others connect to it. Any address but loopback
                           * requires a secret, see secret_file. "#NAME" behind it names the
                           * job: ranks of a job of another name are refused.
                           * "env": rank, world and rendezvous as a launcher's environment says
                           * (PARALLAX_RANK..., torchrun, Open MPI, Slurm: docs/rendezvous.md),
                           * and without one this is one rank alone; rank and world here are 0,
                           * or the same. */
  parallax_allgather_fn allgather; /* the caller's own allgather; processes */
  void *allgather_context;

  /* What a host is. Ranks with one host name share memory if attaching proves it. NULL: the
   * machine's own name. At most PARALLAX_NAME_MAX bytes of UTF-8, no control characters. */
  const char *host;
  const char *transport;  /* between hosts: "tcp", authenticated and encrypted, for which ranks
                           * beyond loopback need a secret or a unique id, else open answers
                           * INVALID; "ucx" declares the network trusted, as strangers on it could
                           * run code here (docs/security.md); "rdma" is UCX on RDMA devices alone,
                           * and where there is none that is active open fails, naming the cause,
                           * on every rank; "shm" refuses ranks of other hosts. The same on every
                           * rank. NULL: "rdma" where net_device names an RDMA device, else "tcp" */
  const char *net_device; /* the interface to use ("lo", "eth0", "mlx5_0:1"); NULL: under "rdma"
                           * the nearest active device, else lo if every rank's machine is the
                           * same, else the default route's under "tcp" and UCX's own choice under
                           * "ucx" */

  uint32_t lease_ms;      /* a rank silent for longer is lost; the same on every rank. 0: 5000 */
  uint32_t timeout_ms;    /* deadline of open, commit, split and close, and of a wait that gives
                           * none; of each call by itself: parallax_set. 0: 120000 */
  uint32_t plan_mode;     /* parallax_plan_mode_t; the same on every rank */
  uint32_t plan_after_steps; /* steps measured before AUTO and AR plan by them. 0: 8 */
  uint32_t deterministic; /* 1: for given slices and a given map of ranks to hosts, bit for bit the
                           * same results at any timing, plan and method (ranks of a host in order,
                           * then hosts, from +0, without FMA). Price: contributions that arrive
                           * early are held back, which costs a copy and memory, no bytes on the
                           * wire */
  uint32_t compute_threads; /* threads that coalesce slices and apply updates, beside the
                             * progress thread. 0: none */
  uint32_t manual_progress; /* 1: no progress thread; the caller drives parallax_progress at least
                             * every third of lease_ms, or waits */
  uint32_t reserved;         /* 0 */
  uint64_t memory_max_bytes; /* refuse at commit to reserve more per rank than this, for the
                              * variables of the job and its parts together. 0: no limit. Not
                              * counted are the rows that a reduce returns, which are its request's,
                              * and buffers of parallax_buffer_alloc */
  const char *faults; /* what this rank's transport is to do wrong on purpose, to test a program
                       * against it: rules as in docs/faults.md, such as
                       * "seed=7; delay:peer=3,percent=20,ms=50; close:at=200". NULL: the
                       * environment's PARALLAX_FAULTS; "": none, whatever PARALLAX_FAULTS is */
  const parallax_unique_id_t *unique_id; /* how ranks meet, in place of rendezvous: the id
                                          * from parallax_unique_id in rank 0's process. Read during
                                          * open only */
  const char *secret_file; /* of "tcp:": a file of mode 0600 that holds the ranks' secret, 16
                            * bytes or more, the same for all. NULL: the file that
                            * PARALLAX_SECRET_FILE names, else the value of PARALLAX_SECRET */
  /* Since 0.2.0: */
  uint32_t staleness; /* steps that a rank's pulls may be ahead of the slowest rank, as below:
                       * 1..PARALLAX_STALENESS_MAX, or PARALLAX_ASYNC. INVALID with
                       * deterministic. The same on every rank. 0: none, all ranks see the same */
  uint32_t replicas;  /* not yet. Owners that keep a copy of each row beside the first */
  uint32_t sparse_as_dense;      /* 1: variables with row ids are reduced whole, as dense ones
                                  * (Horovod's sparse_as_dense; PARALLAX_SPARSE_AS_DENSE), but for
                                  * those with a pin and those of integers, which have no -0 for "no
                                  * row" */
  uint32_t no_local_aggregation; /* not yet. 1: the ranks of a host send for themselves; what they
                                  * have in common is not summed first */
  const char *pins; /* placement or method of variables by name pattern, such as
                     * "embedding.*=push_pull; head.*=allreduce": a shell's patterns (* ? [...]) of
                     * whole names; a way is sharded, mirrored or a method in small letters. Of a
                     * variable without a pin of its own the first pattern that it can follow holds;
                     * one without a wildcard that its variable cannot follow is INVALID at
                     * registration. NULL: PARALLAX_PINS, else none. "": none,
                     * whatever PARALLAX_PINS is */
} parallax_options_t;

/* Staleness. Without it a pull of step t waits for the commit of t - 1, and so for the slowest
 * rank. With a staleness of s it sees of each row the commits up to some c from t - 1 - s to t - 1,
 * all of them and none behind: a rank may be s steps ahead of the slowest. PARALLAX_ASYNC: it sees
 * those that are there, and waits for none. s + 2 steps may be open at a time (PARALLAX_ASYNC:
 * PARALLAX_STALENESS_MAX + 2): a step may begin once the request of step_end of the step so many
 * before it is complete.
 *
 * What is kept. A commit is of one step, of all ranks: each gradient is applied once, found_inf
 * discards a step everywhere, norms are over all ranks' gradients. A row is of one commit in all
 * its elements (of a variable without row ids: each owner's part of it), and in pulls of one
 * as_dtype no rank sees it older than it has seen it. A reduce gives the aggregate of its step, and
 * takes every rank. What goes between steps (read, write, evaluations, register, commit) does so
 * when all steps of this rank are over. In the long run steps take as long as the slowest rank
 * does: what is hidden is that another one is slow in each step, and the way of a commit.
 *
 * What is given up. Rows of one pull may be of different commits; what a rank has pushed it sees
 * once that is committed; what is seen follows from timing. The plan stays the first one, by form
 * and pins. Slices and tables on devices are UNSUPPORTED, and ranks of one host get rows by
 * messages. A push is read when the step before its own is decided: a rank that is to be s steps
 * ahead gives each of s + 2 steps buffers of its own, and does not wait for its pushes. */
#define PARALLAX_STALENESS_MAX 62 /* steps */
#define PARALLAX_ASYNC UINT32_MAX

/* Meets the other ranks and returns when all are connected. Blocks up to timeout_ms.
 * On success *job belongs to the caller, who ends it with parallax_close.
 * INVALID, UNSUPPORTED, TIMEOUT (names ranks that never came), PEER_LOST, MISMATCH (another
 * version, world or job), IO, LIMIT. */
PARALLAX_API parallax_status_t parallax_open(const parallax_options_t *options,
                                             parallax_job_t **job);

/* Collective: checks that all ranks registered the same variables, by name and in any order, places
 * them, fills in initial values. After it the plan exists. Blocks up to timeout_ms.
 *
 * Since 0.2.0 it may be called again, any number of times, between steps (no step of this rank is
 * under way, nor a broadcast; STATE otherwise): it brings in what was registered since, and leaves
 * the other variables, their values, optimizer state, plan and measurements as they are. With
 * nothing new it is cheap, and collective all the same. What is new is measured by itself, once
 * what was there before is planned.
 *
 * MISMATCH names the first variable, the field and two ranks that differ, on every rank; or the
 * variable that one of them registered and the other did not. A commit that fails, the first or a
 * later one, fails the job: by MISMATCH, and by LIMIT on any rank. One that times out stays under
 * way: close the job. Memory is
 * reserved, and costs nothing until touched: where the ranks of a host may touch more than the
 * machine or a control group has, a warning in the log names the largest variables, or LIMIT
 * where the setting memory_check (PARALLAX_MEMORY_CHECK) is refuse. */
PARALLAX_API parallax_status_t parallax_commit(parallax_job_t *job);

/* Ends the job on every rank: pending and later calls, here and there, return ABORTED with
 * `reason` (may be NULL). Does not block. The job must still be closed. */
PARALLAX_API parallax_status_t parallax_abort(parallax_job_t *job, const char *reason);

/* Waits for all ranks to close, up to timeout_ms, then frees everything, whatever it returns: the
 * handle is gone (but in a forked child: STATE, and nothing is done). A step that was not ended is
 * dropped with its gradients. Requests that are pending then complete with ABORTED; those not
 * released may still be tested and released, nothing else. NULL is OK. PEER_LOST and TIMEOUT name
 * the ranks that did not call close, or were lost; a job that had failed answers with its
 * failure once more: no news where a call has told it, and everything is freed all the same. STATE,
 * and nothing is done, as long as parts of it are open.
 * Of a part that passes its deadline the handle alone is gone: its goodbye goes on for the sake of
 * the other ranks, and its memory and pending requests stay until the job is closed. A rule of the
 * caller's own that is running is waited for, past any deadline: it reads memory of the job. */
PARALLAX_API parallax_status_t parallax_close(parallax_job_t *job);

/* A part of a job (MPI: a communicator, Horovod: a process set): collective over the `count` ranks
 * that it names, all with the same list; the others do not call. *part is a job handle for them:
 * every call works on it, with ranks numbered in the order of the list, and with its own variables,
 * commit, steps, plan, requests and reports. What the whole job has is not split: transports,
 * leases, deadlines, settings, wait_fd, and failure: a rank that is lost, or any failure that ends
 * a part (parallax_abort of it too), ends the whole job and all its parts, on every rank there is.
 * A rank may be in several parts, and a part can be split again. Calls with one list match in their
 * order; those with different lists may come in any.
 * Legal before and after commit, also during steps. Blocks up to timeout_ms. The part belongs to
 * the caller, who closes it (collectively, as a job) before the job it was split from.
 * INVALID names the argument; PEER_LOST, on every rank of the job, a rank that closes it although
 * others wait for its call (so where several ranks wait in vain the first to give up and close may
 * make it the others' answer); TIMEOUT names ranks that have not called, and a later call with the
 * same list does not match theirs any more: close the job; LIMIT: memory, or too many parts that
 * one rank was the first of (2,047 in the largest world, 500 million in one of four). Since
 * 0.2.0. */
PARALLAX_API parallax_status_t parallax_split(parallax_job_t *job, const uint32_t *ranks,
                                              size_t count, parallax_job_t **part);

/* Where in a step a rank kept the others waiting: before its pulls, before its pushes and reduces,
 * or before its step_end. */
typedef enum parallax_phase {
  PARALLAX_PHASE_NONE = 0,
  PARALLAX_PHASE_PULL = 1,
  PARALLAX_PHASE_PUSH = 2,
  PARALLAX_PHASE_STEP_END = 3
} parallax_phase_t;

typedef struct parallax_job_info {
  size_t size;
  uint32_t rank, world;
  uint32_t host, hosts;             /* index of this rank's host, number of hosts */
  uint32_t local_rank, local_world; /* among the ranks of this host */
  uint32_t variables;
  uint32_t committed;               /* 1 after parallax_commit */
  uint64_t step;                    /* last step begun, 0 before the first */
  uint64_t step_committed;          /* last step committed here */
  int32_t wait_fd;                  /* readable after a request completed that no wait was for,
                                     * until the caller reads the 8 bytes (an eventfd); the job's */
  uint32_t reserved;                /* 0 */
  /* The rank that the others wait for, the same on every rank: in late_steps of the last 16 steps,
   * 12 or more, it took longest before its calls, by more than 10 ms and an eighth of the step.
   * Each rank measures its program's own time, from when the result it waited for was there to its
   * next call; with manual_progress only the time after a pass of progress. Logged once by
   * rank 0. */
  uint32_t late_phase; /* parallax_phase_t: before which call most of it was; NONE: no rank is late,
                        * and the next fields are 0 */
  uint32_t late_rank;
  uint32_t late_ms;    /* a step, in the middle, more than the mean of the others */
  uint32_t late_steps;
  /* Since 0.2.0: */
  uint32_t job_rank;   /* of a part: this rank's number in the whole job; else `rank` */
  uint32_t epoch;      /* tells this job's or part's messages from those of any other: the same on
                        * its ranks, another in each part */
  uint32_t view;       /* how often the ranks, or who owns what, has changed: 0 in this version */
  uint32_t reserved_2; /* 0 */
  uint64_t bytes_reserved; /* memory of all variables, as PARALLAX_REPORT_STATS has it */
  uint64_t bytes_touched;  /* of that, what lies in memory. 0 unless the caller sets it to 1 before
                            * the call: to count asks the kernel, some ms for GiB, and the job makes
                            * no progress meanwhile */
} parallax_job_info_t;

/* Fills *info, as far as info->size goes. Never blocks on a peer; a failed job answers too. */
PARALLAX_API parallax_status_t parallax_query(parallax_job_t *job, parallax_job_info_t *info);

/* Changes a setting of the whole job while it is open, with the name and the text that a file of
 * settings would have (docs/settings.md):
 *   timeout_ms                       the deadline of each call that begins from now on: set before
 *                                    a commit, a split, a close, or a wait that gives none, it is
 *                                    the deadline of that call; those under way keep theirs
 *   memory_max_bytes, memory_check   of commits and changes of plan from now on; what is reserved
 *                                    stays
 *   debug, debug_subsys, debug_file  of the log of the whole process
 * The others are fixed when the job opens: UNSUPPORTED names the setting and how to give it.
 * INVALID: there is no such setting, with the nearest name, or no such value, with what is allowed;
 * then nothing has changed. Concerns this rank alone; PARALLAX_REPORT_SETTINGS tells the new value.
 * Legal in a job that failed. Never blocks on a peer. Since 0.2.0. */
PARALLAX_API parallax_status_t parallax_set(parallax_job_t *job, const char *name,
                                            const char *value);

/* Runs the engine once on the calling thread. Only needed with manual_progress. */
PARALLAX_API parallax_status_t parallax_progress(parallax_job_t *job);

/* ---- Memory ------------------------------------------------------------------------------- */

/* Every call takes any memory of the process. Buffers of a job spare it copies that it makes of
 * other memory, as versions learn to; results are the same. They belong
 * to the whole job: each of its parts takes them, a part's handle is as good as the job's, and a
 * part that closes leaves them. Legal from open to close, during steps and in a job that failed.
 * Any pointer into them may stand in a slice or a collective; but for memory of a device `memory`
 * stays HOST: they are known by their addresses. memory_max_bytes does not count them;
 * PARALLAX_REPORT_STATS does. */

/* Where the buffers of a call lie. */
typedef enum parallax_memory {
  PARALLAX_MEMORY_HOST = 0, /* any memory of the process */
  PARALLAX_MEMORY_CUDA = 1  /* a CUDA device's, or managed memory. Needs libparallax_cuda.so, a
                             * driver and a device, which are looked for at the first call that
                             * says so: UNSUPPORTED tells what was looked for and is missing
                             * (docs/gpu.md). Of slices and parallax_buffer_alloc; collectives not
                             * yet */
} parallax_memory_t;

/* For parallax_buffer_options_t.numa_node, which counts from 1. */
#define PARALLAX_NUMA_NODE(number) ((uint32_t)(number) + 1u)

/* Since 0.2.0. */
typedef struct parallax_buffer_options {
  size_t size;
  uint32_t numa_node;  /* 0: the nodes of this rank, where its own memory lies too (setting bind);
                        * or PARALLAX_NUMA_NODE(the kernel's number). Where the kernel refuses,
                        * pages lie wherever they are first touched (PARALLAX_REPORT_TOPOLOGY) */
  uint32_t huge_pages; /* 1: asks for huge pages, as far as the kernel gives them to shared memory
                        * (transparent_hugepage/shmem_enabled); else they are ordinary ones */
  uint32_t memory;     /* parallax_memory_t; of CUDA numa_node and huge_pages are 0 */
  uint32_t device;     /* CUDA: its number, as the CUDA driver counts in this process (so after
                        * CUDA_VISIBLE_DEVICES, as cudaSetDevice does); else 0 */
  uint32_t symmetric;  /* CUDA: 1: of NCCL's allocation (ncclMemAlloc), which takes memory in
                        * multiples of 2 MiB: for variables with a place (place_values of
                        * parallax_variable_t). Ordinary memory where NCCL has no windows, or is not
                        * to be used (setting nccl) */
  uint32_t reserved;   /* 0 */
} parallax_buffer_options_t;

/* Memory of the job's: *pointer is aligned to a page, and its `bytes` are zero. They cost memory
 * as they are touched, of shared memory (a memfd: a forked child shares it, and writes what its
 * parent reads), and a descriptor. The job's other ranks on this host map it as they hear of it;
 * those of other hosts cannot see it (PARALLAX_REPORT_STATS counts both). Rows of a push they read
 * where they lie (parallax_push). What a reduce, or a
 * collective, of some length has there they sum from where it lies, and write the total there if
 * it is in place: while the call's request is pending, other processes write into its slices,
 * and into no byte beside them. The request is complete once they have, or once they are lost
 * and can neither take nor write anything there any more: pages that they could write are then
 * this process's own, which a forked child does not share (docs/adr/0055). In parts of a job
 * (parallax_split) others read there, and write nothing: in 16 parts of a rank at once, where no
 * host has more than 8 ranks; else messages go as for any memory (docs/adr/0086). Ends with
 * parallax_buffer_free, or when the job has been closed and the last of its requests released;
 * pointers into it are dangling then. NULL options: all zero. With memory CUDA it is memory of
 * the device (cuMemAlloc), which only devices read and write; to free it waits for what the
 * device does. INVALID and UNSUPPORTED name the field; LIMIT: no memory or descriptor, with the
 * number of bytes; IO: the device failed. Does not block, but for a device's memory to be zero.
 * Since 0.2.0. */
PARALLAX_API parallax_status_t parallax_buffer_alloc(parallax_job_t *job, size_t bytes,
                                                     const parallax_buffer_options_t *options,
                                                     void **pointer);

/* Frees what parallax_buffer_alloc gave. STATE names a pending request, of the job or a part, that
 * borrows some of it, which stays as it is: wait for that, and free it then; or a variable whose
 * place is there, which keeps it until the job is closed. INVALID: no buffer of this job begins at
 * `pointer`. IO: NCCL does not let go of it; it stays, and goes with the job. TIMEOUT: NCCL, which
 * knows it by a sum among devices, has it still after timeout_ms, since sums are under way, a part
 * forms, or it does not return; it stays, and may be tried again. NULL is OK. Since 0.2.0. */
PARALLAX_API parallax_status_t parallax_buffer_free(parallax_job_t *job, void *pointer);

/* Tells the job of memory of the caller's, to be prepared once for networks and devices instead of
 * in each call. It is never shared with other ranks, and stays the caller's, who keeps it mapped
 * until it is unregistered or the job closed. Over RDMA devices peers write results there; else
 * this checks its arguments and does nothing else. INVALID: `pointer` is null, `bytes` is 0, not
 * all of it is mapped, or some of it is registered or of parallax_buffer_alloc already. Since
 * 0.2.0. */
PARALLAX_API parallax_status_t parallax_buffer_register(parallax_job_t *job, void *pointer,
                                                        size_t bytes);

/* Ends it, for the whole of what was registered at `pointer`. STATE, IO, TIMEOUT as
 * parallax_buffer_free; INVALID: nothing was registered there. Since 0.2.0. */
PARALLAX_API parallax_status_t parallax_buffer_unregister(parallax_job_t *job, void *pointer);

/* ---- Variables ---------------------------------------------------------------------------- */

/* The element type of a variable's slices, and the type they are summed and kept in. */
typedef enum parallax_dtype {
  PARALLAX_F32 = 0,  /* IEEE binary32; summed in float */
  PARALLAX_F64 = 1,  /* IEEE binary64; summed in double */
  PARALLAX_F16 = 2,  /* IEEE binary16. Gradients are widened as they are summed, in float; a
                      * managed variable keeps its value and state in float (a float master, so
                      * that small updates are not lost), unless storage_dtype says otherwise;
                      * results are rounded once, to nearest even */
  PARALLAX_BF16 = 3, /* the upper half of a binary32; as F16 */
  PARALLAX_I32 = 4,  /* two's complement; sums wrap */
  PARALLAX_I64 = 5
} parallax_dtype_t;
/* Integers: rule NONE or SUM, reduction SUM, init CONSTANT, BUFFER or BROADCAST. */

/* Beside them, as the dtype of a collective that combines nothing: bytes as they are, of any type.
 * Variables and the kinds that combine refuse it. Since 0.2.0. */
#define PARALLAX_BYTES 16u

typedef enum parallax_tag {
  PARALLAX_AUTO = 0,   /* by the form of its slices: ids are declared when rows_max > 0 */
  PARALLAX_DENSE = 1,  /* slices carry every row */
  PARALLAX_SPARSE = 2  /* slices carry row ids and rows */
} parallax_tag_t;

typedef enum parallax_reduction {
  PARALLAX_SUM = 0,
  PARALLAX_MEAN_WORLD = 1,       /* sum / world */
  PARALLAX_MEAN_CONTRIBUTORS = 2, /* managed: sum / ranks that were not absent in the step;
                                   * framework-held: sum / ranks that gave a slice of it in the
                                   * step, which a word up and down the tree of ranks counts */
  PARALLAX_MEAN_ROW = 3          /* each row's sum / ranks that contributed the row in the step
                                  * (TensorFlow's and Parallax's average_sparse); needs row ids.
                                  * Every row carries its count, one element more on the wire */
} parallax_reduction_t;

/* Update rules, applied where the value lives, element by element in the order written, without
 * FMA. T is the type the variable is updated in: double for F64, float for F32, F16 and BF16. lr,
 * weight_decay, epsilon, momentum, beta and 1 - beta are rounded to T once. Row-lazy: rows that no
 * rank contributed in a step keep value and state, and do not decay; a variable without row ids is
 * updated whole when any rank contributed to it, else left alone.
 *
 * g begins as the reduced gradient. First, by the rates of the variable's group (parallax_rates_t)
 * or, where the step has none, by its learning rate alone:
 *
 *   1. g *= scale, T(mean factor * the group's clip factor * clip factor), multiplied in double
 *   2. maximize:         g = -g                                   (torch's maximize)
 *   3. weight_decay, decoupled: p *= T(1 - lr * weight_decay), computed in double
 *                        (torch.optim.AdamW; with SGD and MOMENTUM Loshchilov's SGDW)
 *      else:             g += weight_decay * p                    (torch's weight_decay of SGD,
 *                        Adagrad and Adam, which decays rows without gradient too; that of
 *                        FBGEMM's L2 mode for ROWWISE_ADAGRAD)
 *
 * Then the rule:
 *
 *   SGD              p -= lr * g                                  (torch.optim.SGD, no momentum)
 *   ADAGRAD          s += g * g;  p -= lr * g / (sqrt(s) + epsilon)
 *                    (torch.optim.Adagrad with lr_decay = 0)
 *   ADAM             t counts the committed steps in which any rank pushed a slice of the variable,
 *                    even one without rows; b1t = 1 - beta1^t, b2t = 1 - beta2^t, in double
 *     with row ids   m += (1 - beta1) * (g - m);  v += (1 - beta2) * (g * g - v);
 *                    p -= T(lr * sqrt(b2t) / b1t) * (m / (sqrt(v) + epsilon))
 *                    (torch.optim.SparseAdam: lazy)
 *     without        m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * (g * g);
 *                    p -= T(lr / b1t) * (m / (sqrt(v) / T(sqrt(b2t)) + epsilon))
 *                    (torch.optim.Adam; the two differ in what epsilon is added to)
 *   MOMENTUM         b = momentum * b + g;  p -= lr * b, or, with nesterov, lr * (g + momentum * b)
 *                    (torch.optim.SGD, dampening = 0; b starts at 0)
 *   ROWWISE_ADAGRAD  s += mean(g * g) over the row, one s a row, the mean in double and rounded to
 *                    T;  p -= lr * g / (sqrt(s) + epsilon)
 *                    (FBGEMM's and TorchRec's EXACT_ROWWISE_ADAGRAD); needs row ids
 *   FTRL             a = sqrt(n);  n += g * g;  b = sqrt(n);
 *                    z += (g + T(2 * l2_shrinkage) * p) - (b - a) / lr * p;
 *                    d = b / lr + T(2 * (l2 + beta / (2 * lr)));  where d is 0 p stays, else
 *                    p = 0 where |z| <= l1, else ((z > 0 ? l1 : -l1) - z) / d
 *                    (tf.keras.optimizers.Ftrl with learning_rate_power = -0.5; n starts at
 *                    initial_accumulator_value, z at 0. Where d is 0 Keras divides by it. lr 0:
 *                    nothing is changed)
 *   SUM              p += g; of the rates only clip_norm is used. For integers scale is 1, and a
 *                    clip norm neither counts nor changes them
 *   CALLBACK         the caller's own: what rule_fn does, see parallax_rule_fn. Points 1 and 2 come
 *                    before it; 3 does not: decay stands where the function puts it (as LAMB's, in
 *                    the norm of its update), which gets the rates */
typedef enum parallax_rule {
  PARALLAX_RULE_NONE = 0,   /* framework-held: the caller keeps the value and calls reduce */
  PARALLAX_RULE_SGD = 1,
  PARALLAX_RULE_ADAGRAD = 2,
  PARALLAX_RULE_ADAM = 3,
  PARALLAX_RULE_MOMENTUM = 4,
  PARALLAX_RULE_ROWWISE_ADAGRAD = 5,
  PARALLAX_RULE_SUM = 6,
  PARALLAX_RULE_FTRL = 7,    /* since 0.2.0 */
  PARALLAX_RULE_CALLBACK = 8 /* the caller's own: rule_fn. Since 0.2.0 */
} parallax_rule_t;

/* Rows that a caller's own rule is to update, valid during the call. Since 0.2.0. */
typedef struct parallax_rule_block {
  size_t size;
  uint32_t variable;
  uint32_t dtype;        /* of values, states and gradient: the type the variable is kept in */
  uint64_t step;
  uint64_t updates;      /* ADAM's t: committed steps in which any rank pushed, this one included */
  uint64_t row_count;
  uint64_t row_elements;
  const int64_t *rows;   /* row_count ids, ascending */
  void *values;          /* row_count x row_elements */
  void *state[2];        /* row_count x state_elements[i]; NULL where that is 0 */
  const void *gradient;  /* row_count x row_elements, reduced, and after points 1 and 2 above */
  double learning_rate;  /* of the variable's group of rates */
  const struct parallax_rates *rates; /* of that group, as given with step_end; where the step has
                                       * none, its learning rate and zeros. Never NULL. Its clip and
                                       * its sign are in the gradient already; its weight decay is
                                       * not, coupled or decoupled: that is the rule's own to do, or
                                       * to leave */
} parallax_rule_block_t;

/* The caller's own rule. It is called in each step that is committed for the rows that any rank
 * gave, wherever they lie (of a mirrored variable on every rank), in blocks; of a variable without
 * row ids for all that this rank holds. It updates values and state in place: any optimizer whose
 * update of a row needs no other row. Values and state are as they were left, at first as init
 * says, 0, and initial_accumulator_value in state[0]. What is written past them, or through
 * `rows` and `gradient`, is undefined.
 *
 * Each row by itself: a block has at most 256 rows today, and fewer wide ones, but where blocks are
 * cut and in what order they come is no promise, and the same row may come with others the next
 * time; so no result may depend on it. By that a rule has the same bits under every placement and
 * plan, and in a run again under `deterministic`, if the function is the same on every rank (which
 * the library cannot compare; it compares state_elements) and a function of its arguments alone.
 *
 * It runs on a thread of the library (compute_threads), or where there is none on any thread that
 * is in a call of the job, the library's among them: do not hold a lock in such a call that the
 * rule takes. For one variable on one thread at a time, for
 * several variables on several at once. It holds up the step, without threads the leases too, and
 * so must not block, nor throw. A call on a job or a request from within is STATE.
 * Returns 0. Anything else fails the job, on every rank, with ABORTED and a sentence that names
 * the variable, the step and the number; the step is applied in part then. */
typedef int (*parallax_rule_fn)(void *context, const parallax_rule_block_t *block);

/* Initial values. Those that are computed are a function of (seed, row, column) alone, the same
 * under every placement and on every machine.
 *   mix(z):    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9; z = (z ^ z >> 27) * 0x94d049bb133111eb;
 *              z ^ z >> 31                                   (splitmix64, Steele et al. 2014)
 *   bits     = mix(mix(seed + 0x9e3779b97f4a7c15 * (row + 1)) + column)
 *   unit     = (float)(bits >> 40) * 2^-24                   in [0, 1)
 *   UNIFORM:   low + (high - low) * unit, in float
 *   q        = ((bits >> 12) + 0.5) * 2^-52 - 0.5            in (-1/2, 1/2), exact in double
 *   NORMAL:    mean + std * z(q)                             in double, without FMA
 *   TRUNCATED_NORMAL: mean + std * z(0.9544997361036416 * q)
 *              within two standard deviations of the mean, as tf.keras' TruncatedNormal and torch's
 *              trunc_normal_(a = mean - 2 std, b = mean + 2 std) are; its own deviation is 0.88 std
 *   z(q)     = the normal distribution's quantile of 1/2 + q: PPND16 of Algorithm AS 241 (Wichura,
 *              Applied Statistics 37, 1988) with the coefficients printed there, by Horner's rule,
 *              (numerator * q) / denominator in the centre; in the tails of
 *              sqrt(-log(1/2 - |q|)), where
 *   log(p)   = e * 0x1.62e42feep-1 + (e * 0x1.a39ef35793c76p-33 + (2 * s + 2 * s * (t * h)))
 *              with p = m * 2^e, m from sqrt(1/2) (0x1.6a09e667f3bcdp-1) to sqrt(2),
 *              s = (m - 1) / (m + 1), t = s * s, and h = 1/3 + t/5 + ... + t^9/21 by Horner's rule
 * Within 7e-16 of the true quantile, relatively; |z| < 8.21. Computed they take some 10 ns an
 * element, and UNIFORM 1. For mean 0 and std 1:
 *   seed        row     column   NORMAL                   TRUNCATED_NORMAL
 *   0           0       0        -0x1.27bd70e1fd098p-1    -0x1.18ce89a3f4aa3p-1
 *   7           3       5        -0x1.4e6179ddd6541p-1    -0x1.3cff688d7386ep-1
 *   123456789   793469  511       0x1.a0434fac00e59p+0     0x1.755d6c43f6836p+0
 *   1           607203  0        -0x1.4f826c8e0a865p+2    -0x1.ffffe87c62649p+0
 * The result is then converted to the type the variable is updated in, and that, to nearest even,
 * to storage_dtype. */
typedef enum parallax_init {
  PARALLAX_INIT_CONSTANT = 0, /* every element is `low` */
  PARALLAX_INIT_UNIFORM = 1,
  /* Since 0.2.0: */
  PARALLAX_INIT_NORMAL = 2,
  PARALLAX_INIT_TRUNCATED_NORMAL = 3,
  PARALLAX_INIT_BUFFER = 4,   /* from `initial`, which every rank gives, with the same numbers in
                               * it: each reads the rows that it holds, and nothing compares them */
  PARALLAX_INIT_BROADCAST = 5 /* from `initial` of rank 0. It goes to every rank within commit, in
                               * pieces of 1 MiB; the others need not give any, and no rank holds
                               * more than a piece of it beside the variable */
} parallax_init_t;

/* Where a managed variable lives: AUTO plans it. */
typedef enum parallax_placement {
  PARALLAX_PLACEMENT_AUTO = 0,
  PARALLAX_PLACEMENT_SHARDED = 1, /* each row at its owner (parameter server) */
  PARALLAX_PLACEMENT_MIRRORED = 2 /* the whole on every rank */
} parallax_placement_t;

/* How a gradient travels: AUTO plans it. docs/planning.md. */
typedef enum parallax_method {
  PARALLAX_METHOD_AUTO = 0,
  PARALLAX_METHOD_ALLREDUCE = 1,   /* dense */
  PARALLAX_METHOD_ALLGATHERV = 2,  /* rows: each host's rows to every host */
  PARALLAX_METHOD_REDUCE_ROWS = 3, /* rows: summed at their owners, then all to all */
  PARALLAX_METHOD_MADE_DENSE = 4,  /* rows, as an allreduce of the whole */
  PARALLAX_METHOD_PUSH_PULL = 5    /* to the owners alone, and from them what is asked for */
} parallax_method_t;

/* How an update rounds values to storage_dtype. NEAREST_EVEN loses what is less than half the
 * distance between two numbers of that type. STOCHASTIC loses nothing on the average: a value
 * between two numbers goes to the one farther from zero where
 *   (bits >> 32) * 2^-32 < (|value| - |nearer|) / (|farther| - |nearer|),    exactly,
 * else to the nearer. What is a number of the type stays as it is, infinities and NaN too; beyond
 * the largest finite number it rounds as NEAREST_EVEN does. The bits are a function of the
 * variable, of how often it was updated, of row and column, and so the same under every placement,
 * plan and number of ranks, and in a job that goes on from a checkpoint:
 *   bits     = mix(mix(seed + 0x9e3779b97f4a7c15 * (row + 1)) + column)   (parallax_init_t's mix)
 *   seed     = mix(of_name + 0x9e3779b97f4a7c15 * updates)
 *   of_name  begins as mix(init_seed); for each byte of the name, of_name = mix(of_name + byte +
 *            0x9e3779b97f4a7c15)
 *   updates  ADAM's t, this step counted: `updates` of parallax_rows_t */
typedef enum parallax_rounding {
  PARALLAX_ROUNDING_NEAREST_EVEN = 0,
  PARALLAX_ROUNDING_STOCHASTIC = 1
} parallax_rounding_t;

/* Zero itself, in the fields of parallax_variable_t that name it, where 0 stands for a default. */
#define PARALLAX_ZERO (-1.0)

typedef struct parallax_variable {
  size_t size;
  const char *name;      /* unique in the job, 1..PARALLAX_NAME_MAX bytes of UTF-8, no control
                          * characters: it stands in tables and log lines */
  uint64_t rows;         /* 1..2^32-1 */
  uint64_t row_elements; /* 1..2^20; all rows: less than 2^48 bytes. With row ids a row travels in
                          * one message: at least 4096 elements of any dtype fit on every
                          * transport; commit answers LIMIT with the bytes of a row that does not */
  uint32_t dtype;        /* parallax_dtype_t */
  uint32_t tag;          /* parallax_tag_t */
  uint32_t reduction;    /* parallax_reduction_t */
  uint32_t rule;         /* parallax_rule_t */
  uint64_t rows_max;     /* most rows in one slice of this variable. Required for SPARSE; declares
                          * row ids for AUTO; must be 0 for DENSE. Bounds all staging memory */
  uint64_t init_seed;
  uint32_t init;               /* parallax_init_t; managed variables only */
  float init_low, init_high;   /* finite, low <= high; CONSTANT: low alone, high is 0 or the same */
  /* Parameters of the rule; those of other rules must be 0. */
  float epsilon;                   /* 0: the default of the rule's framework, 1e-10 for ADAGRAD,
                                    * 1e-8 for ADAM and ROWWISE_ADAGRAD; or PARALLAX_ZERO */
  float initial_accumulator_value; /* ADAGRAD, ROWWISE_ADAGRAD: initial s; FTRL: initial n, of
                                    * which 0 is Keras's 0.1, and PARALLAX_ZERO 0;
                                    * CALLBACK: initial state[0] */
  uint32_t nesterov;               /* MOMENTUM: 1 for Nesterov's; momentum must be > 0 */
  double beta1, beta2;             /* ADAM, in (0, 1), or PARALLAX_ZERO; 0: 0.9 and 0.999 */
  double momentum;                 /* MOMENTUM, >= 0 */
  uint32_t refuse_nonfinite;       /* 1: a pushed or reduced slice with an infinity or a NaN is
                                    * INVALID, the row and column named, and nothing is done; costs
                                    * one pass over the slice, padding left out. 0: they pass
                                    * through */
  uint32_t accumulate;             /* 1: gradients of a step may come in several calls (`more` of
                                    * parallax_slice_t): micro-batches. Costs memory for two sums of
                                    * min(rows, rows_max) rows, or of the whole without row ids */
  /* Since 0.2.0: */
  uint32_t rates;         /* managed: its group of rates, below PARALLAX_RATES_MAX: the index in
                           * parallax_step_end_options_t.rates */
  uint32_t placement;     /* parallax_placement_t: a pin on this managed one; before plan_mode */
  uint32_t method;        /* parallax_method_t: a pin, on framework-held ones too; before plan_mode.
                           * INVALID where the variable's form has no such way. The plan keeps what
                           * is pinned. Both are the same on every rank */
  uint32_t storage_dtype; /* managed: the type its values are kept in. 0: as parallax_dtype_t says.
                           * PARALLAX_AS(PARALLAX_BF16), or F16, of an F32, F16 or BF16 variable:
                           * without a float master, in half the memory, and pulls travel so. Its
                           * states stay in float. An update widens a row, does all of it in float
                           * and rounds the values once, by `rounding`. Initial values and what
                           * parallax_write is given are float as ever, rounded to nearest even.
                           * Other types, rule CALLBACK and table_memory CUDA are UNSUPPORTED. The
                           * same on every rank, as is rounding */
  uint32_t rounding;      /* parallax_rounding_t, of updates of values kept in storage_dtype */
  int32_t priority;       /* Of what this rank owes another of gradients, and reads of one on its
                           * host, the variable with the higher goes first; of the same what was
                           * given first. A large one gives way between messages. Pulls, and calls
                           * beside the steps, are of priority 0. Tables that go as one (setting
                           * fuse_tables) have the highest of theirs. A hint: results are the same
                           * bits, and ranks may differ in it */
  /* FTRL, as Keras names them; finite, >= 0: */
  double l1, l2;          /* l1_regularization_strength, l2_regularization_strength */
  double l2_shrinkage;    /* l2_shrinkage_regularization_strength */
  double beta;
  double learning_rate_power; /* 0 or -0.5, which is -0.5. Any other is UNSUPPORTED: no pow() gives
                               * the same bits on every machine */
  /* Of initial values: */
  float init_mean;            /* NORMAL, TRUNCATED_NORMAL: finite */
  float init_std;             /* NORMAL, TRUNCATED_NORMAL: finite, >= 0 */
  const void *initial;        /* BUFFER, BROADCAST: rows x row_elements, row-major, in the type the
                               * variable is updated in: double for F64, float for F32, F16, BF16,
                               * else the integer. Borrowed until a commit that takes the variable
                               * in returns, whatever it returns: a TIMEOUT before all of it was
                               * taken fails the job. One that is refused at once (STATE, or LIMIT
                               * for want of a request) leaves it borrowed */
  /* Of CALLBACK, whose dtype is a floating one: */
  parallax_rule_fn rule_fn;   /* required */
  void *rule_context;         /* handed to rule_fn; both are to live as long as the job */
  uint32_t state_elements[2]; /* numbers a row that it keeps beside the value, of the type that is
                               * kept in, 0..2^20; the second only with the first. With row ids
                               * they travel as a row does. The same on every rank */
  uint32_t memory;       /* parallax_memory_t: CUDA: the slices of every rank lie on devices, and
                          * one in host memory is INVALID. Without an update rule and row ids the
                          * devices sum them by NCCL where every rank can (PARALLAX_NCCL): then the
                          * calls of a step are made before one of them is waited for, a rank's
                          * slices lie on one device, and several slices of it in a call are
                          * UNSUPPORTED, as is an as_dtype but of F32, F16 and BF16 among each
                          * other. HOST: any slice says for itself. The same on every rank */
  uint32_t table_memory; /* managed: parallax_memory_t: where the library keeps it and its state.
                          * CUDA: each owner's part in the memory of the device of its place among
                          * the ranks of its host, counted on over the devices that it sees; commit
                          * answers LIMIT where that has no room. Of F32, F16 and BF16, with rule
                          * SGD, MOMENTUM, ADAGRAD, ROWWISE_ADAGRAD or ADAM; others are UNSUPPORTED.
                          * The numbers are those of a table in host memory, bit for bit, and it
                          * stays where the first plan puts it. The same on every rank */
  /* A place, which is a promise of this rank: on every step of the job its `values` lie there, and
   * its aggregate goes there. Of framework-held variables without row ids, with memory CUDA, whose
   * place lies in memory of parallax_buffer_alloc on one device; for others it is UNSUPPORTED, for
   * other memory INVALID. The memory stays until the job is closed: parallax_buffer_free answers
   * STATE, with the variable. A slice of it that names another place, device or dtype is INVALID.
   * Where ranks promise alike at commit (`symmetric` of parallax_buffer_options_t, buffers of the
   * same size, in them the same variables at the same offsets, 8 buffers in a commit) and NCCL sums
   * them, the devices register that memory together as windows, and sum without NCCL's own buffers
   * between. Then a rank that gives nothing of it in a step takes part from there: from step_end on
   * until that is done the library writes zeros to place_values and the sum to place_into, and no
   * work of the program's on a device may use them meanwhile; and slices of variables without a
   * place may not lie in those buffers (INVALID). Else it is summed as any, and the plan
   * (PARALLAX_REPORT_PLAN) says why, alike on every rank. Ranks may differ in it (docs/gpu.md) */
  void *place_values;    /* where `values` of each slice lies; NULL: no promise */
  void *place_into;      /* where `into` does; NULL: `into` is NULL, or the same as `values` */
  uint32_t wire_dtype;   /* managed, with row ids: the type in which rows that are pushed cross
                          * between hosts. 0: the one they are summed in. PARALLAX_AS(PARALLAX_BF16)
                          * of an F32, F16 or BF16 variable: half the bytes, and not exact. What the
                          * ranks of a host pushed for a row is summed in float, that sum is rounded
                          * to nearest even, on every host alike, the owner's too, and the owner
                          * adds up what came in float. So each element of a sum is off by at most
                          * 2^-8 of the sum of the hosts' |sums| of it, beside what sums in float
                          * are off by anyway, where these are no subnormals. In a job of one host,
                          * and where the plan has another method than PUSH_PULL, nothing is
                          * rounded. With reduction MEAN_ROW, and of other types, UNSUPPORTED. The
                          * same on every rank */
  uint32_t reserved;     /* 0 */
  /* Framework-held, with row ids: the most bytes that a rank reserves for exchanging its gradient,
   * beside this rank's slice, coalesced (rows_max rows), and the result (min(rows, rows_max x
   * ranks) rows), each for the two steps under way: sums over the ranks of a host and over hosts,
   * what is held back for its turn, what is on its way, and, of MADE_DENSE, the elements. 0: no
   * bound. Under it a step goes in as many rounds as that takes, one after the other, each of a
   * chunk of the rows; results are the same, bit for bit where they are the same without.
   * PARALLAX_REPORT_PLAN says in how many. A bound that 4,096 rounds do not keep is LIMIT at
   * commit, with the least that is enough. For other variables INVALID. The same on every rank */
  uint64_t exchange_bytes_max;
} parallax_variable_t;

/* Registers one variable, for the next commit: before the first one or, since 0.2.0, between steps.
 * Every rank registers the same variables, by their names, in any order (since 0.2.0; before, in
 * the same order). *id numbers this rank's own registrations from 0. Until it is committed the
 * variable cannot be used (STATE), and steps go on without it. Does not block.
 * INVALID names the field; STATE while a step or a commit of this rank is under way; UNSUPPORTED
 * for what this version lacks. */
PARALLAX_API parallax_status_t parallax_register(parallax_job_t *job,
                                                 const parallax_variable_t *variable,
                                                 uint32_t *id);

/* ---- Steps -------------------------------------------------------------------------------- */

typedef enum parallax_form {
  PARALLAX_FORM_DENSE = 0, /* values: rows x row_elements, row-major; ids unused */
  PARALLAX_FORM_ROWS = 1   /* ids: row_count; values: row_count x row_elements, row-major */
} parallax_form_t;

/* For parallax_slice_t.as_dtype. */
#define PARALLAX_AS(dtype) ((uint32_t)(dtype) + 1u)

typedef struct parallax_slice {
  size_t size;
  uint32_t variable;  /* from parallax_register */
  uint32_t form;      /* parallax_form_t */
  const int64_t *ids; /* row ids in 0..rows-1, duplicates allowed (their gradients are summed); -1
                       * is padding: a push skips the row, a pull fills it with zeros. May be NULL
                       * when row_count is 0, or when ids_i32 is given */
  uint64_t row_count; /* <= rows_max, padding counted; 0 is legal */
  void *values;       /* push: gradients, only read. pull: destination. reduce, dense: gradient in,
                       * aggregate out, unless `into` says elsewhere. reduce, rows: gradients, only
                       * read. Aligned to an element */
  uint32_t as_dtype;  /* the type of `values`, and of the rows that a reduce returns: 0 for the
                       * variable's dtype, or PARALLAX_AS(a floating dtype) for a floating variable.
                       * Pulled values are converted before they cross the wire where that makes
                       * them smaller; F32 of an F16 or BF16 variable is what is kept, unrounded */
  uint32_t more;      /* push, reduce, of a variable with accumulate: 1: more calls for it follow in
                       * this step; the same in all its slices of one call. The gradients are copied
                       * and added to this rank's sum, in the order of the calls, as if all had come
                       * in one slice; rows_max then bounds their distinct rows too (LIMIT, and
                       * nothing is added). The last, with 0, sends the sum; step_end does for a
                       * rank without a last one. Only the last call of a reduce returns an
                       * aggregate */
  const int32_t *ids_i32; /* row ids as 32-bit numbers; then ids must be NULL */
  /* Since 0.2.0: */
  void *into;      /* reduce, dense: where the aggregate goes, as many numbers of the same type;
                    * values is only read then, and as it was whatever becomes of the request.
                    * NULL, or values itself: over the gradient. Any other overlap with values is
                    * INVALID, with another slice of the call the outcome is undefined */
  void *stream;    /* memory CUDA: the caller's stream (CUstream, cudaStream_t) in whose order the
                    * buffers are ready: what was put on it before the call is done before they are
                    * read or written, ids in host memory too. NULL: the legacy default stream. One
                    * that is being captured into a graph is UNSUPPORTED. It may be destroyed after
                    * the call. Calls and waits are not to be made within ncclGroupStart and
                    * ncclGroupEnd of the program's own, which would hold back sums of NCCL's */
  uint32_t memory; /* parallax_memory_t of values and into. HOST with a device's address, and CUDA
                    * with one of the host, are INVALID where the driver can tell (HOST: once the
                    * job has used a device). Ids may then lie on the same device or in host memory:
                    * the driver is asked */
  uint32_t device; /* memory CUDA: its number, as the CUDA driver counts in this process; else 0 */
} parallax_slice_t;

/* Slices on devices (memory CUDA) are copied, but for those of a variable that devices sum among
 * themselves, whose requests complete with the sum: ids and gradients to pinned host memory, from
 * where they go on as any (rows once their device has summed those of one id, where it can: the
 * bits are the same); aggregates and pulled values back from it. The calls do not block; their
 * requests complete when the last copy to or from the caller's buffers is done, so that after
 * parallax_wait work on any stream sees the result. The rows of parallax_request_rows are in host
 * memory; what is pulled of rows that this rank has in a table on the same device (table_memory)
 * stays there. What only the ids and numbers tell (an id past the end, rows_max of several slices,
 * refuse_nonfinite) is found when the stream has come to the call and they are here: the request
 * then completes with it, nothing of the call was done, and a variable that no other call gives is
 * absent from the step. A step_end may be called before: the step ends once its calls are taken;
 * those of one variable in the order in which they were made. The host memory is kept for the next
 * steps, up to the setting pinned_max_bytes (PARALLAX_PINNED_MAX_BYTES): a call that needs more at
 * once is copied in pieces, and LIMIT where not one of them can be had. IO, of the call or the
 * request: a copy failed, with the device's own error. Since 0.2.0. */

/* Begins the next step and sets *step to its number: 1, 2, 3, ... on every rank. A step may begin
 * once step_end of the one before was called; that request may still be pending, but step_end of
 * the step before that must be complete (with a staleness of s, of the step s + 2 before); STATE
 * otherwise, before commit, and while a read or write of rows is pending. Does not block. */
PARALLAX_API parallax_status_t parallax_step_begin(parallax_job_t *job, uint64_t *step);

/* Asks for values of managed variables as of the commit of step - 1, or as the options' staleness
 * lets be. `slices` is copied; its
 * buffers are borrowed until the request completes. One call for many variables makes one
 * exchange. Pulls of a step may be posted until its step_end, as many as this rank likes: what the
 * others pull, or whether they do, holds none up; they must make progress. Of several slices of a
 * variable in one call each gets its rows: by one exchange, in which a row that several name comes
 * once, as far as those that follow each other have one as_dtype and rows_max rows together (an
 * evaluation answers one after the other). INVALID names the slice,
 * the variable and the field, such as an id past the end, or says that the variable is
 * framework-held; LIMIT: more rows than rows_max; STATE: the step has not begun,
 * or has ended. Then nothing of the call was done.
 * Step 0 is an evaluation, between steps: values as of the last commit, asked for by this rank
 * alone; the others need not call, but must make progress. STATE while a step of this rank has not
 * ended with its request complete, and no step begins before the pull completes. */
PARALLAX_API parallax_status_t parallax_pull(parallax_job_t *job, uint64_t step,
                                             const parallax_slice_t *slices, size_t count,
                                             parallax_request_t **request);

/* Stages gradients of managed variables for `step`: nothing is applied before step_end's decision.
 * At most one call per variable, rank and step, unless it has accumulate; a variable not pushed by
 * step_end counts as absent.
 * Tied use: several slices of one variable in one call are summed as one, in their order, bit for
 * bit as if they had come in one slice (a row counts once for MEAN_ROW). Each has at most rows_max
 * rows, and together they have at most rows_max distinct ones, with those of earlier calls of the
 * step (LIMIT, and nothing is added); as_dtype may differ, `more` may not. They are copied into a
 * sum of this rank's, for which the first such calls of a variable reserve memory where it has no
 * accumulate (LIMIT); but a dense slice and one of rows behind it are read where they lie.
 * The request completes when the buffers may be reused. In a job of one host rows in memory of
 * parallax_buffer_alloc are not copied but read where they lie, where that is faster, until all
 * ranks have applied the step: such a request completes with its step, once step_end was called.
 * Before that it completes for who waits for it, or within some milliseconds, by a copy.
 * Errors as of pull; INVALID too for a second
 * call for a variable, for one that is framework-held, and for a number that is not finite where
 * refuse_nonfinite is 1. */
PARALLAX_API parallax_status_t parallax_push(parallax_job_t *job, uint64_t step,
                                             const parallax_slice_t *slices, size_t count,
                                             parallax_request_t **request);

/* Reduces gradients of framework-held variables over all ranks. The request completes when the
 * aggregate is there: dense where `into` says, else in place, as it arrives, so that what that
 * buffer holds is unspecified while the request is pending and if it fails; rows through
 * parallax_request_rows. Of several slices of a variable in one call (tied use, see push) each gets
 * the aggregate of all. At most one call per variable, rank and step, unless it has accumulate; a
 * rank that did not call it by its step_end
 * contributes zeros: so a rank that waits for a reduce before its step_end waits until every rank
 * has called reduce for that variable, or step_end. Where setting fuse_tables is "all", small
 * variables with row ids go as one: a request of some of them stays pending until all are called,
 * or the step ends (a test says PENDING); a wait before that is STATE, naming what is to be called.
 * Errors as of push; managed variables are INVALID here: push them. */
PARALLAX_API parallax_status_t parallax_reduce(parallax_job_t *job, uint64_t step,
                                               const parallax_slice_t *slices, size_t count,
                                               parallax_request_t **request);

/* The rates of a group of variables in one step (torch's param_groups); the formulas stand with
 * parallax_rule_t. Since 0.2.0. */
typedef struct parallax_rates {
  size_t size;
  float learning_rate; /* finite, >= 0 */
  float weight_decay;  /* finite, >= 0 */
  uint32_t decoupled;  /* 1: decay shrinks the value (torch.optim.AdamW); 0: it is added to the
                        * gradient */
  uint32_t maximize;   /* 1: the gradient is negated */
  float clip_norm;     /* as the step's, of the group's own gradients and before it; 0: none */
  uint32_t reserved;   /* 0 */
} parallax_rates_t;

typedef struct parallax_step_end_options {
  size_t size;
  float learning_rate; /* of all variables: finite, >= 0, bit for bit the same on every rank, else
                        * the step is discarded with MISMATCH. 0 where `rates` is given */
  float clip_norm;     /* > 0: clip factor = min(1, clip_norm / (norm + 1e-6)), norm over all pushed
                        * gradients of managed variables after reduction, and after what the clips
                        * of `rates` took, as for a caller who clips group by group first
                        * (torch.nn.utils.clip_grad_norm_); 0: no clipping. Same on every rank */
  uint32_t found_inf;  /* 1: every rank discards this step (mixed-precision overflow) */
  uint32_t absent;     /* 1: this rank had no batch and contributed nothing; no contributor */
  /* Since 0.2.0: */
  const parallax_rates_t *rates; /* by group: `rates` of parallax_variable_t. Read during the call.
                                  * All of it bit for bit the same on every rank, else MISMATCH
                                  * names the group, the field, and what two ranks gave */
  uint32_t rates_count;          /* of `rates`: more than any managed variable's group, at most
                                  * PARALLAX_RATES_MAX. 0: learning_rate for all */
  uint32_t reserved;             /* 0 */
} parallax_step_end_options_t;

/* Ends the step: one decision, then committed or discarded everywhere alike. Does not block; the
 * request completes when the commit is applied on this rank, or the step was discarded. NULL
 * options: all zero, which is a learning rate of 0. INVALID names the field; STATE: the step has
 * not begun, or has ended. The request fails with MISMATCH where ranks gave different numbers; the
 * step is discarded, and the job goes on. */
PARALLAX_API parallax_status_t parallax_step_end(parallax_job_t *job, uint64_t step,
                                                 const parallax_step_end_options_t *options,
                                                 parallax_request_t **request);

typedef struct parallax_step_info {
  size_t size;
  uint64_t step;
  uint32_t committed;    /* 1: applied; 0: discarded (found_inf on some rank) */
  uint32_t contributors; /* ranks that were not absent */
  double gradient_norm;  /* 0 unless clip_norm was given */
  double clip_scale;     /* 1 if nothing was clipped */
  uint32_t plan_changed; /* 1: a new plan holds from step + 1 on */
  uint32_t reserved;     /* 0 */
} parallax_step_info_t;

/* ---- Rows with their optimizer state ------------------------------------------------------ */

/* Rows first_row .. first_row + row_count - 1 of a managed variable, in the type it is updated in:
 * double for F64, float for F32, F16 and BF16, else the dtype itself. Of values kept in
 * storage_dtype these are floats that it holds; written, any are rounded to nearest even. NULL:
 * that array is not read, or not written. Buffers are borrowed until the request completes.
 *   state[0]   ADAGRAD s, ADAM m, MOMENTUM b, FTRL n: row_count x row_elements;
 *              ROWWISE_ADAGRAD s: row_count
 *   state[1]   ADAM v, FTRL z: row_count x row_elements
 *              CALLBACK, both: row_count x state_elements[i]
 *   updates    ADAM's t, one number for the whole variable; of other rules the same count */
typedef struct parallax_rows {
  size_t size;
  uint32_t variable;
  uint32_t reserved;  /* 0 */
  uint64_t first_row;
  uint64_t row_count; /* 1 or more */
  void *values;       /* row_count x row_elements, row-major */
  void *state[2];     /* must be NULL where the rule keeps none */
  uint64_t *updates;
} parallax_rows_t;

/* Reads rows as of the last commit, for a checkpoint or an export; chunk by chunk, as large as the
 * caller's buffers. Any rank, alone; the others need not call. Between steps: STATE while a step of
 * this rank has not ended with its request complete; and no step begins before the read completes.
 * INVALID names the variable and the field. */
PARALLAX_API parallax_status_t parallax_read(parallax_job_t *job, const parallax_rows_t *rows,
                                             parallax_request_t **request);

/* Writes rows, wherever they lie, on every rank that holds them. Any rank may write, several at
 * once if their rows differ. No rank may be in a step: call parallax_barrier on every rank before
 * the first write and after the last; a rank that is in a step when the rows arrive leaves out some
 * or all of them, and the request fails with STATE and that rank's number. */
PARALLAX_API parallax_status_t parallax_write(parallax_job_t *job, const parallax_rows_t *rows,
                                              parallax_request_t **request);

/* ---- Collectives beside the steps --------------------------------------------------------- */

/* Completes when every rank has called it. Matched by order among barriers. STATE before commit. */
PARALLAX_API parallax_status_t parallax_barrier(parallax_job_t *job, parallax_request_t **request);

/* Copies `bytes` (<= 2^40) from `root` to every rank's buffer. Matched by order among broadcasts;
 * sizes and roots that differ are a MISMATCH. The buffer is borrowed until the request completes.
 * INVALID names the argument; STATE before commit. */
PARALLAX_API parallax_status_t parallax_broadcast(parallax_job_t *job, void *buffer, size_t bytes,
                                                  uint32_t root, parallax_request_t **request);

/* What a collective does; each rank r of n gives `count` numbers of `send` unless said otherwise.
 *   ALLREDUCE       recv[i] = op over all ranks of send[i]; on every rank
 *   REDUCE          the same, on `root` alone
 *   REDUCE_SCATTER  send has n x count numbers; of their op over all ranks, rank r gets in recv the
 *                   `count` from r x count on
 *   ALLGATHER       recv has n x count: those of rank 0, of rank 1, ...; on every rank
 *   GATHER          the same, on `root` alone
 *   ALLGATHERV      as ALLGATHER with recv_counts[r] numbers of rank r, the same array on every
 *                   rank; count is recv_counts[own rank]
 *   ALLTOALLV       send has send_counts[r] numbers for rank r, one rank's after the other's, and
 *                   recv has recv_counts[r] of rank r in the same way; count is not looked at
 *   BROADCAST       recv = `root`'s send; send of other ranks is not looked at, and recv may be
 *                   NULL on the root */
typedef enum parallax_collective_kind {
  PARALLAX_ALLREDUCE = 1,
  PARALLAX_REDUCE_SCATTER = 2,
  PARALLAX_ALLGATHER = 3,
  PARALLAX_ALLGATHERV = 4,
  PARALLAX_ALLTOALLV = 5,
  PARALLAX_BROADCAST = 6,
  PARALLAX_REDUCE = 7,
  PARALLAX_GATHER = 8
} parallax_collective_kind_t;

/* How numbers of several ranks become one. F16 and BF16 are combined in float and rounded once, in
 * the end; integers wrap. */
typedef enum parallax_op {
  PARALLAX_OP_SUM = 0,
  PARALLAX_OP_MEAN = 1, /* sum x (1 / ranks), multiplied in the type of the sum; no integers */
  PARALLAX_OP_MIN = 2,  /* IEEE 754-2019 minimum: a NaN of any rank wins; -0 < +0 */
  PARALLAX_OP_MAX = 3,  /* maximum, the same way */
  PARALLAX_OP_PRODUCT = 4,
  PARALLAX_OP_AND = 5, /* bit by bit; integers only, as OR and XOR */
  PARALLAX_OP_OR = 6,
  PARALLAX_OP_XOR = 7
} parallax_op_t;

typedef struct parallax_collective {
  size_t size;                 /* sizeof(parallax_collective_t) */
  uint32_t kind;               /* parallax_collective_kind_t */
  uint32_t dtype;              /* parallax_dtype_t, of send and recv, or PARALLAX_BYTES */
  uint32_t op;                 /* parallax_op_t; looked at where the kind combines */
  uint32_t root;               /* a rank; looked at where the kind has one */
  const void *send;            /* counts are of numbers, not bytes; need not be aligned; NULL if
                                * without any. Borrowed until the request completes */
  void *recv;                  /* as send */
  const uint64_t *send_counts; /* by rank; aligned; read during the call */
  const uint64_t *recv_counts;
  uint64_t count;
  uint64_t tag;                /* 0: matched by order among those with tag 0; else with this tag */
  uint32_t memory;             /* parallax_memory_t of send and recv: HOST; CUDA is not yet */
  uint32_t device;             /* not yet. Its number, as the device's own library counts */
  void *stream;                /* not yet. In whose order the buffers are ready */
} parallax_collective_t;

/* A collective of all ranks on any buffers, beside the variables: after commit, inside steps and
 * between them, as many under way as there are requests. No variable is needed.
 *
 * Matching. Those of tag 0 are matched in the order of their calls; the others by their tag, in any
 * order, and those of one tag after one another. Numbers move once every rank has called, so a rank
 * that is ahead costs the others no memory; of up to 1,024 bytes in all, F16 and BF16 that are
 * combined counted as the floats that they are combined in, they travel with the word that it has
 * called.
 *
 * In place. ALLREDUCE and REDUCE: recv == send. ALLGATHER, ALLGATHERV and GATHER: send is where
 * this rank's numbers are in recv. REDUCE_SCATTER: recv anywhere in send. BROADCAST: recv == send.
 * Buffers that overlap otherwise are INVALID; ALLTOALLV takes none that do.
 *
 * The result has the same bits on every rank that gets it, and under `deterministic` in every run.
 *
 * INVALID names the field, UNSUPPORTED too; STATE before commit; LIMIT: no memory for its sums, or
 * no request left. A call whose fields are refused after commit takes its place in the order, or of
 * its tag, all the same, unless no request is left: the other ranks' requests end with a MISMATCH
 * that names its rank and field, and the next calls meet. One whose struct cannot be read (size,
 * tail, alignment), or that comes while a commit is under way, takes none. As
 * its request's end: MISMATCH names the field and two ranks whose kind, dtype, op, root, count or
 * counts differ, on every rank, with recv as it was, and the job goes on; PEER_LOST names a
 * rank that was lost or has closed; after that recv is undefined. A wait's TIMEOUT names who is
 * missing, and leaves the buffers borrowed. */
PARALLAX_API parallax_status_t parallax_collective(parallax_job_t *job,
                                                   const parallax_collective_t *what,
                                                   parallax_request_t **request);

/* ---- Requests ----------------------------------------------------------------------------- */

#define PARALLAX_WAIT_DEFAULT (-1) /* the job's timeout_ms */

/* Waits until all `count` requests are complete or timeout_ms passed. OK when all completed OK;
 * else the first failed one's status; TIMEOUT leaves the requests pending and names the ranks or
 * calls that are missing. A request with another waiter is STATE, and see parallax_reduce. */
PARALLAX_API parallax_status_t parallax_wait(parallax_request_t *const *requests, size_t count,
                                             int64_t timeout_ms);

/* Makes a stream of a CUDA device wait for the requests, in the place of the calling thread: work
 * that is put on the stream from here on sees their results, and may use their buffers. `stream` is
 * named as in parallax_slice_t; `device` is the stream's, whichever device the slices lie on.
 *
 * What it blocks for, up to timeout_ms, are results that no stream can wait for yet. A sum that
 * devices make among themselves: until it is launched, which with the calls of all ranks made and
 * the communicator formed it is at once; in another as_dtype, until it has ended and its result is
 * being converted. What comes by host memory, dense aggregates and pulled values: until it is
 * there, and its copies to the device have begun. All else (pushes, requests without a slice on a
 * device, large calls in pieces, values that a table on the device writes): until the request is
 * complete.
 *
 * The requests stay pending and are waited for and released as always: by then their results are
 * there. OK says that the order holds, not that what comes will be right: where a request fails
 * behind it, the stream goes on all the same, once nothing writes to the buffers any more, with
 * whatever is in them. So ask the request, or that of step_end, before the work that followed is
 * relied upon. The first failure of a request that is complete is returned once the stream waits
 * for the others.
 *
 * TIMEOUT names what is missing, and a later call may ask again; the stream may wait for some by
 * then, which holds in each case but INVALID and STATE. UNSUPPORTED: the stream is being captured
 * into a graph, or is not of the device's primary context, or there is no such device. IO: the
 * driver's own error. INVALID and STATE as parallax_wait. Since 0.2.0. */
PARALLAX_API parallax_status_t parallax_stream_wait(parallax_request_t *const *requests,
                                                    size_t count, uint32_t device, void *stream,
                                                    int64_t timeout_ms);

/* PENDING, or the request's final status. Never blocks. */
PARALLAX_API parallax_status_t parallax_request_test(parallax_request_t *request);

/* Asks to cancel. Other ranks may wait for the request's data, so cancelling a pending request
 * aborts the step, and with it the job, on every rank, with a sentence that says so; a complete
 * one is left alone. Completion is the answer: wait for the request as usual. */
PARALLAX_API parallax_status_t parallax_request_cancel(parallax_request_t *request);

/* The sentence of a failed request, "" otherwise: also of one that is pending after a wait that
 * timed out, which parallax_last_error() tells of. Valid until release. */
PARALLAX_API const char *parallax_request_error(parallax_request_t *request);

/* Fills *info with the failure that parallax_request_error() tells of; all unknown where the
 * request is pending or completed OK. INVALID for a null argument. Since 0.2.0. */
PARALLAX_API parallax_status_t parallax_request_error_info(parallax_request_t *request,
                                                           parallax_error_info_t *info);

/* The outcome of a completed step_end. STATE for another kind, or while pending. */
PARALLAX_API parallax_status_t parallax_request_step(parallax_request_t *request,
                                                     parallax_step_info_t *info);

/* The union of rows of a completed reduce: *ids ascending, *values row_count x row_elements, both
 * owned by the request until release. `index` counts the slices of the call; a dense one has no
 * rows. INVALID: no such slice; STATE: the request is no reduce that completed OK. */
PARALLAX_API parallax_status_t parallax_request_rows(parallax_request_t *request, size_t index,
                                                     const int64_t **ids, const void **values,
                                                     uint64_t *row_count);

/* Frees a completed request. A pending one is STATE and stays. NULL is OK. */
PARALLAX_API parallax_status_t parallax_request_release(parallax_request_t *request);

/* ---- Explain ------------------------------------------------------------------------------ */

typedef enum parallax_report {
  PARALLAX_REPORT_PLAN = 0, /* per variable: method, alternatives with predicted bytes, why; of
                             * tables that go as one (`fused`) all with the first of them */
  PARALLAX_REPORT_STATS = 1, /* counters of this rank: bytes and messages on the wire and within
                              * the host; by variable its bytes, and its memory reserved and
                              * touched (asks the kernel: ms for GiB); buffers; waits; late rank */
  PARALLAX_REPORT_TOPOLOGY = 2, /* hosts, NUMA nodes, NICs, GPUs, binding */
  PARALLAX_REPORT_SETTINGS = 3 /* every setting: its value, and where that came from */
} parallax_report_t;

/* Writes a JSON object, NUL-terminated, into buffer[*bytes] and sets *bytes to what it needs with
 * the NUL. LIMIT when *bytes was too small (buffer may then be NULL). */
PARALLAX_API parallax_status_t parallax_report(parallax_job_t *job, uint32_t report, char *buffer,
                                               size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif /* PARALLAX_PARALLAX_H_ */
