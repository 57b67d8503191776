/* SPDX-License-Identifier: Apache-2.0
 *
 * Beside MPI: the processes of an MPI program are the ranks of a job. They meet through
 * MPI_Allgather, and in every step a reduce of the job is pending while MPI_Allreduce runs; both
 * sums are checked. An argument, "hosts", makes every rank a host of its own, so that UCX is in the
 * process too.
 *
 * Prints "ok rank R of W on H hosts beside MPI" and ends with 0.
 */
#include <mpi.h>
#include <parallax/parallax.h>
#include <stdio.h>

enum { kElements = 5000, kSteps = 20, kTimeoutMs = 60000 };

#define PARALLAX_MUST(call)                                      \
  do {                                                           \
    if ((call) != PARALLAX_OK) {                                 \
      fprintf(stderr, "%s: %s\n", #call, parallax_last_error()); \
      MPI_Abort(MPI_COMM_WORLD, 1);                              \
    }                                                            \
  } while (0)

static int exchange(void* context, const void* send, void* recv, size_t bytes) {
  (void)context;
  return MPI_Allgather(send, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, MPI_COMM_WORLD) ==
                 MPI_SUCCESS
             ? 0
             : -1;
}

static void expect(const float* values, float expected, const char* whose) {
  for (int i = 0; i < kElements; ++i) {
    if (values[i] == expected + (float)i) continue;
    fprintf(stderr, "%s sum [%d] is %g, not %g\n", whose, i, (double)values[i],
            (double)expected + i);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

static void train(parallax_job_t* job, int rank, int world) {
  parallax_variable_t variable = {
      .size = sizeof variable, .name = "weight", .rows = kElements, .row_elements = 1};
  uint32_t id;
  PARALLAX_MUST(parallax_register(job, &variable, &id));
  PARALLAX_MUST(parallax_commit(job));
  static float ours[kElements], theirs[kElements];
  parallax_slice_t slice = {.size = sizeof slice, .variable = id, .values = ours};
  for (int i = 1; i <= kSteps; ++i) {
    for (int k = 0; k < kElements; ++k) {
      ours[k] = (float)(rank * i) + (rank == 0 ? (float)k : 0);
      theirs[k] = (float)(rank + i) + (rank == 0 ? (float)k : 0);
    }
    uint64_t step;
    parallax_request_t *reduced, *ended;
    PARALLAX_MUST(parallax_step_begin(job, &step));
    PARALLAX_MUST(parallax_reduce(job, step, &slice, 1, &reduced));
    MPI_Allreduce(MPI_IN_PLACE, theirs, kElements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    PARALLAX_MUST(parallax_wait(&reduced, 1, PARALLAX_WAIT_DEFAULT));
    PARALLAX_MUST(parallax_request_release(reduced));
    parallax_step_end_options_t end = {.size = sizeof end};
    PARALLAX_MUST(parallax_step_end(job, step, &end, &ended));
    PARALLAX_MUST(parallax_wait(&ended, 1, PARALLAX_WAIT_DEFAULT));
    PARALLAX_MUST(parallax_request_release(ended));
    const int ranks = world * (world - 1) / 2;
    expect(ours, (float)(ranks * i), "the job's");
    expect(theirs, (float)(ranks + world * i), "MPI's");
  }
}

int main(int count, char** arguments) {
  int threads, rank, world;
  MPI_Init_thread(&count, &arguments, MPI_THREAD_FUNNELED, &threads);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  char host[32];
  snprintf(host, sizeof host, "host%d", rank);
  parallax_options_t options = {.size = sizeof options,
                                .rank = (uint32_t)rank,
                                .world = (uint32_t)world,
                                .allgather = exchange,
                                .host = count > 1 ? host : NULL,
                                .timeout_ms = kTimeoutMs};
  parallax_job_t* job;
  PARALLAX_MUST(parallax_open(&options, &job));
  parallax_job_info_t info = {.size = sizeof info};
  PARALLAX_MUST(parallax_query(job, &info));
  train(job, rank, world);
  PARALLAX_MUST(parallax_close(job));
  MPI_Finalize();
  printf("ok rank %d of %d on %u hosts beside MPI\n", rank, world, info.hosts);
  return 0;
}
