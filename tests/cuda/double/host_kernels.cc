// SPDX-License-Identifier: Apache-2.0
// The module's kernels, of the source that nvcc compiles for devices: what the double's
// cuModuleGetFunction finds by their names.
#include "cuda/double/host_device.h"
// What it is written in first.
#include "cuda/kernels/kernels.cu"
