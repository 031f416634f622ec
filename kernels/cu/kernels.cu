// All kernels, as one program: one image an architecture.
#include "pack.cu"
#include "hash.cu"
#include "stats.cu"
